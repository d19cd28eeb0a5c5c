"""Requests to our SavedModel beside one of a plain Keras ResNet-50, on the CPU.

  python tools/bench_serving.py --data_dir=FOLDER_OF_PHOTOGRAPHS

Images per second and latencies, median and 99th percentile, of requests with
1, 8 and 32 images, from one client and from four at once: of JPEG files
(serving_default, which decodes, crops and resizes), of views of 224 pixels
(predict_images, the network alone), and of Keras' ResNet-50 without
preprocessing. Each SavedModel is loaded as TF Serving loads it; the network
between client and server is left out. Prints a table; writes
bench_serving.json into the run directory. The defaults take some fifteen
minutes on four cores.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchServingSettings) -> None:
    """Measures; only the processes of the implementations use a library."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_serving(chosen)
    machine = results["machine"]
    print(
        f"\n{machine['processor']}, {machine['threads']} threads, load before "
        f"the start {machine['load']:.1f}; {results['images']}\n"
    )
    print(benchmarks.serving_table(results))
    print(f"\nresults  {chosen.run_dir}/bench_serving.json")


if __name__ == "__main__":
    command_line.run(main, config.BenchServingSettings)
