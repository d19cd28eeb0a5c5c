"""Images per second of the input pipeline beside public peers, on the CPU.

  python tools/bench_input.py --data_dir=FOLDER_OF_JPEG_FILES

For every size and policy: the policy alone, on images in memory, and the whole
pipeline from JPEG files to batches of views; with --views, also two views from
one decode beside two pipelines. Prints a table; writes bench_input.json and
bench_input.png into the run directory. The Model Garden's augmentation
(tf-models-official) and torchvision on Pillow images take part where they are
installed. With both, the defaults take some twenty minutes. Without --data_dir
the images are scikit-learn's two photographs:

  python tools/bench_input.py --sizes=32 --policies=randaugment --views
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchInputSettings) -> None:
    """Measures; only the processes of the implementations use TensorFlow."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_input(chosen)
    machine = results["machine"]
    print(
        f"\n{machine['processor']}, {machine['threads']} threads, load before "
        f"the start {machine['load']:.1f}; {results['images']}"
    )
    print(benchmarks.input_table(results))
    print(f"\nfigure  {chosen.run_dir}/bench_input.png")


if __name__ == "__main__":
    command_line.run(main, config.BenchInputSettings)
