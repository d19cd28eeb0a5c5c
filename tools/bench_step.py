"""The training step beside the same network in PyTorch, on the CPU.

  python tools/bench_step.py --architectures=resnet18 --supcontrast_path=FILE

Views per second, peak memory and the ratios between ours, in float32 and
bfloat16, and PyTorch in its memory layouts, which takes part where it is
installed. Prints a table; writes bench_step.json and bench_step.png into the
run directory. With PyTorch, the defaults take some twenty minutes. Memory
against the batch, whole and in chunks of 64 images (--gradient_cache_chunks);
what does not fit into --max_memory_gb is left out:

  python tools/bench_step.py --batch_sizes=64,256,1024 --chunk_size=64
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.BenchStepSettings) -> None:
    """Measures; only the processes of the implementations use a library."""
    from supcon_tf import benchmarks

    results = benchmarks.bench_step(chosen)
    machine = results["machine"]
    print(
        f"\n{machine['processor']}, {machine['threads']} threads, load before "
        f"the start {machine['load']:.1f}"
    )
    print(benchmarks.step_table(results))
    print(f"\nfigure  {chosen.run_dir}/bench_step.png")


if __name__ == "__main__":
    command_line.run(main, config.BenchStepSettings)
