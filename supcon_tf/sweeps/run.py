"""A whole sweep: this module runs, records and shows its cells."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import threading
from concurrent import futures

from supcon_tf import config, exceptions, run_files
from supcon_tf.disk import files, locks
from supcon_tf.robustness import corruptions
from supcon_tf.run_files import outputs
from supcon_tf.sweeps import figure, grid, processes, table
from supcon_tf.training import console, preemption


def run_sweep(sweep: config.GridSettings) -> dict[str, object]:
    """Runs the cells of a grid that are not finished, and shows all of them.

    A cell is a run: stage 1, stage 2 and the evaluation, or on texts a
    fine-tuning and the evaluation, by the commands of the package, each in a
    process of its own. A failure is recorded, and the other cells are run. The
    same call again skips finished cells, goes on with interrupted ones, and
    tries failed ones again. Cells that differ in stage 2 alone share stage 1;
    if stage 1 failed, the others are not tried.

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
      seed=0 failed: --data_dir must be a folder, got not_there

    Returns:
      What sweep.json holds, see `grid.describe`. It is written into
      run_dir after every cell, with the table, sweep.md, and the figure,
      sweep.png and sweep.svg.

    Raises:
      ValueError: a setting of a cell breaks a rule; run_dir holds something
        else, cells of other settings, or a sweep that runs; or no result has
        `metric`.
      ImportError: the evaluation needs an extra that is not installed.
      Preempted: SIGTERM, Ctrl-C or another signal of `preemption.Notice`
        came, and the cells that were running are saved.
    """
    cells = grid.list_cells(sweep)
    if cells[0].evaluation.corruptions == "generated":
        corruptions.check_library()  # hours before it is needed
    with locks.held(sweep.run_dir, "sweep"):
        _prepare(sweep, cells)
        _Sweep(sweep, cells).run()
    results = grid.describe(sweep, cells)
    names = dict.fromkeys(
        name for cell in results["cells"] for name in cell["metrics"]
    )
    exceptions.require(
        not names or sweep.metric in names,
        f"--metric must be one of {', '.join(names)}",
        f"{sweep.metric}; the same command with another one shows it",
    )
    return results


def _prepare(sweep: config.GridSettings, cells: list[grid.Cell]) -> None:
    """Checks run_dir and the cells, then writes what the sweep begins with."""
    root = pathlib.Path(sweep.run_dir)
    # Without hidden ones: locks, and the left-overs of a kill at the start.
    names = {path.name for path in files.children(root)}
    exceptions.require(
        not names or "sweep.json" in names,
        "--run_dir must be empty or hold a sweep",
        f"{root}, which holds other files",
    )
    exceptions.require(
        "runs" not in names,
        "--run_dir must hold a sweep of this version",
        f"{root} of an earlier one; choose another directory, or run "
        "`mv cells logs && mv runs cells` there, and go on",
    )
    if sweep.overwrite:
        for path in files.children(root / "cells"):
            outputs.check(run_files.RunDirectory(path))
        for name in run_files.SWEEP_FOLDERS:
            shutil.rmtree(root / name, ignore_errors=True)
    for cell in cells:
        cell.check_same()
    files.write_json(root / "sweep.json", grid.describe(sweep, cells))
    for cell in cells:
        cell.record()


@dataclasses.dataclass(frozen=True)
class _Sweep:
    """A sweep whose directory is open, and its cells."""

    settings: config.GridSettings
    cells: list[grid.Cell]
    writing: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def run(self) -> None:
        """Runs the cells that are not finished; raises Preempted."""
        cells_by_run = {}
        for cell in self.cells:
            if cell.state().status != "finished":
                cells_by_run.setdefault(cell.run_dir, []).append(cell)
        count = len(self.cells)
        num_finished = count - sum(map(len, cells_by_run.values()))
        print(
            f"sweep        {count} cells, {num_finished} finished", flush=True
        )
        trainings = [cell.training for cell in self.cells]
        for precision in sorted(
            {part.precision for part in trainings if part.strategy != "tpu"}
        ):
            console.print_slow_precision(precision)
        self._write()
        core_sets = processes.shares(
            min(self.settings.parallel, len(cells_by_run))
        )

        def run_on_core_set(cells: list[grid.Cell]) -> None:
            cores = core_sets.pop()
            try:
                self._run_cells(cells, notice, cores)
            except Exception:
                notice.came = True  # the other cells are saved
                raise
            finally:
                core_sets.append(cores)

        with (
            preemption.Notice() as notice,
            futures.ThreadPoolExecutor(max(len(core_sets), 1)) as pool,
        ):
            # Raises what one of them has raised.
            list(pool.map(run_on_core_set, cells_by_run.values()))
        if notice.came:
            print("stopped      the same command, without --overwrite, goes on")
            raise preemption.Preempted

    def _run_cells(
        self,
        cells: list[grid.Cell],
        notice: preemption.Notice,
        cores: set[int] | None,
    ) -> None:
        """Runs the cells of one run, one after another."""
        failed_cell, has_company = None, self.settings.parallel > 1
        for cell in cells:
            if notice.came:
                break
            if failed_cell:
                error = f"stage 1 is that of {failed_cell.name}, which failed"
                seconds = cell.state().seconds
                state = grid.State("failed", seconds, grid.STAGE_1, error)
            else:
                print(f"cell         {cell.name}, log {cell.log}", flush=True)
                state = processes.run_cell(cell, notice, has_company, cores)
                failed_cell = cell if state.part == grid.STAGE_1 else None
            cell.write_state(state)
            self._print_outcome(cell, state)
            self._write()

    def _print_outcome(self, cell: grid.Cell, state: grid.State) -> None:
        """Prints the outcome of a cell: its metric and time, or its error."""
        metric, outcome = self.settings.metric, state.error or "not finished"
        if state.status == "finished":
            number = table.number_text(cell.metrics().get(metric))
            outcome = f"{metric} {number}, {table.duration(state.seconds)}"
        print(f"{state.status:<13}{cell.name}: {outcome}", flush=True)

    def _write(self) -> None:
        """Writes sweep.json, its table and its figure."""
        root = pathlib.Path(self.settings.run_dir)
        with self.writing:
            results = grid.describe(self.settings, self.cells)
            files.write_json(root / "sweep.json", results)
            text = table.sweep_table(results) + "\n"
            files.write_atomically(root / "sweep.md", text)
            fig = figure.plot_sweep(results)
            for kind in ("png", "svg"):
                files.write_figure(root / f"sweep.{kind}", fig, dpi=120)
