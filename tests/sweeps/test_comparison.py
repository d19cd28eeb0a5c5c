"""The comparison of losses: flags as names, and the numbers of runs."""

import json
import pathlib

import pytest

from supcon_tf import config, transfer
from supcon_tf.sweeps import comparison, grid

ROOT = pathlib.Path(__file__).parents[2]
METRICS = {
    "method.top_1": 0.7,
    "linear.top_1": 0.6,
    "pretrained.top_1": 0.7,
    "knn.top_1": 0.5,
    "method.ece": 0.1,
    "retrieval.map_at_r": 0.3,
    "unknown.mahalanobis.fpr95": 0.9,
    "corruptions.linear.mean_corruption_error_unnormalized": 0.4,
    "corruptions.pretrained.mean_corruption_error_unnormalized": 0.45,
}


def make_cells(*axes, run_dir):
    return [
        {
            "values": cell.values,
            "run_dir": run_dir,
            "metrics": METRICS,
            "settings": {"pretrain": vars(cell.training)},
        }
        for cell in grid.list_cells(config.SweepSettings("runs/s", sweep=axes))
    ]


@pytest.fixture
def no_transfer(monkeypatch):
    results = {"test": {"top_1": 0.96}}
    monkeypatch.setattr(transfer, "transfer_encoder", lambda _: results)


def test_a_loss_is_named_by_the_flags_that_make_it(no_transfer, finished_run):
    axis = "objective:learning_rate:denominator:margin=supcon:5:all:0,"
    axis = f"{axis}supcon:5:sincere:1,ce:3:all:0"
    cells = make_cells("seed=0", axis, run_dir=str(finished_run.path))
    assert [row["flags"] for row in comparison.list_results(cells)] == [
        "--objective=supcon",
        "--objective=supcon --denominator=sincere --margin=1",
        "--objective=ce",
    ]


def test_corruptions_are_of_the_classifier_that_a_method_ends_with(
    no_transfer, finished_run
):
    cells = make_cells(
        "objective=supcon,supcon+ce,ce", run_dir=str(finished_run.path)
    )
    rows = comparison.list_results(cells)
    errors = [row["corruptions.method"] for row in rows]
    assert errors == [0.4, 0.4, 0.45]


def test_a_row_has_the_means_of_its_seeds(no_transfer, finished_run):
    cells = make_cells(
        "seed=0,1", "objective=ce", run_dir=str(finished_run.path)
    )
    rows = comparison.list_results(cells)
    rows[1]["method.top_1"] = 0.8
    cells = comparison.comparison_table(rows).splitlines()[-1].strip("| ")
    assert [cell.strip() for cell in cells.split("|")] == (
        "`--objective=ce`,2,0.750 ± 0.071,0.600,0.500,0.100,0.300,0.960,0.450,"
        f"0.900,{rows[0]['minutes']:.0f}"
    ).split(",")


def test_a_number_that_a_loss_lacks_is_left_out(no_transfer, finished_run):
    """Such as one that is not finite, which no cell has."""
    cells = make_cells(
        "seed=0,1", "objective=ce", run_dir=str(finished_run.path)
    )
    for cell in cells:
        cell["metrics"] = {"knn.top_1": 0.5}
    cells[1]["metrics"] = {"method.top_1": 0.7}
    rows = comparison.list_results(cells)
    row = comparison.comparison_table(rows).splitlines()[-1]
    texts = [text.strip() for text in row.strip("|").split("|")]
    assert texts[1:9] == ["2", "0.700", "-", "0.500", "-", "-", "0.960", "-"]


def test_minutes_are_those_of_a_run_without_pauses(
    no_transfer, copy_run, tmp_path
):
    run = copy_run(tmp_path / "run")
    steps = int(run.latest_checkpoint().rpartition("-")[2])
    images = steps * run.recorded(config.PretrainSettings).batch_size
    epochs = [{"epoch": i, "examples/s": s} for i, s in enumerate([8, 1, 10])]
    lines = [f"{json.dumps(epoch)}\n" for epoch in epochs]
    run.metrics_file.write_text("".join(lines))
    cells = make_cells("objective=supcon", run_dir=str(run.path))
    (row,) = comparison.list_results(cells)
    assert row["minutes"] == pytest.approx(images / 8 / 60)


def test_the_transfer_is_that_of_the_tool(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    cells = make_cells("objective=supcon", run_dir=str(run.path))
    (row,) = comparison.list_results(cells)
    record = json.loads(run.stage("digits").transfer_file.read_text())
    assert row["digits"] == record["test"]["top_1"]
    assert comparison.list_results(cells) == [row]  # not repeated


def test_the_page_has_the_table_of_its_numbers():
    folder = ROOT / "docs" / "reproduction"
    records = json.loads((folder / "objectives.json").read_text())
    page = (folder / "objectives.md").read_text()
    assert comparison.comparison_table(records) in page
