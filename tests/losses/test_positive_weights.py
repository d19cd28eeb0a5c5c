"""SupCon of several labels per sample, by the loops and by both schedules."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests import reference
from tests.losses import vectors

KINDS = ("any", "all", "jaccard", "soft", "cosine")
SETS = vectors.SETS
SOFT = np.array(
    [
        [0.7, 0.3, 0, 0],
        [1, 0, 0, 0],
        [0, 0.5, 0.5, 0],
        [0, 0, 0, 2.0],
        [0.25] * 4,
        [0] * 4,
    ]
)


@pytest.mark.slow(but=["any-2", "all-2", "jaccard-2", "soft-2", "cosine-2"])
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_loops(kind, views):
    """By sums over classes, and by strips of all pairs."""
    z, weights = vectors.unit([6, views, 2], seed=1), np.arange(1.0, 7.0)
    labels = SOFT if kind in ("soft", "cosine") else SETS
    for formulation in vectors.FORMULATIONS:
        options = {"positives": kind, "temperature": 0.3}
        options["formulation"] = formulation

        def compute_expected(z, o=options):
            return reference.supcon_loss(z, labels, **o)

        expected = (
            compute_expected(z),
            reference.finite_differences(
                lambda z, f=compute_expected: weights @ f(z), z
            ),
        )
        for function, tiling in (
            (losses.supcon_loss, {}),
            (losses.tiled_supcon_loss, {"tile_rows": 5}),
            (losses.tiled_supcon_loss, {"unit_length": True}),
        ):
            results = vectors.value_and_gradient(
                lambda z, f=function, o=options | tiling: f(z, labels, **o),
                z,
                weights,
            )
            vectors.assert_close(results, expected, 1e-5, 1e-5)


def test_many_samples_are_weighed_in_parts():
    """More than are held at once, and no multiple of it; several views."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, [300, 6]).astype(np.uint8)
    z = vectors.unit([300, 2, 8]).astype(np.float32)
    for kind in KINDS:
        expected = vectors.supcon_value_and_gradient(z, labels, positives=kind)
        results = vectors.value_and_gradient(
            lambda z, k=kind: losses.tiled_supcon_loss(z, labels, positives=k),
            z,
        )
        vectors.assert_close(results, expected)


def test_one_label_each_is_the_loss_of_classes():
    z, ids = vectors.unit([7, 2, 4]), np.array([0, 1, 1, 2, 0, 0, 2])
    hot = np.eye(3)[ids]
    for implementation in ("dense", "tiled"):
        expected = losses.SupConLoss(implementation=implementation)(ids, z)
        for kind in KINDS:
            loss = losses.SupConLoss(
                implementation=implementation, positives=kind
            )
            np.testing.assert_allclose(loss(hot, z), expected, rtol=1e-5)
            rebuilt = losses.SupConLoss.from_config(loss.get_config())
            assert rebuilt.positives == kind


@pytest.mark.parametrize("kind", KINDS)
def test_contrasts_are_samples_that_are_no_anchors(kind):
    z, contrasts = vectors.unit([6, 2, 4]), vectors.unit([3, 2, 4], seed=2)
    expected = reference.supcon_loss(
        np.concatenate([z, contrasts]),
        np.concatenate([SETS, SETS[:3]]),
        temperature=0.1,
        positives=kind,
    )
    loss = losses.supcon_loss(
        z,
        SETS,
        positives=kind,
        contrast_projections=contrasts,
        contrast_labels=SETS[:3],
    )
    np.testing.assert_allclose(loss, expected[:6], rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_refused():
    z = vectors.unit([6, 2, 4])
    for function in (losses.supcon_loss, losses.tiled_supcon_loss):
        with pytest.raises(
            ValueError, match=r"must be \[batch, classes\], 0 or"
        ):
            function(z, [0, 1, 2, 0, 1, 2], positives="any")
        with pytest.raises(tf.errors.InvalidArgumentError, match="0 or 1"):
            function(z, SETS * 2, positives="any")
        with pytest.raises(tf.errors.InvalidArgumentError, match="`positives`"):
            function(z, SETS)
    with pytest.raises(ValueError, match="`positives` must be one of any, all"):
        losses.SupConLoss(positives="some")
    with pytest.raises(ValueError, match="`positives` must be None with a `qu"):
        losses.SupConLoss(positives="any", queue=losses.ProjectionQueue(4, 4))


def test_soft_labels_that_none_shares_have_no_positives():
    """Their weight in their own class cancels but for its last bits."""
    shares = np.random.default_rng(0).uniform(0.1, 1, 40)
    labels = np.zeros([40, 80])
    labels[np.arange(40), 2 * np.arange(40)] = shares
    labels[np.arange(40), 2 * np.arange(40) + 1] = 1.1 - shares
    z = vectors.unit([40, 1, 8]).astype(np.float32)
    for function in (losses.supcon_loss, losses.tiled_supcon_loss):
        for kind in ("soft", "cosine"):
            loss, gradient = vectors.value_and_gradient(
                lambda z, f=function, k=kind: f(z, labels, positives=k), z
            )
            assert not loss.numpy().any() and not gradient.numpy().any()
