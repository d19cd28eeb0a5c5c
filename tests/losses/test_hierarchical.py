"""The hierarchical loss by the loops of each level, and their maximum."""

import functools

import numpy as np
import pytest

from supcon_tf import losses
from tests import reference
from tests.losses import vectors

# Two animals and two dogs among them, a plant, a stone.
ANCESTORS = [[0, 0, 0], [0, 1, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
LABELS = np.array([0, 1, 2, 3, 4, 1, 2, 0])


def expected(z, penalty, constrained, **options):
    """Leaves first, a larger share of them; no level below the last."""
    total, losses_below = 0.0, np.full(len(z), -np.inf)
    for height in (1, 2, 3):
        labels = [ANCESTORS[label][-height] for label in LABELS]
        losses = reference.supcon_loss(z, labels, **options)
        if constrained:
            losses_below = losses = np.maximum(losses, losses_below)
        total += penalty ** (1 / height) * losses
    return total / 3


@functools.cache
def differences(**options):
    """The gradient of the loops, which no implementation changes."""
    return reference.finite_differences(
        lambda z: expected(
            z / np.linalg.norm(z, axis=-1, keepdims=True), **options
        ).sum(),
        vectors.unit([8, 2, 3]),
    )


@pytest.mark.parametrize("implementation", ["dense", "tiled"])
@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
def test_equals_the_loops(implementation, formulation):
    z = vectors.unit([8, 2, 3])
    for options in vectors.combinations(
        penalty=(1.0, 2.0),
        constrained=(True, False),
        temperature=(0.1, 1.0),
        formulation=[formulation],
    ):
        loss = losses.HierarchicalSupConLoss(
            ancestors=ANCESTORS,
            implementation=implementation,
            reduction="none",
            **options,
        )
        value, gradient = vectors.value_and_gradient(
            lambda z, loss=loss: loss(LABELS, z), z
        )
        np.testing.assert_allclose(
            value, expected(z, **options), rtol=1e-5, err_msg=str(options)
        )
        if options["penalty"] == 1.0 or options["temperature"] == 1.0:
            continue
        np.testing.assert_allclose(gradient, differences(**options), atol=2e-5)


def test_one_level_is_supcon():
    z = vectors.unit([8, 2, 4])
    loss = losses.HierarchicalSupConLoss(
        ancestors=[[i] for i in range(5)], penalty=1.0
    )
    supcon = losses.SupConLoss()(LABELS, z)
    np.testing.assert_allclose(loss(LABELS, z), supcon, rtol=1e-6)
    rebuilt = losses.HierarchicalSupConLoss.from_config(loss.get_config())
    assert rebuilt(LABELS, z) == loss(LABELS, z)


@pytest.mark.slow
def test_replicas_equal_one_device(mirrored_strategy):
    vectors.assert_replicas_equal_one_device(
        mirrored_strategy,
        losses.HierarchicalSupConLoss(ancestors=ANCESTORS, reduction="none"),
        [slice(0, 3), slice(3, 8)],
        vectors.unit([8, 2, 4]),
        LABELS,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ancestors": ()}, "as many integers for every class, got rows of no"),
        ({"ancestors": [[0, 1], [0]]}, r"every class, got rows of \[1, 2\]"),
        ({"ancestors": [[0, 5], [1, 5]]}, "one parent for each, at level 1"),
        ({"ancestors": [[0]], "penalty": 0.5}, "`penalty` must be at least 1"),
        ({"ancestors": [[0]], "positives": "any"}, "`positives` must be None"),
    ],
)
def test_what_is_no_hierarchy_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        losses.HierarchicalSupConLoss(**options)
