"""The hierarchical loss by the loops of each level, and their maximum."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests import reference
from tests.losses import vectors

# Two animals and two dogs among them, a plant, a stone.
ANCESTORS = [[0, 0, 0], [0, 1, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
LABELS = np.array([0, 1, 2, 3, 1])


def loops(z, penalty, constrained, **options):
    """Leaves first, a larger share of them; no level below the last."""
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    total, losses_below = 0.0, np.full(len(z), -np.inf)
    for height in (1, 2, 3):
        labels = [ANCESTORS[label][-height] for label in LABELS]
        level_losses = reference.supcon_loss(z, labels, **options)
        if constrained:
            losses_below = level_losses = np.maximum(level_losses, losses_below)
        total += penalty ** (1 / height) * level_losses
    return total / 3


@pytest.mark.parametrize("penalty", [1.0, 2.0])
@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
def test_equals_the_loops(penalty, constrained, formulation):
    z = vectors.unit([5, 2, 2])
    options = {
        "penalty": penalty,
        "constrained": constrained,
        "temperature": 0.1,
        "formulation": formulation,
    }
    expected = (
        loops(z, **options),
        reference.finite_differences(lambda z: loops(z, **options).sum(), z),
    )
    for implementation in ("dense", "tiled"):
        loss = losses.HierarchicalSupConLoss(
            ancestors=ANCESTORS,
            implementation=implementation,
            reduction="none",
            **options,
        )
        results = vectors.value_and_gradient(
            lambda z, loss=loss: loss(LABELS, z), z
        )
        vectors.assert_close(results, expected, 1e-5, 2e-5)


def test_one_level_is_supcon():
    z = vectors.unit([5, 2, 4])
    loss = losses.HierarchicalSupConLoss(
        ancestors=[[i] for i in range(5)], penalty=1.0
    )
    expected = losses.SupConLoss()(LABELS, z)
    np.testing.assert_allclose(loss(LABELS, z), expected, rtol=1e-6)
    rebuilt = losses.HierarchicalSupConLoss.from_config(loss.get_config())
    assert rebuilt(LABELS, z) == loss(LABELS, z)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ancestors": ()}, "as many integers for every class, got rows of no"),
        ({"ancestors": [[0, 1], [0]]}, r"every class, got rows of \[1, 2\]"),
        ({"ancestors": [[0, 5], [1, 5]]}, "one parent for each, at level 1"),
        # The parents alone: the classes would not count.
        ({"ancestors": [[0], [0], [1]]}, "class itself last.*: 3 .* got 2"),
        ({"ancestors": [[0]], "penalty": 0.5}, "`penalty` must be at least 1"),
        ({"ancestors": [[0]], "positives": "any"}, "`positives` must be None"),
    ],
)
def test_what_is_no_hierarchy_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        losses.HierarchicalSupConLoss(**options)


@pytest.mark.parametrize("label", [5, -1])
def test_a_label_without_ancestors_is_refused(label):
    loss = losses.HierarchicalSupConLoss(ancestors=[[i] for i in range(5)])
    for call in (loss, tf.function(loss, autograph=False)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"0 \.\.\. 4"):
            call(tf.constant([0, label]), vectors.unit([2, 2, 4]))
