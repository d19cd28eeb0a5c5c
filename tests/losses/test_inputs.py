"""What supcon_loss and SupConLoss take: labels, masks, precisions, errors."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from tests import reference
from tests.losses import vectors


def test_every_form_of_labels():
    z = vectors.unit([4, 2, 4])
    expected = losses.supcon_loss(z, [2, 0, 2, 1])
    one_hot = np.eye(3)[[2, 0, 2, 1]]
    for labels in (
        np.array([2, 0, 2, 1], np.int32),
        np.array([[2], [0], [2], [1]], np.uint8),
        np.array([2**62, -(2**61), 2**62, 0]),
        one_hot.astype(np.float32),
        one_hot.astype(np.int64),
        one_hot.astype(bool),
    ):
        np.testing.assert_array_equal(losses.supcon_loss(z, labels), expected)


def test_positive_mask_replaces_labels():
    z = vectors.unit([4, 2, 4])
    labels = np.array([0, 1, 0, 1])
    mask = (labels[:, None] == labels).astype(np.float32)
    np.testing.assert_allclose(
        losses.supcon_loss(z, positive_mask=mask),
        losses.supcon_loss(z, labels),
        rtol=1e-6,
    )
    weights = np.random.default_rng(0).uniform(size=[4, 4]) * mask
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        denominator=vectors.DENOMINATORS,
        positive_mask=[weights],  # asymmetric, not binary
        temperature=[0.2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(z, **options),
            reference.supcon_loss(z, **options),
            rtol=1e-5,
        )


def test_contrasts_are_rows_that_are_no_anchors():
    z, labels = vectors.unit([6, 2, 4]), np.array([0, 1, 0, 1, 1, 2])
    expected = reference.supcon_loss(z, labels, temperature=0.1)
    split = losses.supcon_loss(
        z[:4],
        labels[:4],
        contrast_projections=z[4:],
        contrast_labels=labels[4:],
    )
    np.testing.assert_allclose(split, expected[:4], rtol=1e-5)
    # A queue: one row per entry; without labels all of them are negatives.
    queue = vectors.unit([5, 4], seed=9)
    labelled = losses.supcon_loss(
        z, np.arange(6), contrast_projections=queue, contrast_labels=[-1] * 5
    )
    unlabelled = losses.supcon_loss(z, contrast_projections=queue)
    np.testing.assert_allclose(labelled, unlabelled, rtol=1e-6)


def test_masked_contrasts_take_no_part():
    z, labels = vectors.unit([4, 2, 4]), [0, 1, 0, 2]
    contrasts = vectors.unit([7, 4], seed=9)
    contrast_labels = np.array([0, 2, 1, 0, 0, 1, 3])
    mask = np.array([True, False, True, True, False])  # of the last five
    is_contrast = np.array([True, True, *mask])
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        denominator=vectors.DENOMINATORS,
        positives_cap=(None, 1, 3),
        temperature=[0.2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(
                z,
                labels,
                contrast_projections=np.concatenate(
                    [contrasts[:2] * 0, contrasts]
                ),
                contrast_labels=[0, 0, *contrast_labels],
                contrast_mask=[False, False, True, True, *mask],
                **options,
            ),
            reference.supcon_loss(
                z,
                labels,
                queue=contrasts[is_contrast],
                queue_labels=contrast_labels[is_contrast],
                **options,
            ),
            rtol=1e-5,
            err_msg=str(options),
        )
    # A mask of the last contrasts only; each of its rows is a queue's.
    loss = losses.supcon_loss(
        z, contrast_projections=contrasts, contrast_mask=mask
    )
    expected = losses.supcon_loss(
        z, contrast_projections=contrasts[is_contrast]
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.slow(but=["0.0-float16", "1.0-float32", "100.0-float16"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_value_and_gradient_are_finite(dtype, scale):
    for views, labels in itertools.product(
        (1, 2), ([3], [0] * 5, [0, 1, 2, 3, 4])
    ):
        z = tf.cast(vectors.unit([len(labels), views, 8]) * scale, dtype)
        for options in vectors.combinations(
            formulation=vectors.FORMULATIONS,
            denominator=vectors.DENOMINATORS,
            temperature=[0.01],
        ):
            loss, gradient = vectors.supcon_value_and_gradient(
                z, labels, **options
            )
            assert loss.dtype == np.float32
            assert np.isfinite(loss).all(), (labels, views, options)
            if scale <= 1:  # the raw gradient of 100 x in float16 overflows
                assert np.isfinite(tf.cast(gradient, tf.float32)).all()


def test_very_small_temperature_equals_the_oracle():
    z, labels = vectors.unit([6, 2, 8]), [0, 1, 0, 1, 2, 2]
    loss = losses.supcon_loss(z, labels, temperature=0.01)
    expected = reference.supcon_loss(z, labels, temperature=0.01)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


def test_anchor_without_positives_has_loss_and_gradient_zero():
    z = vectors.unit([3, 1, 4])
    loss, gradient = vectors.supcon_value_and_gradient(z, [0, 1, 2])
    np.testing.assert_array_equal(loss, np.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros([3, 1, 4]))
    loss, _ = vectors.supcon_value_and_gradient(z, [0, 0, 2])
    assert loss[2] == 0 and (loss[:2].numpy() > 0).all()


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"positives_cap": 3, "denominator": "one_positive"}]
)
def test_in_a_function_with_unknown_batch(jit_compile, options):
    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec([None, 2, 4]),
            tf.TensorSpec([None], tf.int32),
        ],
    )
    def step(z, labels):
        return vectors.supcon_value_and_gradient(z, labels, **options)

    for batch in (3, 6):
        z = vectors.unit([batch, 2, 4]).astype(np.float32)
        labels = np.arange(batch, dtype=np.int32) % 2
        results = step(z, labels)
        expected = vectors.supcon_value_and_gradient(z, labels, **options)
        for tensor, expected_tensor in zip(results, expected, strict=True):
            np.testing.assert_allclose(
                tensor, expected_tensor, rtol=1e-4, atol=1e-6
            )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "`temperature` must be positive, got 0.0"),
        ({"formulation": "mean"}, "`formulation` must be one of out, in"),
        ({"denominator": "none"}, "`denominator` must be one of all, one_pos"),
        ({"anchor_views": "one"}, "`anchor_views` must be one of all, first"),
        ({"positives_cap": 0}, "`positives_cap` must be at least 1 with 2"),
        ({"labels": [0, 1]}, r"`labels` must have shape \[4\]"),
        ({"labels": [0.0] * 4}, "`labels` must be integers, got float32"),
        ({"labels": [[[0]]] * 4}, "`labels` must be .batch., "),
        ({"positive_mask": np.eye(4)}, "must not be combined with labels"),
        (
            {"labels": None, "positive_mask": np.eye(3)},
            r"`positive_mask` must have shape \[4, 4\]",
        ),
        (
            {"contrast_projections": np.ones([2, 5])},
            "`contrast_projections` must have the dim of",
        ),
        (
            {"contrast_projections": np.ones([2, 4])},
            "`contrast_labels` must be given with",
        ),
        ({"labels": None, "contrast_labels": [1]}, "must come with `labels`"),
        ({"contrast_mask": [True]}, "no longer than the 0 contrasts, got 1"),
        ({"contrast_mask": [1.0]}, "must be .queued. bool, got float32 of"),
        ({"projections": np.ones([4, 2, 2, 2])}, "the view axis is second"),
        ({"projections": np.ones([4, 2], int)}, "must be floats, got int64"),
    ],
)
def test_bad_input_is_named(arguments, message):
    defaults = {"projections": vectors.unit([4, 2, 4]), "labels": [0, 1, 0, 1]}
    with pytest.raises(ValueError, match=message):
        losses.supcon_loss(**{**defaults, **arguments})


def test_multi_hot_labels_are_refused():
    z = vectors.unit([2, 2, 4])
    for labels in ([[1, 1], [0, 1]], [[0, 0], [0, 1]], [[0.5, 0.5], [0, 1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one-hot"):
            losses.supcon_loss(z, labels)


def test_the_class_is_per_sample_and_normalises():
    z, labels = vectors.unit([5, 2, 4]), np.array([0, 1, 0, 1, 2])
    per_sample = losses.SupConLoss(reduction="none")(labels, z * 37)
    np.testing.assert_allclose(
        per_sample, losses.supcon_loss(z, labels), rtol=1e-5
    )
    np.testing.assert_allclose(
        losses.SupConLoss()(labels, z), np.mean(per_sample), rtol=1e-6
    )
    raw = losses.SupConLoss(normalize=False, reduction="none")
    np.testing.assert_allclose(
        raw(labels, z * 1.5), losses.supcon_loss(z * 1.5, labels), rtol=1e-6
    )
    with pytest.raises(ValueError, match="`formulation` must be"):
        losses.SupConLoss(formulation="both")
