"""The map of gains: pairs of seeds, intervals, and the files of the table."""

import json
import math
import pathlib

import pytest

from supcon_tf import config, run_files, sweeps
from supcon_tf.sweeps import gains, grid, run

ROOT = pathlib.Path(__file__).parents[2]


def make_results(accuracies, images=100, steps=500):
    """Results by method, a list of accuracies by seed."""
    return [
        gains.Result(images, steps, seed, f"{method}.top_1", top_1)
        for method, numbers in accuracies.items()
        for seed, top_1 in enumerate(numbers)
        if top_1 is not None
    ]


def test_a_gain_is_the_difference_to_cross_entropy_of_the_same_seed():
    results = make_results(
        {"ce method": [0.5, 0.6, None], "supcon method": [0.53, 0.59, 0.9]}
    )
    differences = gains.gains(results, "supcon method.top_1")
    assert differences == {(100, 500): pytest.approx([0.03, -0.01])}


def test_the_interval_is_students():
    """Of -1, 0, 1: deviation 1, error 1 / sqrt(3), t of two degrees 4.303."""
    expected = 4.302653 / math.sqrt(3)
    assert gains.half_interval([-1, 0, 1]) == pytest.approx(expected)
    assert math.isnan(gains.half_interval([0.1]))


def test_a_row_of_the_table_has_points_and_intervals():
    results = make_results(
        {
            "ce method": [0.5, 0.6],
            "ce linear": [0.51, 0.61],
            "supcon method": [0.52, 0.64],
            "supcon+ce method": [None, 0.63],
        }
    )
    row = gains.gains_table(results).splitlines()[-1]
    cells = [text.strip() for text in row.strip("|").split("|")]
    # The differences 2 and 4 have deviation sqrt(2), t is 12.706.
    points = ["+3.0 ± 12.7", "+3.0 (of 1)", "+1.0 ± 0.0"]
    assert cells == ["100", "500", "2", "0.550", *points]
    assert gains._points([-1e-4], 1) == "+0.0"


def test_the_map_is_written_from_finished_cells(tmp_path, monkeypatch):
    """The sweep is pretended: cells have accuracies, runs a checkpoint."""
    monkeypatch.chdir(ROOT)

    def run_sweep(sweep):
        cells = []
        for cell in grid.list_cells(sweep):
            checkpoints = run_files.RunDirectory(cell.run_dir).checkpoints
            for step in (100, 497):
                run_files.path_of(checkpoints, step).mkdir(parents=True)
            metrics = {"linear.top_1": 0.5, "method.top_1": 0.5}
            cells.append(
                {
                    "status": "finished",
                    "run_dir": cell.run_dir,
                    "metrics": metrics,
                    "settings": {"pretrain": vars(cell.training)},
                }
            )
        return {"cells": cells}

    monkeypatch.setattr(run, "run_sweep", run_sweep)
    sweeps.reproduce(
        config.ReproduceSettings(str(tmp_path), table="map", data_dir="images")
    )
    records = json.loads((tmp_path / "map.json").read_text())
    assert len(records) == 4 * 9  # methods of three objectives, nine trainings
    assert {record["steps"] for record in records} == {497}
    table = (tmp_path / "map.md").read_text()
    assert table.count("+0.0") == 9
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_has_the_table_of_its_numbers():
    folder = ROOT / "docs" / "reproduction"
    records = json.loads((folder / "map.json").read_text())
    results = [gains.Result(**record) for record in records]
    assert gains.gains_table(results) in (folder / "map.md").read_text()
