"""Forward and backward pass of each loss that `bench_loss` can measure.

TensorFlow and PyTorch are imported by the implementation that needs them, see
`libraries`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from supcon_tf.benchmarks import libraries

# Returns the loss, mean over samples times the temperature, and its gradient.
Step = Callable[[], tuple[object, object]]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What every implementation is given.

    Attributes:
      projections: [batch, views, dim] float32, unit length along dim.
      labels: [batch] int32.
      classes: number of classes the labels are drawn from.
      temperature: tau.
      threads: positive int, of either library.
      path: the peer's Python file; None where there is none.
    """

    projections: np.ndarray
    labels: np.ndarray
    classes: int
    temperature: float
    threads: int
    path: str | None = None


def make_problem(
    rows: int, views: int, dim: int, classes: int, seed: int, **others
) -> Problem:
    """Random unit vectors and labels: same arguments, same problem."""
    generator = np.random.default_rng(seed)
    z = generator.standard_normal((rows // views, views, dim), np.float32)
    z /= np.linalg.norm(z, axis=2, keepdims=True)
    labels = generator.integers(0, classes, rows // views, np.int32)
    return Problem(z, labels, classes, **others)


def make_step(name: str, problem: Problem) -> Step:
    """A function of no arguments that runs one forward and backward pass.

    TensorFlow's functions are traced when this returns, but have not run.
    """
    return {
        "dense": _dense,
        "tiled": _tiled,
        "looped": _looped,
        "floor": _floor,
        "official": _official,
        "supcontrast": _supcontrast,
        "pml": _pml,
    }[name](problem)


def oracle_gradient(problem: Problem) -> np.ndarray:
    """[batch, views, dim] float64 gradient of Eq. 2, scaled by tau, mean."""
    tau = problem.temperature
    shape = problem.projections.shape
    z = problem.projections.reshape(-1, shape[2]).astype(np.float64)
    labels = np.repeat(problem.labels, shape[1])
    logits = z @ z.T / tau  # [M, M]
    np.fill_diagonal(logits, -np.inf)
    softmax = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax /= softmax.sum(axis=1, keepdims=True)
    positive = (labels[:, None] == labels).astype(np.float64)
    np.fill_diagonal(positive, 0.0)
    count = positive.sum(axis=1, keepdims=True)
    # An anchor without positives has loss 0, so gradient 0.
    by_logits = (count > 0) * softmax - positive / np.maximum(count, 1)
    return ((by_logits + by_logits.T) @ z / len(z)).reshape(shape)


def _dense(problem: Problem) -> Step:
    """Ours, all [M, M] matrices in memory."""
    libraries.import_tensorflow(problem.threads)
    from supcon_tf import losses

    return _tensorflow_step(
        lambda z, labels: losses.supcon_loss(
            z, labels, temperature=problem.temperature
        ),
        problem.projections,
        problem.labels,
    )


def _tiled(problem: Problem, **schedule) -> Step:
    """Ours, tile by tile, in the schedule it chooses as in SupConLoss."""
    libraries.import_tensorflow(problem.threads)
    from supcon_tf.losses import tiled

    return _tensorflow_step(
        lambda z, labels: tiled.tiled_supcon_loss(
            z,
            labels,
            temperature=problem.temperature,
            unit_length=True,
            **schedule,
        ),
        problem.projections,
        problem.labels,
    )


def _looped(problem: Problem) -> Step:
    """Ours, tile by tile, in the schedule of least memory."""
    return _tiled(problem, tile_rows=1024)


def _official(problem: Problem) -> Step:
    """`contrastive_loss` of a file like google-research's supcon/losses.py."""
    tf = libraries.import_tensorflow(problem.threads)
    contrastive_loss = libraries.load_file(problem.path).contrastive_loss
    return _tensorflow_step(
        lambda z, labels: contrastive_loss(
            z, labels, temperature=problem.temperature
        ),
        problem.projections,
        tf.one_hot(problem.labels, problem.classes),
    )


def _tensorflow_step(
    loss: Callable[[object, object], object],
    projections: np.ndarray,
    labels: object,
) -> Step:
    """The step of a TensorFlow loss [batch], as a traced function."""
    import tensorflow as tf

    @tf.function
    def run(z, y):
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = tf.reduce_mean(loss(z, y))
        return value, tape.gradient(value, z)

    z, y = tf.constant(projections), tf.constant(labels)
    traced = run.get_concrete_function(z, y)
    return lambda: traced(z, y)


def _floor(problem: Problem) -> Step:
    """See `floor_step`."""
    libraries.import_tensorflow(problem.threads)
    dim = problem.projections.shape[2]
    return floor_step(problem.projections.reshape(-1, dim))


def floor_step(rows: np.ndarray) -> Step:
    """Products and exponentials that an exact loss cannot do without.

    Z Z^T is symmetric, so each pair of rows takes one product, one exp and the
    two products of the gradient; nothing is masked, shifted or normalised. The
    temperature is left out, as it costs nothing.

    Args:
      rows: [M, dim] float32.

    Returns:
      A step of exp(Z Z^T) Z, [M, dim], and an entry of it. Its memory is no
      floor.
    """
    import tensorflow as tf

    # More tiles cost more than they save at these sizes.
    tiles = 2 if len(rows) <= 1024 else 4 if len(rows) <= 2048 else 8
    sizes = [len(part) for part in np.array_split(rows, tiles)]

    @tf.function
    def run(z):
        parts = tf.split(z, sizes)
        terms = [[] for _ in parts]
        for a in range(tiles):
            for b in range(a, tiles):
                e = tf.exp(tf.matmul(parts[a], parts[b], transpose_b=True))
                terms[a].append(tf.matmul(e, parts[b]))
                if a != b:
                    terms[b].append(tf.matmul(e, parts[a], transpose_a=True))
        gradient = tf.concat([tf.add_n(of_part) for of_part in terms], axis=0)
        return gradient[0, 0], gradient

    z = tf.constant(rows)
    traced = run.get_concrete_function(z)
    return lambda: traced(z)


def _supcontrast(problem: Problem) -> Step:
    """`SupConLoss` of a file like HobbitLong/SupContrast's losses.py."""
    torch = libraries.import_torch(problem.threads)
    # Its value is tau / base_temperature times the mean in nats.
    criterion = libraries.load_file(problem.path).SupConLoss(
        temperature=problem.temperature, base_temperature=1.0
    )
    labels = torch.from_numpy(problem.labels).long()
    return _torch_step(lambda z: criterion(z, labels), problem.projections)


def _pml(problem: Problem) -> Step:
    """`SupConLoss` of pytorch-metric-learning, which normalises inside."""
    torch = libraries.import_torch(problem.threads)
    from pytorch_metric_learning import losses

    criterion = losses.SupConLoss(temperature=problem.temperature)
    views, dim = problem.projections.shape[1:]
    labels = torch.from_numpy(np.repeat(problem.labels, views)).long()
    return _torch_step(
        lambda z: problem.temperature * criterion(z.reshape(-1, dim), labels),
        problem.projections,
    )


def _torch_step(
    loss: Callable[[object], object], projections: np.ndarray
) -> Step:
    """The step of a PyTorch loss, eager, as the peers are used."""
    import torch

    z = torch.from_numpy(projections).requires_grad_()

    def run():
        z.grad = None
        value = loss(z)
        value.backward()
        return value.detach(), z.grad

    return run
