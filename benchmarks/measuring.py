"""The process of a measurement: its program, and what it measures with.

  python benchmarks/measuring.py loss.measure '{"rows": 512, ...}'

`harness.run` starts it; the last line that it prints is JSON. A library is
imported by the implementation that needs it, so that its process holds neither
threads nor memory of another. Peers are loaded from where the user has them.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import re
import resource
import statistics
import sys
import time
import traceback
import types
from collections.abc import Callable

import checkout  # noqa: F401

from supcon_tf import exceptions

Job = argparse.Namespace  # what is measured, see `harness.list_jobs`

_LIBRARIES = "tensorflow torch torchvision pytorch_metric_learning sklearn"


def main() -> None:
    """Runs a function of this folder on a job."""
    # Where memory runs out, the system ends this process before any other.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    module, function = sys.argv[1].split(".")
    try:
        module = importlib.import_module(f"benchmarks.{module}")
        result = getattr(module, function)(Job(**json.loads(sys.argv[2])))
        loaded = [name for name in _LIBRARIES.split() if name in sys.modules]
        result["libraries"] = {n: sys.modules[n].__version__ for n in loaded}
    except Exception as error:  # Whatever a peer raises is this job's result.
        traceback.print_exc()
        result = {"error": f"failed: {exceptions.one_line(error)}"}
    print(json.dumps(result))


def import_tensorflow(threads: int) -> types.ModuleType:
    """TensorFlow with this many threads; before its first operation."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    return tf


def import_torch(threads: int) -> types.ModuleType:
    """PyTorch with this many threads."""
    import torch

    torch.set_num_threads(threads)
    return torch


def load_file(path: str | pathlib.Path) -> types.ModuleType:
    """The module in a Python file that is not installed."""
    file = pathlib.Path(path).resolve()
    # For its siblings in a package; last, to hide nothing that is installed.
    sys.path.append(str(file.parent.parent))
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pin(threads: int) -> None:
    """Keeps this process and its children on so many cores, where it can."""
    if hasattr(os, "sched_setaffinity"):  # Linux
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[:threads])


def time_steps(
    step: Callable[[], object], least: int, seconds: float
) -> tuple[float, object]:
    """Median seconds of a step, which waits, and what the last one returned.

    So many steps and seconds at least are timed, after two that are not.
    """
    for _ in range(2):
        step()
    durations, started = [], time.perf_counter()
    while len(durations) < least or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        result = step()
        durations.append(time.perf_counter() - before)
    return statistics.median(durations), result


def keras_step(model: object, batch: object) -> Callable[[], float]:
    """The training step that `fit` calls, on one batch; it returns the loss."""
    import tensorflow as tf

    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    train = model.make_train_function()

    def step() -> float:
        # The loss that `fit` shows is a mean over the steps since this.
        model.reset_metrics()
        return float(train(batches)["loss"])

    return step


def measure_training(
    step: Callable[[], float], least: int, memory: float
) -> dict[str, float]:
    """Time and loss of a training step, and the peak beyond `memory`, MB."""
    seconds, loss = time_steps(step, least, 0.0)
    if not math.isfinite(loss):
        raise RuntimeError(f"the loss is {loss}")
    return {"seconds": seconds, "peak_mb": peak_mb() - memory, "loss": loss}


def reset_peak_mb() -> float:
    """Resets `peak_mb` where it can be, on Linux, and returns it."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    if tf := _with_gpu("tensorflow"):
        tf.config.experimental.reset_memory_stats("GPU:0")
    if torch := _with_gpu("torch"):
        torch.cuda.reset_peak_memory_stats()
    return peak_mb()


def peak_mb() -> float:
    """Peak memory of a GPU, or resident of this process, 10^6 bytes."""
    if tf := _with_gpu("tensorflow"):
        return 1e-6 * tf.config.experimental.get_memory_info("GPU:0")["peak"]
    if torch := _with_gpu("torch"):
        return 1e-6 * torch.cuda.max_memory_allocated()
    status = pathlib.Path("/proc/self/status")
    text = status.read_text() if status.exists() else ""
    if peak := re.search(r"VmHWM:\s+(\d+) kB", text):
        return 1024e-6 * int(peak[1])
    # Kilobytes, but on macOS bytes.
    unit = 1e-6 if sys.platform == "darwin" else 1024e-6
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def torch_device() -> str:
    """Where PyTorch computes: on the GPU that it sees, or the CPU."""
    return "cuda" if _with_gpu("torch") else "cpu"


def _with_gpu(name: str) -> types.ModuleType | None:
    """A library, if it is loaded and sees a GPU."""
    library = sys.modules.get(name)
    if library is None:
        return None
    if name == "torch":
        return library if library.cuda.is_available() else None
    return library if library.config.list_physical_devices("GPU") else None


if __name__ == "__main__":
    main()
