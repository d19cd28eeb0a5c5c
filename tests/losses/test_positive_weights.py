"""SupCon of several labels per sample, by the loops and by both schedules."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests import reference
from tests.losses import vectors

KINDS = ("any", "all", "jaccard", "soft", "cosine")
# Shared, equal, contained and disjoint sets; two samples without a label.
LABELS = np.array(
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0] * 4, [0] * 4]
)


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


def choose_labels(kind):
    return SOFT if kind in ("soft", "cosine") else LABELS


@pytest.mark.slow(
    but=["any-2", "all-2", "jaccard-1", "jaccard-2", "soft-2", "cosine-2"]
)
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_loops(kind, views):
    z = vectors.unit([6, views, 4])
    labels = choose_labels(kind)
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        anchor_views=("all", "first"),
        temperature=(0.1, 1.0),
        positives=[kind],
    ):
        for denominator in vectors.DENOMINATORS:
            loss_options = options | {"denominator": denominator}
            np.testing.assert_allclose(
                losses.supcon_loss(z, labels, **loss_options),
                reference.supcon_loss(z, labels, **loss_options),
                rtol=1e-5,
                atol=1e-5,
                err_msg=str(loss_options),
            )
        expected = reference.supcon_loss(z, labels, **options)
        for tiling in ({}, {"tile_rows": 5}, {"unit_length": True}):
            np.testing.assert_allclose(
                losses.tiled_supcon_loss(z, labels, **options, **tiling),
                expected,
                rtol=1e-5,
                atol=1e-5,
                err_msg=str(options | tiling),
            )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
def test_gradients_equal_finite_differences(kind, formulation):
    z, weights = vectors.unit([6, 2, 3], seed=1), np.arange(1.0, 7.0)
    labels = choose_labels(kind)
    options = {
        "temperature": 0.3, "formulation": formulation, "positives": kind
    }  # fmt: skip
    expected = reference.finite_differences(
        lambda z: (weights * reference.supcon_loss(z, labels, **options)).sum(),
        z,
    )
    for function in (losses.supcon_loss, losses.tiled_supcon_loss):
        _, gradient = vectors.value_and_gradient(
            lambda z, f=function: f(z, labels, **options), z, weights
        )
        np.testing.assert_allclose(gradient, expected, atol=1e-5)


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
        for tensor, expected_tensor in zip(results, expected, strict=True):
            np.testing.assert_allclose(
                tensor, expected_tensor, rtol=2e-5, atol=2e-6
            )


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


def test_a_cap_and_contrasts_go_with_it():
    z, contrasts = vectors.unit([6, 2, 4]), vectors.unit([3, 2, 4], seed=2)
    for options in vectors.combinations(positives=KINDS, positives_cap=(1, 3)):
        np.testing.assert_allclose(
            losses.supcon_loss(z, LABELS, temperature=0.1, **options),
            reference.supcon_loss(z, LABELS, temperature=0.1, **options),
            rtol=1e-5,
            atol=1e-5,
        )
    # Contrasts are samples like others, but no anchors.
    for kind in KINDS:
        every = reference.supcon_loss(
            np.concatenate([z, contrasts]),
            np.concatenate([LABELS, LABELS[:3]]),
            temperature=0.1,
            positives=kind,
        )
        np.testing.assert_allclose(
            losses.supcon_loss(
                z,
                LABELS,
                positives=kind,
                contrast_projections=contrasts,
                contrast_labels=LABELS[:3],
            ),
            every[:6],
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.slow(but=["options0", "options1"])
@pytest.mark.parametrize(
    "options",
    [
        {"positives": "jaccard", "implementation": "dense"},
        {"positives": "jaccard", "implementation": "tiled"},
        {"positives": "any", "formulation": "in"},
        {"positives": "all"},
    ],
)
def test_replicas_equal_one_device(options, mirrored_strategy):
    vectors.assert_replicas_equal_one_device(
        mirrored_strategy,
        losses.SupConLoss(**options, reduction="none"),
        [slice(0, 4), slice(4, 7)],
        vectors.unit([7, 2, 4]),
        np.concatenate([LABELS, LABELS[:1]]).astype(np.float32),
    )


def test_what_does_not_fit_is_refused():
    z = vectors.unit([6, 2, 4])
    for function in (losses.supcon_loss, losses.tiled_supcon_loss):
        with pytest.raises(
            ValueError, match=r"must be \[batch, classes\], 0 or"
        ):
            function(z, [0, 1, 2, 0, 1, 2], positives="any")
        with pytest.raises(tf.errors.InvalidArgumentError, match="0 or 1"):
            function(z, LABELS * 2, positives="any")
        with pytest.raises(tf.errors.InvalidArgumentError, match="`positives`"):
            function(z, LABELS)
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
