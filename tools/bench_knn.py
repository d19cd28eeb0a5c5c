"""The search for nearest neighbours beside scikit-learn's brute force.

  python tools/bench_knn.py --threads=2

Seconds and peak memory of one exact search among representations of unit
length: 10,000 queries, a bank of 50,000, 512 dimensions, the 200 nearest.
Ours compares by cosine; scikit-learn's is measured with both metrics that give
the same neighbours, its euclidean one being the fast and small one. Prints a
table; writes bench_knn.json into the run directory. The defaults take about
two minutes on four cores.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchKnnSettings) -> None:
    """Measures; only the processes of the implementations use a library."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_knn(chosen)
    machine = results["machine"]
    print(
        f"\n{machine['processor']}, {machine['threads']} threads, load before "
        f"the start {machine['load']:.1f}"
    )
    print(benchmarks.knn_table(results))
    print(f"\nresults  {chosen.run_dir}/bench_knn.json")


if __name__ == "__main__":
    command_line.run(main, config.BenchKnnSettings)
