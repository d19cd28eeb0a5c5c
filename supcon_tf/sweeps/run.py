"""The whole sweep: every cell in a process of its own, resumed and recorded."""

from __future__ import annotations

import pathlib
import shutil
import time
from collections.abc import Callable

from supcon_tf import config, exceptions, files, run_files
from supcon_tf.evaluation import corruptions
from supcon_tf.sweeps import figure, grid, processes, records, table
from supcon_tf.training import preemption

_SECONDS_PER_LOOK = 0.1
_Note = Callable[[grid.Cell, records.State], None]  # of a cell that has ended


def run_sweep(sweep: config.GridSettings) -> dict[str, object]:
    """Runs the cells of a grid that are not finished, and shows all of them.

    A cell is stage 1, stage 2 and the evaluation, or on texts a fine-tuning and
    the evaluation, in a process of its own: a failure is recorded, and the
    other cells are run. The same call again skips finished cells, goes on with
    interrupted ones, and tries failed ones again. Cells that differ in stage 2
    alone share stage 1; if stage 1 failed, the others are not tried.

    Args:
      sweep: the settings; cells may be added to those of an earlier call,
        `metric` may change, and settings of the evaluation, which is then
        done again.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> sweep = config.SweepSettings(
      ...     "runs/sweep", dataset="folder", data_dir="not_there",
      ...     sweep=("seed=0",),
      ... )
      >>> (cell,) = sweeps.run_sweep(sweep)["cells"]
      >>> print(f"{cell['name']} {cell['status']}: {cell['error']}")
      seed=0 failed: InvalidValue: `data_dir` must be a folder, got not_there

    Returns:
      What sweep.json holds, see `grid.describe`. It is written into
      run_dir after every cell, with the table, sweep.md, and the figure,
      sweep.png and sweep.svg.

    Raises:
      ValueError: a setting of a cell breaks a rule; run_dir holds something
        else, or cells of other settings; or no result has `metric`.
      ImportError: the evaluation needs an extra that is not installed.
      Preempted: SIGTERM, Ctrl-C or another signal of `preemption.Notice`
        came, and the cells that were running are saved.
    """
    cells = grid.list_cells(sweep)
    if cells[0].evaluation.corruptions == "generated":
        corruptions.check_library()  # hours before it is needed
    _open(sweep, cells)
    unfinished = [cell for cell in cells if cell.state().status != "finished"]
    finished = len(cells) - len(unfinished)
    print(f"sweep        {len(cells)} cells, {finished} finished", flush=True)
    _write(sweep, cells)

    def note(cell: grid.Cell, state: records.State) -> None:
        cell.directory.write_state(state)
        outcome = state.error or "not finished"
        if state.status == "finished":
            number = cell.metrics().get(sweep.metric)
            outcome = (
                f"{sweep.metric} {table.number_text(number)}, "
                f"{table.duration(state.seconds)}"
            )
        print(f"{state.status:<13}{cell.name}: {outcome}", flush=True)
        _write(sweep, cells)

    _run(sweep, unfinished, note)
    results = grid.describe(sweep, cells)
    names = dict.fromkeys(
        name for cell in results["cells"] for name in cell["metrics"]
    )
    if names and sweep.metric not in names:
        raise exceptions.InvalidValue(
            f"--metric must be one of {', '.join(names)}, got {sweep.metric}; "
            "the same command with another one shows it"
        )
    return results


def _open(sweep: config.GridSettings, cells: list[grid.Cell]) -> None:
    """Makes run_dir ready, checked before anything is written."""
    root = pathlib.Path(sweep.run_dir)
    is_sweep = (root / "sweep.json").exists()
    if root.exists() and any(root.iterdir()) and not is_sweep:
        raise exceptions.InvalidValue(
            f"--run_dir must be empty or hold a sweep, but {root} holds other "
            "files"
        )
    if is_sweep and sweep.overwrite:
        for name in run_files.SWEEP_FOLDERS:
            shutil.rmtree(root / name, ignore_errors=True)
    for cell in cells:
        cell.directory.check_same(*cell.trainings)
    files.check_writable("run_dir", root)
    root.mkdir(parents=True, exist_ok=True)
    _write_record(sweep, cells)  # which marks the directory of a sweep
    for cell in cells:
        cell.directory.write_settings(*cell.trainings, cell.evaluation)


def _run(
    sweep: config.GridSettings, cells: list[grid.Cell], note: _Note
) -> None:
    """Runs cells, --parallel at a time, and notes each when it has ended.

    Of the cells that share a run directory one runs at a time.
    """
    waiting, running = list(cells), []
    run_dirs = {cell.run_dir for cell in cells}
    free_cores = processes.shares(min(sweep.parallel, len(run_dirs)))
    with preemption.Notice() as notice:
        try:
            while waiting or running:
                for cell in list(waiting):
                    busy_dirs = {process.cell.run_dir for process in running}
                    if free_cores and cell.run_dir not in busy_dirs:
                        waiting.remove(cell)
                        cores = free_cores.pop(0)
                        running.append(_start(cell, sweep, cores))
                ended = [
                    process for process in running if process.poll() is not None
                ]
                for process in ended:
                    running.remove(process)
                    free_cores.append(process.cores)
                    state = process.end_state(interrupted=notice.came)
                    note(process.cell, state)
                    failed = state.status == "failed"
                    if failed and state.part == records.STAGE_1:
                        _give_up(process.cell, waiting, note)
                if notice.came:
                    raise preemption.Preempted
                time.sleep(_SECONDS_PER_LOOK)
        finally:
            _end(running, note)


def _start(
    cell: grid.Cell, sweep: config.GridSettings, cores: set[int] | None
) -> processes.CellProcess:
    print(f"cell         {cell.name}, log {cell.directory.log}", flush=True)
    return processes.CellProcess(cell, sweep.parallel > 1, cores)


def _give_up(failed: grid.Cell, waiting: list[grid.Cell], note: _Note) -> None:
    """Fails the cells that wait for a stage 1 that has just failed."""
    for cell in [cell for cell in waiting if cell.run_dir == failed.run_dir]:
        waiting.remove(cell)
        seconds = cell.directory.state().seconds
        error = f"stage 1 is that of {failed.name}, which failed"
        note(cell, records.State("failed", seconds, records.STAGE_1, error))


def _end(running: list[processes.CellProcess], note: _Note) -> None:
    """Ends running processes, saved; a second Ctrl-C does not wait."""
    if not running:
        return
    print("stopping     running cells are saved", flush=True)
    try:
        for process in running:
            process.terminate()
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()
            process.wait()
    for process in running:
        note(process.cell, process.end_state(interrupted=True))
    print("stopped      the same command, without --overwrite, goes on")


def _write(sweep: config.GridSettings, cells: list[grid.Cell]) -> None:
    """Writes sweep.json, and its table and figure."""
    root, results = pathlib.Path(sweep.run_dir), _write_record(sweep, cells)
    files.write_atomically(root / "sweep.md", table.sweep_table(results) + "\n")
    fig = figure.plot_sweep(results)
    for kind in ("png", "svg"):
        files.write_figure(root / f"sweep.{kind}", fig, dpi=120)


def _write_record(
    sweep: config.GridSettings, cells: list[grid.Cell]
) -> dict[str, object]:
    """Writes sweep.json, and returns what it holds."""
    results = grid.describe(sweep, cells)
    files.write_json(pathlib.Path(sweep.run_dir) / "sweep.json", results)
    return results
