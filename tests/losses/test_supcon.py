"""supcon_loss against the paper's loops and closed forms."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.losses import supcon
from supcon_tf.losses.options import Options
from tests import reference
from tests.losses import vectors

LABELS = {  # positives from other samples: none, one, many
    "none": [5, -3, 0, 12, 7],
    "one": [1, 0, 1, 0, 9],
    "many": [4, 4, -2, 4, -2],
}


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("positives", list(LABELS))
@pytest.mark.parametrize(
    "temperature", [0.1, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_equals_the_papers_loops(views, positives, temperature):
    z, labels = vectors.unit([5, views, 4]), LABELS[positives]
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        denominator=vectors.DENOMINATORS,
        anchor_views=("all", "first"),
        positives_cap=(None, max(views - 1, 1), views + 1, 100),
        temperature=[temperature],
        scale_by_temperature=[views == 2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(z, labels, **options),
            reference.supcon_loss(z, labels, **options),
            rtol=1e-5,
            atol=1e-5,
            err_msg=str(options),
        )


FAMILY = [
    {"denominator": "sincere"},
    {"denominator": "one_positive", "margin": 0.7},
    {"denominator": "one_positive", "margin": 0.7, "hardness": 2.0},
    {"hardness": 2.0},
    {"hardness": 1.0, "positives_cap": 3, "formulation": "in"},
    {"hardness": 1.0, "denominator": "only_negatives"},
    {"spread": 0.4, "denominator": "sincere"},
    {"spread": 0.4, "positives_cap": 3, "formulation": "in"},
]


def test_every_option_is_compared_with_the_loops():
    """In windows and by sums too: a new option needs a row of FAMILY."""
    names = {field.name for field in dataclasses.fields(Options)}
    papers = {"temperature", "formulation", "denominator", "positives_cap"}
    papers |= {"anchor_views", "scale_by_temperature"}  # the first test
    others = {"positives", "unsupervised_classes"}  # tests of their own
    assert names == papers | others | {name for row in FAMILY for name in row}


@pytest.mark.parametrize("options", FAMILY)
@pytest.mark.parametrize("positives", [None, "any"])
def test_the_family_equals_the_loops(options, positives):
    """All pairs at once and in windows; a negative's weight is a constant."""
    z = vectors.unit([5, 2, 4], seed=2)
    labels = LABELS["one"]
    if positives:
        labels = np.array([[1, 0], [1, 1], [0, 0], [0, 1], [1, 0]])
    options = options | {"temperature": 0.3, "positives": positives}
    weights = np.arange(1.0, 6.0)
    differences = reference.finite_differences(
        lambda moved: (
            weights
            * reference.supcon_loss(moved, labels, constants=z, **options)
        ).sum(),
        z,
    )
    for function, tiling in (
        (losses.supcon_loss, {}),
        (losses.tiled_supcon_loss, {"unit_length": True}),
        (losses.tiled_supcon_loss, {"tile_rows": 4}),
    ):
        value, gradient = vectors.value_and_gradient(
            lambda z, f=function, t=tiling: f(z, labels, **options, **t),
            z,
            weights,
        )
        np.testing.assert_allclose(
            value, reference.supcon_loss(z, labels, **options), rtol=1e-5
        )
        np.testing.assert_allclose(gradient, differences, atol=1e-5)


@pytest.mark.parametrize("unsupervised", [(1,), (9, -4)])
@pytest.mark.parametrize("options", [{}, FAMILY[0], {"positives_cap": 2}])
def test_unsupervised_classes_have_their_own_views_alone(unsupervised, options):
    """All pairs at once, in windows, by sums; a queue's rows of the class."""
    z, labels = vectors.unit([5, 2, 4], seed=2), [1, 9, 1, -4, 9]
    queue, queue_labels = vectors.unit([4, 4], seed=3), [9, 1, 9, -4]
    options = options | {"unsupervised_classes": unsupervised}
    expected = reference.supcon_loss(
        z,
        labels,
        temperature=0.1,
        queue=queue,
        queue_labels=queue_labels,
        **options,
    )
    dense = losses.supcon_loss(
        z,
        labels,
        contrast_projections=queue,
        contrast_labels=queue_labels,
        contrast_mask=[True] * 4,
        **options,
    )
    rows = losses.ProjectionQueue(4, 4)
    rows.enqueue(queue, queue_labels)
    for implementation in ("dense", "tiled"):
        loss = losses.SupConLoss(
            queue=rows,
            implementation=implementation,
            reduction="none",
            **options,
        )
        np.testing.assert_allclose(loss(np.array(labels), z), expected, 1e-5)
    np.testing.assert_allclose(dense, expected, rtol=1e-5)
    np.testing.assert_allclose(
        losses.tiled_supcon_loss(z, labels, **options),
        reference.supcon_loss(z, labels, temperature=0.1, **options),
        rtol=1e-5,
    )


