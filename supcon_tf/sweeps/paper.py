"""The sweeps of the paper's tables and figures."""

from __future__ import annotations

import dataclasses
import pathlib

from matplotlib import figure

from supcon_tf import config, evaluation, exceptions
from supcon_tf.disk import files
from supcon_tf.settings import from_flagfile
from supcon_tf.sweeps import comparison, gains
from supcon_tf.sweeps import run as sweep_run
from supcon_tf.training import runs

# Settings of a cell that takes seconds.
_TOY_SETTINGS = {
    "dataset": "digits",
    "data_dir": None,
    "precision": "float32",  # bfloat16 is slow on an older processor
    "width": 0.05,
    "hidden_dims": (16,),
    "batch_size": 20,
    "images_per_label": 4,
    "epochs": 1,
    "warmup_epochs": 0.0,
    "evaluate_flagfile": None,  # of corruptions, which take minutes
}
_TOY_CLASSES = ("8", "9")  # that are unknown where the table has unknown ones
# The digits have fewer images of a class than CIFAR-10.
_TOY_AXES = {"images_per_label:epochs:warmup_epochs": "4:1:0,8:1:0,4:2:0"}


def reproduce(settings: config.ReproduceSettings) -> dict[str, object]:
    """Runs a table or a figure of the paper; see `run_sweep`.

    Some tables write more files of all finished cells: "hardness", "long" and
    "map" a figure, TABLE.png; "long", "map" and "objectives" numbers,
    TABLE.json; "map" and "objectives" these numbers as Markdown, TABLE.md.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> settings = config.ReproduceSettings(
      ...     "runs/fig4d", table="fig4d", scale="toy"
      ... )
      >>> try:
      ...     results = sweeps.reproduce(settings)
      ... except ValueError as error:  # in any other directory
      ...     print(str(error).partition(",")[0])
      the working directory must be the root of a checkout
    """
    results = sweep_run.run_sweep(table_of_paper(settings))
    finished_cells = [
        cell for cell in results["cells"] if cell["status"] == "finished"
    ]
    if finished_cells and settings.table in _OUTPUTS:
        path = pathlib.Path(settings.run_dir, settings.table)
        _OUTPUTS[settings.table](finished_cells, path)
    return results


def _write_gradients(
    cells: list[dict[str, object]], path: pathlib.Path
) -> None:
    """Draws the gradients of the runs of all cells."""
    _write_figure(path, evaluation.plot_gradients(_opened_runs(cells)))


def _write_curves(cells: list[dict[str, object]], path: pathlib.Path) -> None:
    """Measures and draws the accuracies over the epochs."""
    curves = {
        name: evaluation.accuracy_curve(run)
        for name, run in _opened_runs(cells).items()
    }
    files.write_json(path.with_suffix(".json"), curves)
    _write_figure(path, evaluation.plot_curves(curves))


def _write_gains(cells: list[dict[str, object]], path: pathlib.Path) -> None:
    """Lists and draws the gains over cross-entropy."""
    results = gains.list_results(cells)
    records = [dataclasses.asdict(result) for result in results]
    _write_numbers(path, records, gains.gains_table(results))
    _write_figure(path, gains.plot_gains(results))


def _write_comparison(
    cells: list[dict[str, object]], path: pathlib.Path
) -> None:
    """Lists the numbers of all losses."""
    results = comparison.list_results(cells)
    _write_numbers(path, results, comparison.comparison_table(results))


_OUTPUTS = {
    "hardness": _write_gradients,
    "long": _write_curves,
    "map": _write_gains,
    "objectives": _write_comparison,
}


def _write_figure(path: pathlib.Path, fig: figure.Figure) -> None:
    files.write_figure(path.with_suffix(".png"), fig, dpi=120)


def _write_numbers(
    path: pathlib.Path, records: list[dict[str, object]], text: str
) -> None:
    """Writes the records of a table, and its Markdown."""
    files.write_json(path.with_suffix(".json"), records)
    files.write_atomically(path.with_suffix(".md"), f"{text}\n")


def _opened_runs(cells: list[dict[str, object]]) -> dict[str, runs.Run]:
    """Returns the runs of cells, by name, without a seed that all share."""
    seeds = {cell["values"]["seed"] for cell in cells}
    prefix = f"seed={seeds.pop()}," if len(seeds) == 1 else ""
    return {
        cell["name"].removeprefix(prefix): runs.open_run(cell["run_dir"])
        for cell in cells
    }


def table_of_paper(settings: config.ReproduceSettings) -> config.SweepSettings:
    """The sweep of a table or a figure, by the presets of this directory.

    Example:
      >>> import pathlib
      >>> from supcon_tf import config, sweeps
      >>> flags = pathlib.Path("flags/tables/paper")  # of a checkout
      >>> flags.mkdir(parents=True, exist_ok=True)
      >>> _ = (flags / "table2.flags").write_text("--sweep=objective=supcon,ce")
      >>> settings = config.ReproduceSettings(
      ...     "runs/table2", table="table2", scale="paper", seeds=(0, 1)
      ... )
      >>> sweeps.table_of_paper(settings).sweep
      ('seed=0,1', 'objective=supcon,ce')

    Raises:
      ValueError: there are no presets here, or none at that scale.
    """
    is_toy = settings.scale == "toy"
    folder = pathlib.Path("flags/tables", "small" if is_toy else settings.scale)
    exceptions.require(
        folder.exists(),
        "the working directory must be the root of a checkout, with its flags",
        pathlib.Path.cwd(),
    )
    flagfile = folder / f"{settings.table}.flags"
    names = sorted(path.stem for path in folder.glob("*.flags"))
    exceptions.require(
        flagfile.exists(),
        f"--table must be one of {', '.join(names)} with "
        f"--scale={settings.scale}",
        settings.table,
    )
    flags = [f"--run_dir={settings.run_dir}", f"--parallel={settings.parallel}"]
    data_dir = "unused" if is_toy else settings.data_dir
    if data_dir is not None:
        flags.append(f"--data_dir={data_dir}")
    sweep = from_flagfile(config.SweepSettings, flagfile, *flags)
    seeds = "seed=" + ",".join(map(str, settings.seeds))
    sweep = dataclasses.replace(sweep, sweep=(seeds, *sweep.sweep))
    return _toy(sweep) if is_toy else sweep


def _toy(sweep: config.SweepSettings) -> config.SweepSettings:
    """Returns the sweep of a few digits in the place of images."""
    names = [axis.partition("=")[0] for axis in sweep.sweep]
    axes = (
        f"{name}={_TOY_AXES[name]}" if name in _TOY_AXES else axis
        for name, axis in zip(names, sweep.sweep, strict=True)
    )
    unknown_classes = _TOY_CLASSES if sweep.unknown_classes else ()
    return dataclasses.replace(
        sweep,
        sweep=tuple(axes),
        unknown_classes=unknown_classes,
        **_TOY_SETTINGS,
    )
