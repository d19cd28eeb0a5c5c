"""An estimate of a training step's memory, before the first step."""

from __future__ import annotations

import math
import os
import pathlib
import subprocess

import tensorflow as tf

from supcon_tf import config, models

# Bytes per pixel of a view at width 1, above those of all encoders (resnet200).
# A step that fits by this bound is not traced.
_MAX_BYTES_PER_PIXEL = 130_000
_VIEWS = 13  # of the traced pass: no weight has it as first dimension
_CGROUP_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def warning(
    settings: config.PretrainSettings, encoder: models.Encoder
) -> str | None:
    """The warning of a step that will not fit in memory; None if it fits.

    The estimate counts activations, 75 to 90 % of the memory of a large step by
    ResNets and VGGs on a CPU.
    """
    available = available_bytes()
    images = settings.batch_size // settings.gradient_cache_chunks
    if tf.config.list_logical_devices("GPU"):  # each has its own memory
        images //= tf.distribute.get_strategy().num_replicas_in_sync
    views = images * settings.num_views
    pixels = views * settings.image_size**2
    max_bytes = pixels * _MAX_BYTES_PER_PIXEL * settings.width
    if available is None or max_bytes < available:
        return None
    needed = views * activation_bytes(
        encoder, settings.image_size, settings.channels
    )
    if needed < 0.8 * available:
        return None
    excess = needed / (0.6 * available)
    smaller_batch = 2 ** int(math.log2(max(settings.batch_size / excess, 1)))
    remedy = f"--batch_size={smaller_batch}, or a smaller --image_size"
    min_chunks = math.ceil(excess * settings.gradient_cache_chunks)
    batch = settings.batch_size
    chunk_counts = [n for n in range(min_chunks, batch + 1) if batch % n == 0]
    if settings.has_projections and chunk_counts:
        remedy = (
            f"--gradient_cache_chunks={chunk_counts[0]} computes the same loss "
            f"in parts; else {remedy}"
        )
    return (
        f"the activations of {views} views take about {needed / 1e9:.1f} GB, "
        f"of {available / 1e9:.1f} GB that are there: {remedy}"
    )


def activation_bytes(
    encoder: models.Encoder, image_size: int, channels: int = 3
) -> int:
    """Bytes per view that the forward pass keeps for the backward pass."""
    strategy = tf.distribute.get_strategy()

    def gradient(images: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = encoder(images, training=True)
        return tape.gradient(outputs, encoder.trainable_variables)

    shape = [_VIEWS, image_size, image_size, channels]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.uint8)])
    def step(images: tf.Tensor) -> list[tf.Tensor]:
        return strategy.run(gradient, args=(images,))

    saved = {
        tensor.name: tensor
        for operation in step.get_concrete_function().graph.get_operations()
        if "gradient_tape" in operation.name
        for tensor in operation.inputs
        if "gradient_tape" not in tensor.name
        and tensor.shape.rank
        and tensor.shape[0] == _VIEWS
    }
    sizes = (t.shape.num_elements() * t.dtype.size for t in saved.values())
    total = sum(sizes)
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
    """Memory of the smallest GPU, by the driver: TensorFlow has no total."""
    query = "--query-gpu=memory.total --format=csv,noheader,nounits"
    try:
        text = subprocess.check_output(
            ["nvidia-smi", *query.split()], text=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return min(int(line) for line in text.split()) * 2**20
