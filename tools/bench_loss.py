"""Time and peak memory of the loss beside its public peers, on the CPU.

  python tools/bench_loss.py --rows=512,2048,8192

Prints a table; writes bench_loss.json and bench_loss.png into the run
directory. pytorch-metric-learning takes part where it is installed, the two
reference implementations where their files are given:

  python tools/bench_loss.py --supcontrast_path=FILE --official_path=FILE
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchLossSettings) -> None:
    """Measures; only the processes of the implementations use TensorFlow."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_loss(chosen)
    machine = results["machine"]
    print(
        f"\n{machine['processor']}, {machine['threads']} threads, load before "
        f"the start {machine['load']:.1f}"
    )
    print(benchmarks.loss_table(results))
    print(f"\nfigure  {chosen.run_dir}/bench_loss.png")


if __name__ == "__main__":
    command_line.run(main, config.BenchLossSettings)
