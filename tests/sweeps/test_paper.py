"""The sweeps of the paper's tables: each is sound, and one is run."""

import pathlib

import pytest

from supcon_tf import config, sweeps
from supcon_tf.sweeps import grid

ROOT = pathlib.Path(__file__).parents[2]
TABLES = [
    (path.parent.name, path.stem)
    for path in sorted((ROOT / "flags/tables").glob("*/*.flags"))
    if path.stem not in ("linear_views", "corrupted")
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


def test_a_table_runs_at_toy_size(tmp_path):
    """Real processes."""
    results = sweeps.run_sweep(sweep_of("table1", "toy", tmp_path))
    assert [x["status"] for x in results["cells"]] == ["finished"] * 3
    out, inside, _ = (tmp_path / "sweep.md").read_text().splitlines()[-3:]
    assert out.startswith("| supcon:out:") and " 78.7 |" in out
    assert inside.startswith("| supcon:in:") and " 67.4 |" in inside
    assert (tmp_path / "sweep.png").exists()


def test_a_table_that_there_is_not_is_named(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="be one of fig4a, .* with --scale=pa"):
        sweep_of("table2", "paper")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be the root of a checkout"):
        sweep_of("table1", "small")
