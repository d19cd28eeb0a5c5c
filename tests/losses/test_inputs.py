"""What supcon_loss and SupConLoss take: labels, contrasts, errors."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
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
    z, contrasts = vectors.unit([4, 2, 4]), vectors.unit([7, 4], seed=9)
    labels, contrast_labels = [0, 1, 0, 2], np.array([0, 2, 1, 0, 0, 1, 3])
    mask = np.array([True, True, True, False, True, True, False])
    queue = {"queue": contrasts[mask], "queue_labels": contrast_labels[mask]}
    contrasts = {
        "contrast_projections": contrasts,
        "contrast_labels": contrast_labels,
    }
    for options, num_queued in (
        ({}, 7),
        ({}, 5),  # the mask of the last contrasts, of which a queue's rows are
        ({"formulation": "in", "positives_cap": 3}, 7),
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(
                *(z, labels),
                contrast_mask=mask[-num_queued:],
                **contrasts,
                **options,
            ),
            reference.supcon_loss(
                *(z, labels), temperature=0.1, **queue, **options
            ),
            rtol=1e-5,
        )


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "`temperature` must be positive, got 0.0"),
        ({"formulation": "mean"}, "`formulation` must be one of out, in"),
        ({"denominator": "none"}, "`denominator` must be one of all, one_pos"),
        ({"anchor_views": "one"}, "`anchor_views` must be one of all, first"),
        ({"positives_cap": 0}, "`positives_cap` must be at least 1 with 2"),
        ({"positives_cap": 2.5}, "`positives_cap` must be an integer, or None"),
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
        (
            {"labels": None, "positives": "all"},
            "`labels` must be given with `positives` or .*, got all without",
        ),
        (
            {
                "labels": None,
                "positive_mask": np.eye(4),
                "unsupervised_classes": (1,),
            },
            r"`labels` must be given .* got \(1,\) without",
        ),
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


@pytest.mark.parametrize("loss", [losses.supcon_loss, losses.tiled_supcon_loss])
def test_a_mask_with_weights_below_0_is_refused(loss):
    z, signs = vectors.unit([3, 2, 4]), 2 * np.eye(3) - 1  # -1 for negatives
    for mask in (signs, np.full([3, 3], np.nan)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least 0"):
            loss(z, positive_mask=mask)


def test_multi_hot_labels_are_refused():
    z = vectors.unit([2, 2, 4])
    for labels in ([[1, 1], [0, 1]], [[0, 0], [0, 1]], [[0.5, 0.5], [0, 1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one-hot"):
            losses.supcon_loss(z, labels)


def test_the_class_normalises_and_reduces():
    z, labels = vectors.unit([5, 2, 4]), np.array([0, 1, 0, 1, 2])
    sample_losses = losses.SupConLoss(reduction="none")(labels, z * 37)
    raw_loss = losses.SupConLoss(normalize=False, reduction="none")
    for actual, expected in (
        (sample_losses, losses.supcon_loss(z, labels)),
        (losses.SupConLoss()(labels, z), np.mean(sample_losses)),
        (raw_loss(labels, z * 1.5), losses.supcon_loss(z * 1.5, labels)),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_a_temperature_is_a_number():
    for loss in (losses.SupConLoss, losses.SimCLRLoss, losses.TripletLoss):
        for value in (tf.Variable(0.1), "0.1", None):
            with pytest.raises(ValueError, match="must be a number, such as"):
                loss(value)
    assert losses.SupConLoss(np.float32(0.5)).temperature == 0.5


def test_an_argument_set_later_counts():
    z, labels = vectors.unit([4, 2, 4]), [0, 1, 0, 1]
    for loss_class in (losses.SimCLRLoss, losses.SupConLoss):
        loss = loss_class(temperature=0.1)
        loss.temperature = 1.0
        assert loss(labels, z) == loss_class(temperature=1.0)(labels, z)


@pytest.mark.parametrize(
    "loss_class",
    [
        losses.SupConLoss,
        losses.SimCLRLoss,
        losses.NPairsLoss,
        losses.TripletLoss,
        losses.RankNContrastLoss,
    ],
)
def test_a_batch_of_no_rows_is_refused(loss_class):
    with pytest.raises(ValueError, match="must have at least one row, got sh"):
        loss_class()(np.zeros([0], int), np.zeros([0, 2, 4]))


@pytest.mark.parametrize("classes", [3, "3", [0.5]])
def test_unsupervised_classes_are_integers(classes):
    rule = "`unsupervised_classes` must be a sequence of integers"
    with pytest.raises(ValueError, match=rule):
        losses.SupConLoss(unsupervised_classes=classes)
    loss = losses.SupConLoss(unsupervised_classes=np.array([0]))
    assert loss.unsupervised_classes == (0,)


@pytest.mark.parametrize("labels", [[0], [0, 0, 0, 0, 1, 1, 1, 1]])
@pytest.mark.parametrize(
    "loss_class",
    [
        losses.SupConLoss,
        losses.HierarchicalSupConLoss,
        losses.NPairsLoss,
        losses.TripletLoss,
        losses.CrossEntropyLoss,
        losses.MaxMarginLoss,
        losses.BalancedSupConLoss,
        losses.PaCoLoss,
    ],
)
def test_labels_are_one_for_each_sample(loss_class, labels):
    """Not one for each view, and not one for all."""
    centres = models.ClassCentres(num_classes=2, dim=4)
    centres.build(None)
    options = {"centres": centres, "ancestors": [[0, 0], [0, 1]]}
    names = loss_class.__dataclass_fields__
    loss = loss_class(**{k: v for k, v in options.items() if k in names})
    message = rf"`labels` must have shape \[4\] .*, got \({len(labels)},\)"
    with pytest.raises(ValueError, match=message):
        loss(labels, vectors.unit([4, 2, 4]))
