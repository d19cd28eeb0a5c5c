"""What is on disk of a cell."""

from __future__ import annotations

import dataclasses
import json

import pytest

from supcon_tf import config
from supcon_tf.sweeps import grid, records


@pytest.fixture
def sweep(tmp_path):
    return config.SweepSettings(
        str(tmp_path / "s"), sweep=("crop_area=0.2+1,", "seed=1,2")
    )


def first(sweep):
    cell = grid.list_cells(sweep)[0]
    return cell, records.CellDirectory(cell.directory)


def test_a_process_reads_the_settings_of_its_cell(sweep):
    cell, directory = first(sweep)
    directory.write_settings(cell)
    for wanted in (cell.pretraining, cell.linear):
        assert directory.read_settings(type(wanted), "--resume") == wanted
    read = directory.read_settings(config.EvaluateSettings)
    assert read == cell.evaluation


def test_a_cell_is_finished_when_its_result_is_there(sweep):
    cell, directory = first(sweep)
    assert directory.state() == records.State()
    directory.write_settings(cell)
    directory.write_state(records.State("running", 3.0))
    assert directory.state() == records.State("running", 3.0)
    directory.evaluation_file.write_text('{"linear": {"top_1": 0.5}}')
    assert directory.state() == records.State("finished", 3.0)
    assert directory.metrics() == {"linear.top_1": 0.5}


def test_other_settings_are_refused(sweep):
    cell, directory = first(sweep)
    directory.write_settings(cell)
    directory.check_same(cell)
    moved = dataclasses.replace(sweep, checkpoint_every=1, resume=True)
    directory.check_same(first(moved)[0])
    other, _ = first(dataclasses.replace(sweep, temperature=0.5))
    with pytest.raises(
        ValueError,
        match="--run_dir must hold cells of the same settings, got "
        r"--temperature=0.5 \(was 0.1\) for crop_area",
    ):
        directory.check_same(other)
    linear = dataclasses.replace(cell.linear, epochs=3)
    with pytest.raises(ValueError, match=r"--epochs=3 \(was 100\)"):
        directory.check_same(dataclasses.replace(cell, linear=linear))


def test_another_evaluation_is_done_again(sweep):
    cell, directory = first(sweep)
    directory.write_settings(cell)
    directory.write_state(records.State("finished", 3.0))
    directory.evaluation_file.write_text("{}")
    directory.write_settings(cell)
    assert directory.state().status == "finished"
    evaluation = dataclasses.replace(cell.evaluation, knn_neighbors=7)
    other = dataclasses.replace(cell, evaluation=evaluation)
    directory.check_same(other)
    directory.write_settings(other)
    assert directory.state() == records.State("pending", 3.0)


def test_the_description_is_json(sweep):
    cells = grid.list_cells(sweep)
    described = records.describe(sweep, cells)
    assert json.loads(json.dumps(described, allow_nan=False))["axes"] == [
        {
            "name": "crop_area",
            "values": ["0.2+1.0", ""],
            "is_repetition": False,
        },
        {"name": "seed", "values": [1, 2], "is_repetition": True},
    ]
    cell = described["cells"][3]
    assert cell["values"] == {"crop_area": "", "seed": 2}
    assert cell["status"] == "pending" and cell["metrics"] == {}
    assert cell["settings"]["pretrain"]["seed"] == 2


def test_only_finite_numbers_are_metrics():
    tree = {
        "images": 3,
        "name": "x",
        "linear": {"top_1": 0.5, "nll": float("inf"), "bins": [1, 2]},
        "retrieval": {"recall_at": {"1": 0.25}},
    }
    assert records.flatten(tree) == {
        "images": 3,
        "linear.top_1": 0.5,
        "retrieval.recall_at.1": 0.25,
    }