def test_options_that_do_not_go_together_are_refused():
    z = vectors.unit([4, 2, 3])
    for options, message in (
        ({"spread": 1.0}, "`spread` must be in 0 ... 1, got 1.0"),
        (
            {"unsupervised_classes": (1,), "positives": "any"},
            "`unsupervised_classes` must be empty with `positives`",
        ),
        ({"margin": 0.1}, "`margin` must be 0 but with the denominator one_p"),
        ({"hardness": -1.0}, "`hardness` must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.supcon_loss(z, [0, 1, 0, 1], **options)
        with pytest.raises(ValueError, match=message):
            losses.SupConLoss(**options)
    with pytest.raises(ValueError, match="`spread` must be 0 with one view"):
        losses.supcon_loss(z[:, :1], [0, 1, 0, 1], spread=0.5)


@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
def test_gradient_equals_finite_differences(formulation):
    z, labels = vectors.unit([4, 2, 3], seed=1), [0, 1, 0, 0]
    for options in vectors.combinations(
        formulation=[formulation],
        denominator=vectors.DENOMINATORS,
        positives_cap=(None, 2),
        temperature=[0.3],
    ):
        _, gradient = vectors.supcon_value_and_gradient(z, labels, **options)
        expected = reference.finite_differences(
            lambda z, loss_options=options: reference.supcon_loss(
                z, labels, **loss_options
            ).sum(),
            z,
        )
        np.testing.assert_allclose(
            gradient, expected, atol=2e-6, err_msg=str(options)
        )


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_gradient_of_one_anchor_is_supplement_eq_8(formulation):
    z = vectors.unit([9, 5], seed=2)
    labels = np.array([0, 0, 1, 0, 2, 1, 0, 2, 2])
    _, gradient = vectors.supcon_value_and_gradient(
        z[None, :1],  # one sample, one view
        labels[:1],
        temperature=0.1,
        formulation=formulation,
        scale_by_temperature=False,
        contrast_projections=z[1:],
        contrast_labels=labels[1:],
    )
    expected = reference.anchor_gradient(
        z[0], z[1:], labels[1:] == labels[0], 0.1, formulation
    )
    np.testing.assert_allclose(gradient[0, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_gradient_through_the_norm_is_supplement_eq_12(formulation):
    w = np.random.default_rng(3).normal(size=[1, 1, 4]) * 7
    contrasts = vectors.unit([6, 4], seed=4)
    labels = np.array([1, 0, 1, 1, 0, 2])
    _, gradient = vectors.value_and_gradient(
        lambda w: losses.supcon_loss(
            tf.math.l2_normalize(w, axis=-1),
            [1],
            temperature=0.2,
            formulation=formulation,
            scale_by_temperature=False,
            contrast_projections=contrasts,
            contrast_labels=labels,
        ),
        w,
    )
    norm = np.linalg.norm(w)
    z = w[0, 0] / norm
    inner = reference.anchor_gradient(
        z, contrasts, labels == 1, 0.2, formulation
    )
    expected = (inner - np.dot(z, inner) * z) / norm
    np.testing.assert_allclose(gradient[0, 0], expected, rtol=1e-5, atol=1e-6)


def test_tetrahedron_gives_log_3():
    z = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    z = z.reshape(2, 2, 3) / math.sqrt(3)
    for labels in (None, [0, 1]):
        raw = losses.supcon_loss(
            z, labels, temperature=1.0, scale_by_temperature=False
        )
        np.testing.assert_allclose(raw, [math.log(3)] * 2, rtol=1e-6)
    scaled = losses.supcon_loss(z, temperature=0.1)
    np.testing.assert_allclose(scaled, [0.1 * math.log(3)] * 2, rtol=1e-6)


def test_orthonormal_samples_give_the_closed_form():
    z = np.repeat(np.eye(3)[:, None], 2, axis=1)
    log_d = math.log(math.e + 4)
    np.testing.assert_allclose(
        losses.supcon_loss(z, [0, 0, 1], temperature=1.0),
        [log_d - 1 / 3, log_d - 1 / 3, log_d - 1],
        rtol=1e-6,
    )


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_equal_projections_give_chance_level(formulation):
    z = np.tile(vectors.unit([1, 1, 8]), [6, 2, 1])
    for scale in (True, False):
        loss = losses.supcon_loss(
            z,
            [0, 1, 1, 2, 2, 2],
            temperature=0.1,
            formulation=formulation,
            scale_by_temperature=scale,
        )
        chance = supcon.chance_loss(11, 0.1, scale)
        np.testing.assert_allclose(loss, [chance] * 6, rtol=1e-5)
    assert supcon.chance_loss(511, 0.1, False) == pytest.approx(math.log(511))


def test_chance_level_is_the_plateau_that_users_reported():
    # tau / 0.07 scaling, batches 256 and 64: the numbers in public threads.
    for batch, reported in ((256, 8.909), (64, 6.920)):
        chance = supcon.chance_loss(2 * batch - 1, 0.1, False) / 0.7
        assert chance == pytest.approx(reported, abs=2e-3)


def test_in_a_narrow_cone_l_out_costs_the_variance_of_similarities():
    """With it docs/guides/training.md explains slow first epochs."""
    around = np.eye(1, 16) + 0.1 * np.random.default_rng(0).normal(
        size=(96, 16)
    )
    z = around / np.linalg.norm(around, axis=-1, keepdims=True)
    labels = np.arange(96) % 3
    logits = z @ z.T / 0.2
    is_contrast = ~np.eye(96, dtype=bool)
    is_positive = (labels[:, None] == labels) & is_contrast

    def over_pairs(measure, pairs):
        return np.array(
            [
                measure(row[mask])
                for row, mask in zip(logits, pairs, strict=True)
            ]
        )

    pull = over_pairs(np.mean, is_positive) - over_pairs(np.mean, is_contrast)
    spread, spread_of_same = (
        over_pairs(np.var, is_contrast),
        over_pairs(np.var, is_positive),
    )
    expected = {
        "out": math.log(95) - pull + spread / 2,
        "in": math.log(95) - pull + (spread - spread_of_same) / 2,
    }
    for formulation, by_anchor in expected.items():
        results = losses.supcon_loss(
            z[:, np.newaxis],
            labels,
            temperature=0.2,
            formulation=formulation,
            scale_by_temperature=False,
        )
        # What is left out is of the third order.
        error = abs(np.mean(results) - by_anchor.mean())
        assert error < 0.1 * spread.mean() / 2


@pytest.mark.parametrize("denominator", ["all", "only_negatives"])
def test_inside_is_at_most_outside(denominator):
    z = vectors.unit([8, 2, 4], seed=5)
    labels = [0, 0, 1, 1, 1, 2, 2, 0]
    loss_out, loss_in = (
        losses.supcon_loss(
            z, labels, formulation=formulation, denominator=denominator
        ).numpy()
        for formulation in ("out", "in")
    )
    assert (loss_in <= loss_out + 1e-6).all()
    assert (loss_in < loss_out - 1e-3).any()


def test_self_supervised_is_every_sample_its_own_class():
    z = vectors.unit([6, 3, 4])
    np.testing.assert_array_equal(
        losses.supcon_loss(z), losses.supcon_loss(z, [9, 4, 2, 0, -1, 7])
    )


@pytest.mark.parametrize("cap", [None, 3])
def test_permutation_of_samples_and_views(cap):
    rng = np.random.default_rng(0)
    z, labels = vectors.unit([7, 3, 4]), np.array([0, 0, 1, 0, 1, 2, 0])
    views = rng.permutation(3)
    np.testing.assert_allclose(
        losses.supcon_loss(z[:, views], labels, positives_cap=2),
        losses.supcon_loss(z, labels, positives_cap=2),
        rtol=1e-5,
    )
    # A cap follows the cyclic batch order, which a rotation keeps.
    order = rng.permutation(7) if cap is None else np.roll(np.arange(7), 3)
    np.testing.assert_allclose(
        losses.supcon_loss(z[order], labels[order], positives_cap=cap),
        losses.supcon_loss(z, labels, positives_cap=cap).numpy()[order],
        rtol=1e-5,
    )


def test_cap_of_own_views_leaves_the_class_out_altogether():
    z = vectors.unit([4, 2, 4])
    capped = losses.supcon_loss(z, [0, 0, 1, 2], positives_cap=1)
    without = losses.supcon_loss(z[[0, 2, 3]], [0, 1, 2])
    np.testing.assert_allclose(capped[0], without[0], rtol=1e-5)
