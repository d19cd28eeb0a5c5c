"""What our training learns beside SupContrast's own code, on the CPU.

  python tools/bench_learning.py --data_dir=DIR --supcontrast_path=FOLDER

k-NN accuracy over steps of ours, of SupContrast's network, loss and optimizer
from the same weights on the same views, and of SupContrast as published, which
take part where PyTorch is installed; and how far the gradients are from
float64. Prints a table; writes bench_learning.json and bench_learning.png into
the run directory after every training, and goes on from there. With PyTorch,
the defaults take about two hours; alone, on the digits, a few minutes:

  python tools/bench_learning.py --seeds=1 --steps=200 --knn_every=50
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchLearningSettings) -> None:
    """Measures; only the processes of the implementations use a library."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_learning(chosen)
    machine = results["machine"]
    print(f"\n{machine['processor']}, {machine['threads']} threads")
    print(benchmarks.learning_table(results))
    print(f"\nfigure  {chosen.run_dir}/bench_learning.png")


if __name__ == "__main__":
    command_line.run(main, config.BenchLearningSettings)
