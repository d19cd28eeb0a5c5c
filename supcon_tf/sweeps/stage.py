"""The whole sweep: every cell in a process of its own, resumed and recorded."""

from __future__ import annotations

import io
import json
import pathlib
import shutil
import time
from collections.abc import Callable

from matplotlib import figure as mpl_figure

from supcon_tf import config, exceptions, files
from supcon_tf.sweeps import figure, grid, processes, records, table
from supcon_tf.training import preemption

_SECONDS_PER_LOOK = 0.1
_PRETRAINING = "pretraining"
_Note = Callable[[grid.Cell, records.State], None]  # of a cell that has ended


def run_sweep(chosen: config.SweepSettings) -> dict[str, object]:
    """Runs the cells of a grid that are not finished, and shows all of them.

    A cell is stage 1, stage 2 and the evaluation, in a process of its own:
    when it fails, that is recorded, and the others are run. The same call
    again skips what is finished, goes on with what was interrupted, and tries
    again what failed. Cells that differ in stage 2 alone share stage 1, and
    if that failed, are not tried.

    Args:
      chosen: the settings; cells may be added to those of an earlier call,
        `metric` may change, and settings of the evaluation, which is then
        done again.

    Returns:
      What sweep.json holds, see `records.describe`. It is written into
      run_dir after every cell, with the table, sweep.md, and the figure,
      sweep.png and sweep.svg.

    Raises:
      ValueError: a setting of a cell breaks a rule; run_dir holds something
        else, or cells of other settings; or no result has `metric`.
      Preempted: SIGTERM or Ctrl-C came, and the cells that were
        running are saved.
    """
    cells = grid.list_cells(chosen)
    _open(chosen, cells)
    todo = [cell for cell in cells if not _is_finished(chosen, cell)]
    print(
        f"sweep        {len(cells)} cells, {len(cells) - len(todo)} finished",
        flush=True,
    )
    _write(chosen, cells)

    def note(cell: grid.Cell, state: records.State) -> None:
        _print_end(chosen, cell, state)
        _write(chosen, cells)

    _run(chosen, todo, note)
    results = records.describe(chosen, cells)
    _check_metric(results)
    return results


def _open(chosen: config.SweepSettings, cells: list[grid.Cell]) -> None:
    """Makes run_dir ready, checked before anything is written."""
    root = pathlib.Path(chosen.run_dir)
    is_sweep = (root / "sweep.json").exists()
    if root.exists() and any(root.iterdir()) and not is_sweep:
        raise exceptions.InvalidValue(
            f"--run_dir must be empty or hold a sweep, but {root} holds other "
            "files"
        )
    if is_sweep and chosen.overwrite:
        for name in ("cells", "runs"):
            shutil.rmtree(root / name, ignore_errors=True)
    directories = [records.cell_directory(chosen, cell) for cell in cells]
    for cell, directory in zip(cells, directories, strict=True):
        directory.check_same(cell)
    files.check_writable("run_dir", root)
    root.mkdir(parents=True, exist_ok=True)
    _write_record(chosen, records.describe(chosen, cells))
    for cell, directory in zip(cells, directories, strict=True):
        directory.write_settings(cell)


def _run(
    chosen: config.SweepSettings, todo: list[grid.Cell], note: _Note
) -> None:
    """Runs cells, --parallel at a time, and notes each when it has ended."""
    waiting, running = list(todo), []
    with preemption.Notice() as notice:
        try:
            while waiting or running:
                for cell in _startable(waiting, running, chosen.parallel):
                    waiting.remove(cell)
                    running.append(_start(chosen, cell))
                for process in [p for p in running if p.has_ended()]:
                    running.remove(process)
                    state = process.note_end(interrupted=notice.came)
                    note(process.cell, state)
                    _give_up(chosen, process.cell, state, waiting, note)
                if notice.came:
                    raise preemption.Preempted
                time.sleep(_SECONDS_PER_LOOK)
        finally:
            _end(running, note)


