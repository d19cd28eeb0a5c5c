"""The training step of each implementation that `bench_step` can measure.

All are given the same pixels and labels, from memory, and train the same
network: ResNet with the CIFAR stem, projection head 2048 -> 128, SGD with
momentum. Ours starts from bytes, as `fit` does; PyTorch from normalised
floats, which its DataLoader makes in other processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from supcon_tf.benchmarks import libraries

# Trains one step and returns its loss.
Step = Callable[[], float]

LEARNING_RATE = 0.05
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


@dataclasses.dataclass(frozen=True)
class Work:
    """What every implementation is given.

    Attributes:
      architecture: "resnet18", "resnet34" or "resnet50".
      batch_size: images of a step.
      views: views of each image.
      chunks: parts in which a batch passes our encoder.
      image_size: side of the views, pixels.
      classes: number of classes the labels are drawn from.
      temperature: tau.
      path: Python file with PyTorch's loss; None for a plain one.
      seed: of pixels, labels and weights.
      threads: positive int, of either library.
    """

    architecture: str
    batch_size: int
    views: int
    chunks: int
    image_size: int
    classes: int
    temperature: float
    path: str | None
    seed: int
    threads: int


def make_batch(work: Work) -> tuple[np.ndarray, np.ndarray]:
    """Noise, the same for the same work.

    Returns:
      [batch, views, size, size, 3] uint8 views and [batch] int32 labels.
    """
    generator = np.random.default_rng(work.seed)
    shape = (work.batch_size, work.views, work.image_size, work.image_size, 3)
    views = generator.integers(0, 256, shape, np.uint8)
    labels = generator.integers(0, work.classes, work.batch_size, np.int32)
    return views, labels


def import_library(name: str, threads: int) -> None:
    """Imports what the implementation is made of, so that it takes no memory.

    Args:
      name: one of `config.STEP_IMPLEMENTATIONS`.
      threads: positive int.
    """
    if name.startswith("torch"):
        libraries.import_torch(threads)
    else:
        libraries.import_tensorflow(threads)
        from supcon_tf import losses, models, training  # noqa: F401


def make_step(name: str, work: Work) -> tuple[Step, int]:
    """A function that trains one step, and the network's trained parameters."""
    return {
        "ours": _ours,
        "ours_bfloat16": _ours_bfloat16,
        "torch_nchw": _torch,
        "torch_channels_last": _torch_channels_last,
        "torch_channels_last_bf16": _torch_channels_last_bf16,
    }[name](work)


def _ours(work: Work) -> tuple[Step, int]:
    """The function that `fit` calls, compiled as by tools/pretrain.py."""
    import tensorflow as tf

    from supcon_tf import losses, models, training

    views, labels = make_batch(work)
    tf.keras.utils.set_random_seed(work.seed)
    model = models.SupConModel(
        models.Encoder(work.architecture, "cifar"),
        models.ProjectionHead(),
        gradient_cache_chunks=work.chunks,
    )
    model.build((None, *views.shape[1:]))
    model.compile(
        training.SGD(LEARNING_RATE, MOMENTUM, l2=WEIGHT_DECAY),
        losses.SupConLoss(work.temperature),
        losses.diagnostics(),
    )
    batches = iter(tf.data.Dataset.from_tensors((views, labels)).repeat())
    train = model.make_train_function()

    def step():
        # The loss that `fit` shows is a mean over the steps since this.
        model.reset_metrics()
        return float(train(batches)["loss"])

    return step, sum(w.shape.num_elements() for w in model.trainable_variables)


def _ours_bfloat16(work: Work) -> tuple[Step, int]:
    """The same under the precision policy mixed_bfloat16."""
    import tensorflow as tf

    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    return _ours(work)


def _torch(work: Work, **options: bool) -> tuple[Step, int]:
    """The same network in PyTorch, as it is published: eager, NCHW."""
    from supcon_tf.benchmarks import step_torch

    views, labels = make_batch(work)
    return step_torch.make_step(work, views, labels, **options)


def _torch_channels_last(work: Work) -> tuple[Step, int]:
    """The same with tensors that are NHWC in memory."""
    return _torch(work, channels_last=True)


def _torch_channels_last_bf16(work: Work) -> tuple[Step, int]:
    """The same under autocast to bfloat16."""
    return _torch(work, channels_last=True, bfloat16=True)
