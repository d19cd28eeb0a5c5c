"""The sweeps of the paper's tables: each is sound, and one is run."""

import json
import pathlib

import numpy as np
import pytest

from supcon_tf import config, data, evaluation, sweeps
from supcon_tf.sweeps import grid, processes, run
from tests.sweeps import test_run

ROOT = pathlib.Path(__file__).parents[2]
TABLES = [
    (path.parent.name, path.stem)
    for path in sorted((ROOT / "flags/tables").glob("*/*.flags"))
    if path.stem not in ("linear_views", "corrupted", "robust", "shots")
]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def make_sweep(table, scale, run_dir="unused"):
    data_dir = "images" if scale == "small" else None
    return sweeps.table_of_paper(
        config.ReproduceSettings(
            str(run_dir), table=table, scale=scale, data_dir=data_dir
        )
    )


@pytest.mark.parametrize(("scale", "table"), TABLES)
def test_every_cell_of_a_table_is_sound(scale, table):
    sweep = make_sweep(table, scale)
    cells = grid.list_cells(sweep)
    for cell in cells:
        assert cell.training.dataset == (
            "folder" if scale == "small" else "tfds:imagenet2012"
        )


@pytest.mark.parametrize(
    "table", sorted(name for scale, name in TABLES if scale == "small")
)
def test_a_table_at_toy_size_asks_for_what_the_digits_have(table):
    digits = data.load("digits", "train")
    for cell in grid.list_cells(make_sweep(table, "toy")):
        images_per_class = np.bincount(digits.labels).min()
        assert cell.training.images_per_label <= images_per_class
        assert {*cell.training.unknown_classes} <= {*digits.class_names}
        assert cell.evaluation.corruptions == "none"  # it would take minutes


@pytest.mark.slow
def test_a_table_runs_at_toy_size(tmp_path, monkeypatch):
    """To the figure of the table itself."""
    monkeypatch.setattr(processes, "start", test_run.CommandFork)
    settings = config.ReproduceSettings(
        str(tmp_path), table="hardness", scale="toy"
    )
    results = sweeps.reproduce(settings)
    assert [cell["status"] for cell in results["cells"]] == ["finished"] * 2
    untrained, trained = (tmp_path / "sweep.md").read_text().splitlines()[-2:]
    assert untrained.startswith("| 0 ") and trained.startswith("| 16 ")
    for name in ("sweep.png", "hardness.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_long_runs_have_curves_by_the_names_of_their_cells(
    seeds, finished_run, tmp_path, monkeypatch
):
    """The sweep is pretended, its runs are one that is finished."""
    cells = []

    def run_sweep(sweep):
        cells.extend(grid.list_cells(sweep))
        finished = {"status": "finished", "run_dir": str(finished_run.path)}
        return {
            "cells": [
                {"name": cell.name, "values": cell.values} | finished
                for cell in cells
            ]
        }

    monkeypatch.setattr(run, "run_sweep", run_sweep)
    monkeypatch.setattr(evaluation, "accuracy_curve", lambda _: {1: 0.5})
    settings = config.ReproduceSettings(
        str(tmp_path), table="long", data_dir="images", seeds=seeds
    )
    sweeps.reproduce(settings)
    curves = json.loads((tmp_path / "long.json").read_text())
    assert len(curves) == len(cells) == 3 * len(seeds)
    assert [cell.training.seed for cell in cells[::3]] == [*seeds]
    if len(seeds) == 1:
        assert "objective=supcon,learning_rate=5.0" in curves
    assert (tmp_path / "long.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_that_there_is_not_is_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="be one of fig4a, .* with --scale=pa"):
        make_sweep("table2", "paper")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be the root of a checkout"):
        make_sweep("table1", "small")