def _startable(
    waiting: list[grid.Cell],
    running: list[processes.CellProcess],
    parallel: int,
) -> list[grid.Cell]:
    """The next cells, at most one per run directory at a time."""
    taken = {process.cell.pretraining.run_dir for process in running}
    found = []
    for cell in waiting:
        if len(running) + len(found) == parallel:
            break
        if cell.pretraining.run_dir not in taken:
            taken.add(cell.pretraining.run_dir)
            found.append(cell)
    return found


def _start(
    chosen: config.SweepSettings, cell: grid.Cell
) -> processes.CellProcess:
    """Starts the process of a cell, and says so."""
    directory = records.cell_directory(chosen, cell)
    print(f"cell         {cell.name}, log {directory.log}", flush=True)
    return processes.CellProcess(cell, directory, chosen.parallel > 1)


def _give_up(
    chosen: config.SweepSettings,
    failed: grid.Cell,
    state: records.State,
    waiting: list[grid.Cell],
    note: _Note,
) -> None:
    """Fails the cells that wait for a stage 1 that has just failed."""
    if state.status != "failed" or state.part != _PRETRAINING:
        return
    for cell in list(waiting):
        if cell.pretraining.run_dir == failed.pretraining.run_dir:
            waiting.remove(cell)
            directory = records.cell_directory(chosen, cell)
            own = records.State(
                "failed",
                directory.state().seconds,
                state.part,
                f"stage 1 is that of {failed.name}, which failed",
            )
            directory.write_state(own)
            note(cell, own)


def _end(running: list[processes.CellProcess], note: _Note) -> None:
    """Ends what still runs, saved; a second Ctrl-C does not wait."""
    if not running:
        return
    print("stopping     running cells are saved", flush=True)
    try:
        for process in running:
            process.ask_to_end()
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()
    for process in running:
        note(process.cell, process.note_end(interrupted=True))
    print("stopped      the same command, without --overwrite, goes on")


def _is_finished(chosen: config.SweepSettings, cell: grid.Cell) -> bool:
    """Whether a cell has its result."""
    state = records.cell_directory(chosen, cell).state()
    return state.status == "finished"


def _print_end(
    chosen: config.SweepSettings, cell: grid.Cell, state: records.State
) -> None:
    """A line of what came out of a cell."""
    told = state.error or "not finished"
    if state.status == "finished":
        metrics = records.cell_directory(chosen, cell).metrics()
        told = (
            f"{chosen.metric} {table.number_text(metrics.get(chosen.metric))}"
            f", {table.duration(state.seconds)}"
        )
    print(f"{state.status:<13}{cell.name}: {told}", flush=True)


def _write(chosen: config.SweepSettings, cells: list[grid.Cell]) -> None:
    """Writes sweep.json, the table and the figure of what there is."""
    root = pathlib.Path(chosen.run_dir)
    results = records.describe(chosen, cells)
    drawn = figure.plot_sweep(results)
    _write_record(chosen, results)
    for name, content in {
        "sweep.md": table.sweep_table(results) + "\n",
        "sweep.png": _image(drawn, "png"),
        "sweep.svg": _image(drawn, "svg"),
    }.items():
        files.write_atomically(root / name, content)


def _write_record(
    chosen: config.SweepSettings, results: dict[str, object]
) -> None:
    """Writes sweep.json, by which a directory is known as a sweep's."""
    text = json.dumps(results, indent=1) + "\n"
    path = pathlib.Path(chosen.run_dir) / "sweep.json"
    files.write_atomically(path, text)


def _image(drawn: mpl_figure.Figure, kind: str) -> bytes:
    """A figure as the content of a file."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format=kind, dpi=120)
    return buffer.getvalue()


def _check_metric(results: dict[str, object]) -> None:
    """Raises ValueError where results are there, but not the metric."""
    found = [x["metrics"] for x in results["cells"] if x["metrics"]]
    metric = results["metric"]
    if found and not any(metric in metrics for metrics in found):
        there = dict.fromkeys(name for metrics in found for name in metrics)
        raise exceptions.InvalidValue(
            f"--metric must be one of {', '.join(there)}, got {metric}; the "
            "same command with another one shows it"
        )
