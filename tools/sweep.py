r"""Runs a grid of settings: both stages and the evaluation of every cell.

  python tools/sweep.py --flagfile=flags/supcon_digits_resnet18.flags \
    --linear_flagfile=flags/linear_digits.flags --run_dir=runs/sweep \
    --sweep=temperature=0.05,0.07,0.1,0.2,0.5 --sweep=objective=supcon,simclr

All flags of tools/pretrain.py set what does not vary; --sweep=linear.NAME=...
varies stage 2 on a shared stage 1, and values of seed are repetitions. A cell
that fails is recorded, and the others are run; the same command again skips
finished cells, goes on with interrupted ones and tries failed ones again.
Prints a table; writes sweep.md, sweep.json and the paper's Fig. 4, sweep.png
and sweep.svg, after every cell. With --parallel=K, K cells run at a time, each
on its share of the cores. Exit code 1 if a cell failed.
"""

from __future__ import annotations

import sys

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.SweepSettings) -> None:
    """Runs the cells; TensorFlow is imported once the settings are right."""
    from supcon_tf import sweeps

    results = sweeps.run_sweep(chosen)
    print(f"\n{sweeps.sweep_table(results)}")
    print(f"\nfigure       {chosen.run_dir}/sweep.png")
    failed = [c for c in results["cells"] if c["status"] == "failed"]
    if failed:
        sys.exit(
            f"error: {len(failed)} of {len(results['cells'])} cells failed; "
            "the same command, without --overwrite, tries them again"
        )


if __name__ == "__main__":
    command_line.run(main, config.SweepSettings)
