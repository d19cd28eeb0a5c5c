"""The sweeps of the paper's tables: each is sound, and one is run."""

import json
import pathlib

import pytest

from supcon_tf import config, evaluation, sweeps
from supcon_tf.sweeps import grid, run

ROOT = pathlib.Path(__file__).parents[2]
TABLES = [
    (path.parent.name, path.stem)
    for path in sorted((ROOT / "flags/tables").glob("*/*.flags"))
    if path.stem not in ("linear_views", "corrupted", "shots")
]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def sweep_of(table, scale, run_dir="unused"):
    data_dir = "images" if scale == "small" else None
    return sweeps.table_of_paper(
        config.ReproduceSettings(
            str(run_dir), table=table, scale=scale, data_dir=data_dir
        )
    )


@pytest.mark.parametrize(("scale", "table"), TABLES)
def test_every_cell_of_a_table_is_sound(scale, table):
    sweep = sweep_of(table, scale)
    cells = grid.list_cells(sweep)
    for cell in cells:
        assert cell.training.dataset == (
            "folder" if scale == "small" else "tfds:imagenet2012"
        )


@pytest.mark.slow
def test_a_table_runs_at_toy_size(tmp_path):
    """Real processes, to the figure of the table itself."""
    own = config.ReproduceSettings(str(tmp_path), table="hardness", scale="toy")
    results = sweeps.reproduce(own)
    assert [x["status"] for x in results["cells"]] == ["finished"] * 2
    untrained, trained = (tmp_path / "sweep.md").read_text().splitlines()[-2:]
    assert untrained.startswith("| 0 ") and trained.startswith("| 16 ")
    for name in ("sweep.png", "hardness.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_long_runs_have_curves_by_the_names_of_their_cells(
    seeds, finished_run, tmp_path, monkeypatch
):
    """The sweep is pretended, its runs are one that is finished."""
    asked = []

    def run_sweep(sweep):
        asked.extend(grid.list_cells(sweep))
        finished = {"status": "finished", "run_dir": str(finished_run.path)}
        return {"cells": [{"name": x.name} | finished for x in asked]}

    monkeypatch.setattr(run, "run_sweep", run_sweep)
    monkeypatch.setattr(evaluation, "accuracy_curve", lambda _: {1: 0.5})
    own = config.ReproduceSettings(
        str(tmp_path), table="long", data_dir="images", seeds=seeds
    )
    sweeps.reproduce(own)
    curves = json.loads((tmp_path / "long.json").read_text())
    assert len(curves) == len(asked) == 3 * len(seeds)
    assert [x.training.seed for x in asked[::3]] == [*seeds]
    if len(seeds) == 1:
        assert "objective=supcon,learning_rate=5.0" in curves
    assert (tmp_path / "long.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_that_there_is_not_is_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="be one of fig4a, .* with --scale=pa"):
        sweep_of("table2", "paper")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be the root of a checkout"):
        sweep_of("table1", "small")
