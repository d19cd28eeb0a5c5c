"""The sweeps of the paper's tables and figures."""

from __future__ import annotations

import dataclasses
import pathlib

from supcon_tf import config, evaluation, exceptions, files, settings
from supcon_tf.sweeps import run as sweep_run
from supcon_tf.training import runs

_TOY = {
    "dataset": "digits",
    "data_dir": None,
    "width": 0.05,
    "hidden_dims": (16,),
    "batch_size": 20,
    "images_per_label": 4,
    "epochs": 1,
    "warmup_epochs": 0.0,
}


def reproduce(own: config.ReproduceSettings) -> dict[str, object]:
    """Runs a table or a figure of the paper; see `run_sweep`.

    hardness and long write a figure of their own too, TABLE.png, of the runs of
    all cells, and long what it shows, long.json.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> own = config.ReproduceSettings(
      ...     "runs/fig4d", table="fig4d", scale="toy"
      ... )
      >>> try:
      ...     results = sweeps.reproduce(own)
      ... except ValueError as error:  # in any other directory
      ...     print(str(error).partition(",")[0])
      the working directory must be the root of a checkout
    """
    results = sweep_run.run_sweep(table_of_paper(own))
    done = [x for x in results["cells"] if x["status"] == "finished"]
    if done and own.table in ("hardness", "long"):
        prefix = f"seed={own.seeds[0]}," if len(own.seeds) == 1 else ""
        opened = {
            x["name"].removeprefix(prefix): runs.open_run(x["run_dir"])
            for x in done
        }
        path = pathlib.Path(own.run_dir, own.table)
        if own.table == "hardness":
            drawn = evaluation.plot_gradients(opened)
        else:
            curves = {x: evaluation.accuracy_curve(opened[x]) for x in opened}
            files.write_json(path.with_suffix(".json"), curves)
            drawn = evaluation.plot_curves(curves)
        files.write_figure(path.with_suffix(".png"), drawn, dpi=120)
    return results


def table_of_paper(own: config.ReproduceSettings) -> config.SweepSettings:
    """The sweep of a table or a figure, by the presets of this directory.

    Example:
      >>> import pathlib
      >>> from supcon_tf import config, sweeps
      >>> flags = pathlib.Path("flags/tables/paper")  # of a checkout
      >>> flags.mkdir(parents=True, exist_ok=True)
      >>> _ = (flags / "table2.flags").write_text("--sweep=objective=supcon,ce")
      >>> own = config.ReproduceSettings(
      ...     "runs/table2", table="table2", scale="paper", seeds=(0, 1)
      ... )
      >>> sweeps.table_of_paper(own).sweep
      ('seed=0,1', 'objective=supcon,ce')

    Raises:
      ValueError: there are no presets here, or none at that scale.
    """
    is_toy = own.scale == "toy"
    folder = pathlib.Path("flags/tables", "small" if is_toy else own.scale)
    exceptions.require(
        folder.exists(),
        "the working directory must be the root of a checkout, with its flags",
        pathlib.Path.cwd(),
    )
    flagfile = folder / f"{own.table}.flags"
    exceptions.require(
        flagfile.exists(),
        f"--table must be one of {_names(folder)} with --scale={own.scale}",
        own.table,
    )
    flags = [f"--run_dir={own.run_dir}", f"--parallel={own.parallel}"]
    data_dir = "unused" if is_toy else own.data_dir
    if data_dir is not None:
        flags.append(f"--data_dir={data_dir}")
    sweep = settings.from_flagfile(config.SweepSettings, flagfile, *flags)
    seeds = "seed=" + ",".join(map(str, own.seeds))
    toy = _TOY if is_toy else {}
    return dataclasses.replace(sweep, sweep=(seeds, *sweep.sweep), **toy)


def _names(folder: pathlib.Path) -> str:
    return ", ".join(sorted(path.stem for path in folder.glob("*.flags")))
