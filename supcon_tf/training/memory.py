"""Whether a training step fits in memory, before the first one is taken."""

from __future__ import annotations

import math
import os
import pathlib
import subprocess

import tensorflow as tf

from supcon_tf import config, models

# Of one view per pixel, at width 1: above that of every encoder (resnet200).
# What fits by this needs no tracing.
_MOST_PER_PIXEL = 130_000
_VIEWS = 13  # of the traced pass: the first dimension of no weight
_CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def warning(
    settings: config.PretrainSettings, encoder: models.Encoder
) -> str | None:
    """What to say of a step that will not fit in memory; None where it fits.

    The estimate is that of the activations, which in a large step are nearly
    all: 75 to 90 % of what a process grew by with ResNets and VGGs on a CPU.
    """
    available = available_bytes()
    images = settings.batch_size // settings.gradient_cache_chunks
    if tf.config.list_logical_devices("GPU"):  # each has its own memory
        images //= tf.distribute.get_strategy().num_replicas_in_sync
    views = images * settings.num_views
    most = views * settings.image_size**2 * _MOST_PER_PIXEL * settings.width
    if available is None or most < available:
        return None
    needed = views * activation_bytes(
        encoder, settings.image_size, settings.channels
    )
    if needed < 0.8 * available:
        return None
    excess = needed / (0.6 * available)
    smaller = 2 ** int(math.log2(max(settings.batch_size / excess, 1)))
    remedy = f"--batch_size={smaller}, or a smaller --image_size"
    least = math.ceil(excess * settings.gradient_cache_chunks)
    batch = settings.batch_size
    fitting = [n for n in range(least, batch + 1) if batch % n == 0]
    if settings.has_projections and fitting:
        remedy = (
            f"--gradient_cache_chunks={fitting[0]} computes the same loss in "
            f"parts; else {remedy}"
        )
    return (
        f"the activations of {views} views take about {needed / 1e9:.1f} GB, "
        f"of {available / 1e9:.1f} GB that are there: {remedy}"
    )


def activation_bytes(
    encoder: models.Encoder, image_size: int, channels: int = 3
) -> int:
    """Bytes that the forward pass of a view of this side keeps for backward."""
    strategy = tf.distribute.get_strategy()

    def gradient(images: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = encoder(images, training=True)
        return tape.gradient(outputs, encoder.trainable_variables)

    shape = [_VIEWS, image_size, image_size, channels]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.uint8)])
    def step(images: tf.Tensor) -> list[tf.Tensor]:
        return strategy.run(gradient, args=(images,))

    kept = {
        tensor.name: tensor
        for operation in step.get_concrete_function().graph.get_operations()
        if "gradient_tape" in operation.name
        for tensor in operation.inputs
        if "gradient_tape" not in tensor.name
        and tensor.shape.rank
        and tensor.shape[0] == _VIEWS
    }
    total = sum(x.shape.num_elements() * x.dtype.size for x in kept.values())
    return total // (_VIEWS * strategy.num_replicas_in_sync)


def available_bytes() -> int | None:
    """Memory of the smallest GPU, or else of this machine; None if unknown."""
    if tf.config.list_logical_devices("GPU"):
        return _gpu_bytes()
    on_tpu = bool(tf.config.list_logical_devices("TPU"))
    if on_tpu or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in _CGROUP_LIMITS:
        file = pathlib.Path("/sys/fs/cgroup", name)
        if file.exists() and file.read_text().strip().isdigit():
            limits.append(int(file.read_text()))
    return min(limits)


def _gpu_bytes() -> int | None:
    """By the driver's own tool: TensorFlow tells what is used, not the rest."""
    query = "--query-gpu=memory.total --format=csv,noheader,nounits"
    try:
        text = subprocess.check_output(
            ["nvidia-smi", *query.split()], text=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return min(int(line) for line in text.split()) * 2**20
