"""What is on disk of a cell."""

from __future__ import annotations

import dataclasses

import pytest

from supcon_tf import config, run_files
from supcon_tf.sweeps import grid, records
from tests.sweeps import results


@pytest.fixture
def sweep(tmp_path):
    return config.SweepSettings(
        str(tmp_path / "s"), sweep=("crop_area=0.2+1,", "seed=1,2")
    )


def parts(cell):
    return cell.training, cell.linear, cell.evaluation


@pytest.fixture
def cell(sweep):
    """The first cell, its settings written."""
    cell = grid.list_cells(sweep)[0]
    cell.directory.write_settings(*parts(cell))
    return cell


def test_a_process_reads_the_settings_of_its_cell(cell):
    for wanted in (cell.training, cell.linear):
        read = cell.directory.read_settings(type(wanted), "--resume")
        assert read == wanted
    read = cell.directory.read_settings(config.EvaluateSettings)
    assert read == cell.evaluation


def test_a_cell_is_finished_when_its_evaluation_is_there(cell):
    assert cell.state() == records.State()
    cell.directory.write_state(records.State("running", 3.0))
    assert cell.state() == records.State("running", 3.0)
    assert cell.metrics() == {}
    results.write_evaluation(
        cell,
        images=3,
        name="x",
        linear={"top_1": 0.5, "nll": float("inf"), "bins": [1, 2]},
        retrieval={"recall_at": {"1": 0.25}},
    )
    assert cell.state() == records.State("finished", 3.0)
    assert cell.metrics() == {
        "images": 3,
        "linear.top_1": 0.5,
        "method.top_1": 0.5,
        "retrieval.recall_at.1": 0.25,
    }
    # The evaluation belongs to the stage from when there is one.
    run = run_files.RunDirectory(cell.run_dir)
    run.create(cell.training, ("a", "b"))
    run.stage("linear").create(cell.linear, ("a", "b"))
    assert cell.state() == records.State("running", 3.0)
    results.write_evaluation(cell, linear={"top_1": 0.75})
    assert cell.metrics()["linear.top_1"] == 0.75
    assert run.stage("linear").evaluation_file.exists()


def test_another_evaluation_is_done_again_and_other_trainings_refused(cell):
    directory = cell.directory
    directory.write_state(records.State("finished", 3.0))
    results.write_evaluation(cell, images=3)
    # What does not change the result may differ.
    moved = dataclasses.replace(cell.training, checkpoint_every=1)
    directory.check_same(moved, cell.linear)
    directory.write_settings(moved, cell.linear, cell.evaluation)
    assert cell.state().status == "finished"
    # As where it was evaluated by hand, in another way.
    evaluation = dataclasses.replace(cell.evaluation, knn_neighbors=7)
    other = dataclasses.replace(cell, evaluation=evaluation)
    assert other.state() == records.State("pending", 3.0)
    assert other.metrics() == {}
    other = dataclasses.replace(cell.training, temperature=0.5)
    with pytest.raises(
        ValueError,
        match="--run_dir must hold cells of the same settings, got "
        r"--temperature=0.5 \(was 0.1\) for crop_area",
    ):
        directory.check_same(other)
    linear = dataclasses.replace(cell.linear, epochs=3)
    with pytest.raises(ValueError, match=r"--epochs=3 \(was 100\)"):
        directory.check_same(cell.training, linear)
