"""A row of NaN makes the loss of its batch NaN, so that training stops."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests.losses import vectors

OPTIONS = [
    {},
    {"formulation": "in"},
    {"denominator": "sincere"},
    {"denominator": "only_negatives"},
    {"hardness": 2.0},
    {"positives_cap": 1},
    {"temperature": 0.005},  # sums by their logarithms
]


def batch_loss(loss, labels, views, row):
    """The sum of the losses of a batch whose `row` is NaN."""
    z = vectors.unit([len(labels), views, 4], dtype=np.float32)
    z[row] = np.nan
    return float(np.sum(loss(labels, z)))


@pytest.mark.parametrize("row", [0, 3], ids=["in a class", "alone"])
@pytest.mark.parametrize("name", vectors.LOSSES)
def test_of_every_loss(name, row):
    labels = vectors.labels_for(name, np.array([0, 0, 1, 2, 1]))
    loss = vectors.make_loss(name)
    assert np.isfinite(batch_loss(loss, labels, 2, slice(0)))
    assert np.isnan(batch_loss(loss, labels, 2, row))


@pytest.mark.parametrize("implementation", ["dense", "tiled"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_of_every_option(options, implementation):
    loss = losses.SupConLoss(
        reduction="none", implementation=implementation, **options
    )
    for labels in ([0, 0, 1, 2], [0, 0, 1, 1], [0, 1, 2, 3]):
        for row in (0, 3, slice(None)):
            assert np.isnan(batch_loss(loss, labels, 1, row))
    spread = losses.SupConLoss(spread=0.5, implementation=implementation)
    assert np.isnan(batch_loss(spread, [0, 0, 1, 2], 2, 3))


@pytest.mark.parametrize("loss_class", [losses.NPairsLoss, losses.TripletLoss])
def test_without_any_pair(loss_class):
    """The loss is 0 there, but not its gradient."""
    loss = loss_class(reduction="none")
    assert batch_loss(loss, [0, 1, 2, 3], 1, slice(0)) == 0
    assert np.isnan(batch_loss(loss, [0, 1, 2, 3], 1, 0))


def test_with_a_queue():
    queue = losses.ProjectionQueue(size=3, dim=4)
    queue.enqueue(vectors.unit([2, 4]), [0, 9])
    loss = losses.SupConLoss(queue=queue, reduction="none")
    assert np.isnan(batch_loss(loss, [0, 0, 1, 2], 1, 3))


@pytest.mark.parametrize("options", [{}, {"hardness": 2.0}], ids=str)
def test_compiled_by_xla(options):
    loss = losses.SupConLoss(implementation="tiled", **options)
    function = tf.function(
        lambda z: loss([0, 0, 1, 2], z), jit_compile=True, autograph=False
    )
    z = vectors.unit([4, 1, 4], dtype=np.float32)
    assert np.isfinite(function(z))
    z[3] = np.nan
    assert np.isnan(function(z))
