"""The peers of the loss benchmark: PyTorch's losses, and Inf-CL's algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import measuring

if TYPE_CHECKING:
    import tensorflow as tf

IN_TORCH = ("supcontrast", "supcontrast_compiled", "pml")
_LARGEST_TILE = 1024  # rows; a GPU's 64 would be slower on a CPU


def inf_cl_loss(
    z: tf.Tensor, labels: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Eq. 2 with the log-sum-exp of Inf-CL (Cheng et al. 2024), times tau.

    As in its inf_cl/flash.py, tiles of logits update a running maximum and sum
    of each row, and the gradients of queries and of keys compute all tiles
    again. Its kernels need Triton and a GPU, so the tiles are TensorFlow's.
    Inf-CL has one positive for each row; the mean of all is by sums of classes.

    Args:
      z: unit projections, [batch, views, dim] float32.
      labels: classes, [batch] int32.
      temperature: of the logits.

    Returns:
      The loss of each row, [batch * views] float32.
    """
    import tensorflow as tf

    rows = tf.reshape(z, [-1, z.shape[2]])  # [M, dim]
    classes = tf.repeat(labels, z.shape[1])  # [M]
    class_sizes = tf.math.bincount(classes)
    sums = tf.math.unsorted_segment_sum(rows, classes, tf.size(class_sizes))
    counts = tf.cast(tf.gather(class_sizes, classes) - 1, rows.dtype)
    others = tf.gather(sums, classes) - rows
    positives = tf.math.divide_no_nan(
        tf.reduce_sum(rows * others, axis=1), counts
    )
    log_sums = _log_sums(rows, temperature)
    return tf.where(counts > 0, temperature * log_sums - positives, 0.0)


def torch_step(
    job: measuring.Job, z: np.ndarray, labels: np.ndarray
) -> Callable[[], tuple[object, object]]:
    """Of a PyTorch loss, eager, as the peers are used."""
    torch = measuring.import_torch(job.threads)
    device = measuring.torch_device()
    z = torch.from_numpy(z).to(device).requires_grad_()
    y = torch.from_numpy(labels).long().to(device)
    if job.implementation != "pml":
        # Its value is tau / base_temperature times the mean in nats.
        loss = measuring.load_file(job.supcontrast_path).SupConLoss(
            temperature=job.temperature, base_temperature=1.0
        )
        if job.implementation == "supcontrast_compiled":
            loss = torch.compile(loss)
    else:
        from pytorch_metric_learning import losses

        loss = losses.SupConLoss(temperature=job.temperature)
        y = y.repeat_interleave(job.views)
    pml = job.implementation == "pml"

    def step() -> tuple[object, object]:
        z.grad = None
        value = (
            job.temperature * loss(z.flatten(0, 1), y) if pml else loss(z, y)
        )
        value.backward()
        return value, z.grad

    return step


def _log_sums(rows: tf.Tensor, temperature: float) -> tf.Tensor:
    """Log of the sum of exp(z_i z_j / tau) over j != i, [M], tile by tile."""
    import tensorflow as tf

    size = math.gcd(rows.shape[0], _LARGEST_TILE)
    count = rows.shape[0] // size

    def logits(tiles: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> tf.Tensor:
        tile = tf.matmul(tiles[i], tiles[j], transpose_b=True) / temperature
        if i == j:  # a row is no contrast of itself
            tile = tf.linalg.set_diag(tile, tf.fill([size], -math.inf))
        return tile  # [size, size]

    @tf.function
    def forward(tiles: tf.Tensor) -> tf.Tensor:
        sums = tf.TensorArray(tf.float32, count)
        for i in tf.range(count):
            maximum, total = tf.fill([size], -1e30), tf.zeros([size])
            for j in tf.range(count):
                tile = logits(tiles, i, j)
                larger = tf.maximum(maximum, tf.reduce_max(tile, axis=1))
                total *= tf.exp(maximum - larger)
                total += tf.reduce_sum(tf.exp(tile - larger[:, None]), axis=1)
                maximum = larger
            sums = sums.write(i, maximum + tf.math.log(total))
        return sums.stack()  # [tiles, size]

    @tf.function
    def backward(
        tiles: tf.Tensor, sums: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        gradients = tf.TensorArray(tf.float32, count)
        for i in tf.range(count):
            gradient = tf.zeros_like(tiles[0])
            for j in tf.range(count):  # tile i as queries
                softmax = tf.exp(logits(tiles, i, j) - sums[i][:, None])
                gradient += tf.matmul(softmax * weights[i][:, None], tiles[j])
            for j in tf.range(count):  # tile i as keys
                softmax = tf.exp(logits(tiles, i, j) - sums[j])
                gradient += tf.matmul(softmax * weights[j], tiles[j])
            gradients = gradients.write(i, gradient)
        return gradients.stack()  # [tiles, size, dim]

    @tf.custom_gradient
    def log_sums(rows: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        tiles = tf.reshape(rows, [count, size, -1])
        sums = forward(tiles)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            weights = tf.reshape(upstream / temperature, sums.shape)
            return tf.reshape(backward(tiles, sums, weights), rows.shape)

        return tf.reshape(sums, [-1]), gradient

    return log_sums(rows)
