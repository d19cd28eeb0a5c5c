"""supcon_loss and SupConLoss against the paper's loops and closed forms."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.losses import supcon
from tests import reference
from tests.losses import made

LABELS = {  # positives from other samples: none, one, many
    "none": [5, -3, 0, 12, 7],
    "one": [1, 0, 1, 0, 9],
    "many": [4, 4, -2, 4, -2],
}


def value_and_gradient(z, labels, **options):
    return made.value_and_gradient(
        lambda z: losses.supcon_loss(z, labels, **options), z
    )


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize("positives", list(LABELS))
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_papers_loops(views, positives, temperature):
    z, labels = made.unit([5, views, 4]), LABELS[positives]
    for options in made.combinations(
        formulation=made.FORMULATIONS,
        denominator=made.DENOMINATORS,
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


@pytest.mark.parametrize("formulation", made.FORMULATIONS)
def test_gradient_equals_finite_differences(formulation):
    z, labels = made.unit([4, 2, 3], seed=1), [0, 1, 0, 0]
    for options in made.combinations(
        formulation=[formulation],
        denominator=made.DENOMINATORS,
        positives_cap=(None, 2),
        temperature=[0.3],
    ):
        _, gradient = value_and_gradient(z, labels, **options)
        expected = reference.finite_differences(
            lambda x, o=options: reference.supcon_loss(x, labels, **o).sum(), z
        )
        np.testing.assert_allclose(
            gradient, expected, atol=2e-6, err_msg=str(options)
        )


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_gradient_of_one_anchor_is_supplement_eq_8(formulation):
    z = made.unit([9, 5], seed=2)
    labels = np.array([0, 0, 1, 0, 2, 1, 0, 2, 2])
    _, gradient = value_and_gradient(
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
    others = made.unit([6, 4], seed=4)
    labels = np.array([1, 0, 1, 1, 0, 2])
    _, gradient = made.value_and_gradient(
        lambda w: losses.supcon_loss(
            tf.math.l2_normalize(w, axis=-1),
            [1],
            temperature=0.2,
            formulation=formulation,
            scale_by_temperature=False,
            contrast_projections=others,
            contrast_labels=labels,
        ),
        w,
    )
    norm = np.linalg.norm(w)
    z = w[0, 0] / norm
    inner = reference.anchor_gradient(z, others, labels == 1, 0.2, formulation)
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
    z = np.tile(made.unit([1, 1, 8]), [6, 2, 1])
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
    for batch, seen in ((256, 8.909), (64, 6.920)):
        chance = supcon.chance_loss(2 * batch - 1, 0.1, False) / 0.7
        assert chance == pytest.approx(seen, abs=2e-3)


def test_in_a_narrow_cone_l_out_costs_the_variance_of_similarities():
    """The expansion that docs/TRAINING.md explains slow first epochs with."""
    around = np.eye(1, 16) + 0.1 * np.random.default_rng(0).normal(
        size=(96, 16)
    )
    z = around / np.linalg.norm(around, axis=-1, keepdims=True)
    labels = np.arange(96) % 3
    logits = z @ z.T / 0.2
    others = ~np.eye(96, dtype=bool)
    same = (labels[:, None] == labels) & others

    def of_pairs(measure, pairs):
        return np.array(
            [measure(row[of]) for row, of in zip(logits, pairs, strict=True)]
        )

    pull = of_pairs(np.mean, same) - of_pairs(np.mean, others)
    spread, spread_of_same = of_pairs(np.var, others), of_pairs(np.var, same)
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
    z = made.unit([8, 2, 4], seed=5)
    labels = [0, 0, 1, 1, 1, 2, 2, 0]
    out, inside = (
        losses.supcon_loss(
            z, labels, formulation=formulation, denominator=denominator
        ).numpy()
        for formulation in ("out", "in")
    )
    assert (inside <= out + 1e-6).all()
    assert (inside < out - 1e-3).any()


def test_self_supervised_is_every_sample_its_own_class():
    z = made.unit([6, 3, 4])
    np.testing.assert_array_equal(
        losses.supcon_loss(z), losses.supcon_loss(z, [9, 4, 2, 0, -1, 7])
    )


@pytest.mark.parametrize("cap", [None, 3])
def test_permutation_of_samples_and_views(cap):
    rng = np.random.default_rng(0)
    z, labels = made.unit([7, 3, 4]), np.array([0, 0, 1, 0, 1, 2, 0])
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
    z = made.unit([4, 2, 4])
    capped = losses.supcon_loss(z, [0, 0, 1, 2], positives_cap=1)
    without = losses.supcon_loss(z[[0, 2, 3]], [0, 1, 2])
    np.testing.assert_allclose(capped[0], without[0], rtol=1e-5)


def test_every_form_of_labels():
    z = made.unit([4, 2, 4])
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
    z = made.unit([4, 2, 4])
    labels = np.array([0, 1, 0, 1])
    same = (labels[:, None] == labels).astype(np.float32)
    np.testing.assert_allclose(
        losses.supcon_loss(z, positive_mask=same),
        losses.supcon_loss(z, labels),
        rtol=1e-6,
    )
    weights = np.random.default_rng(0).uniform(size=[4, 4]) * same
    for options in made.combinations(
        formulation=made.FORMULATIONS,
        denominator=made.DENOMINATORS,
        positive_mask=[weights],  # asymmetric, not binary
        temperature=[0.2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(z, **options),
            reference.supcon_loss(z, **options),
            rtol=1e-5,
        )


def test_contrasts_are_rows_that_are_no_anchors():
    z, labels = made.unit([6, 2, 4]), np.array([0, 1, 0, 1, 1, 2])
    whole = reference.supcon_loss(z, labels, temperature=0.1)
    split = losses.supcon_loss(
        z[:4],
        labels[:4],
        contrast_projections=z[4:],
        contrast_labels=labels[4:],
    )
    np.testing.assert_allclose(split, whole[:4], rtol=1e-5)
    # A queue: one row per entry; without labels all of them are negatives.
    queue = made.unit([5, 4], seed=9)
    labelled = losses.supcon_loss(
        z, np.arange(6), contrast_projections=queue, contrast_labels=[-1] * 5
    )
    unlabelled = losses.supcon_loss(z, contrast_projections=queue)
    np.testing.assert_allclose(labelled, unlabelled, rtol=1e-6)


def test_masked_contrasts_take_no_part():
    z, labels = made.unit([4, 2, 4]), [0, 1, 0, 2]
    further = made.unit([7, 4], seed=9)
    further_labels = np.array([0, 2, 1, 0, 0, 1, 3])
    mask = np.array([True, False, True, True, False])  # of the last five
    kept = np.array([True, True, *mask])
    for options in made.combinations(
        formulation=made.FORMULATIONS,
        denominator=made.DENOMINATORS,
        positives_cap=(None, 1, 3),
        temperature=[0.2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(
                z,
                labels,
                contrast_projections=np.concatenate([further[:2] * 0, further]),
                contrast_labels=[0, 0, *further_labels],
                contrast_mask=[False, False, True, True, *mask],
                **options,
            ),
            reference.supcon_loss(
                z,
                labels,
                queue=further[kept],
                queue_labels=further_labels[kept],
                **options,
            ),
            rtol=1e-5,
            err_msg=str(options),
        )
    # A mask of the last contrasts only; each of its rows is a queue's.
    loss = losses.supcon_loss(
        z, contrast_projections=further, contrast_mask=mask
    )
    expected = losses.supcon_loss(z, contrast_projections=further[kept])
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("temperature", [0.01, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_value_and_gradient_are_finite(dtype, temperature, scale):
    for views, labels in itertools.product(
        (1, 2), ([3], [0] * 5, [0, 1, 2, 3, 4], [0, 0, 1, 1, 2])
    ):
        z = tf.cast(made.unit([len(labels), views, 8]) * scale, dtype)
        for options in made.combinations(
            formulation=made.FORMULATIONS,
            denominator=made.DENOMINATORS,
            temperature=[temperature],
        ):
            loss, gradient = value_and_gradient(z, labels, **options)
            assert loss.dtype == np.float32
            assert np.isfinite(loss).all(), (labels, views, options)
            if scale <= 1:  # the raw gradient of 100 x in float16 overflows
                assert np.isfinite(tf.cast(gradient, tf.float32)).all()


def test_very_small_temperature_equals_the_oracle():
    z, labels = made.unit([6, 2, 8]), [0, 1, 0, 1, 2, 2]
    loss = losses.supcon_loss(z, labels, temperature=0.01)
    expected = reference.supcon_loss(z, labels, temperature=0.01)
    np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


def test_anchor_without_positives_has_loss_and_gradient_zero():
    z = made.unit([3, 1, 4])
    loss, gradient = value_and_gradient(z, [0, 1, 2])
    np.testing.assert_array_equal(loss, np.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros([3, 1, 4]))
    loss, _ = value_and_gradient(z, [0, 0, 2])
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
        return value_and_gradient(z, labels, **options)

    for batch in (3, 6):
        z = made.unit([batch, 2, 4]).astype(np.float32)
        labels = np.arange(batch, dtype=np.int32) % 2
        got = step(z, labels)
        expected = value_and_gradient(z, labels, **options)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


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
    good = {"projections": made.unit([4, 2, 4]), "labels": [0, 1, 0, 1]}
    with pytest.raises(ValueError, match=message):
        losses.supcon_loss(**{**good, **arguments})


def test_multi_hot_labels_are_refused():
    z = made.unit([2, 2, 4])
    for labels in ([[1, 1], [0, 1]], [[0, 0], [0, 1]], [[0.5, 0.5], [0, 1]]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="one-hot"):
            losses.supcon_loss(z, labels)


def test_the_class_is_per_sample_and_normalises():
    z, labels = made.unit([5, 2, 4]), np.array([0, 1, 0, 1, 2])
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
