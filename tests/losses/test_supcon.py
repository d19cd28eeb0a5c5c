"""supcon_loss against the paper's loops and closed forms."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.losses import streaming, strips
from supcon_tf.losses.options import Options
from tests import reference
from tests.losses import vectors

LABELS = [4, 4, -2, 4, -2, 7]  # positives of other samples: two, one, none


@pytest.mark.parametrize("views", [1, 2, 3])
@pytest.mark.parametrize(
    "temperature", [0.1, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_equals_the_papers_loops(views, temperature):
    z = vectors.unit([6, views, 4])
    for options in vectors.combinations(
        formulation=vectors.FORMULATIONS,
        denominator=vectors.DENOMINATORS,
        positives_cap=(None, max(views - 1, 1), views + 1, 100),
        anchor_views=["first" if views == 3 else "all"],
        temperature=[temperature],
        scale_by_temperature=[views == 2],
    ):
        np.testing.assert_allclose(
            losses.supcon_loss(z, LABELS, **options),
            reference.supcon_loss(z, LABELS, **options),
            rtol=1e-5,
            atol=1e-5,
            err_msg=str(options),
        )


ONE_POSITIVE, ONLY_NEGATIVES = (
    {"denominator": name} for name in vectors.DENOMINATORS[1:]
)
INSIDE = {"formulation": "in"}
MASK = {"positive_mask": np.random.default_rng(0).integers(3, size=[5, 5]) / 2}
# Options, and what positives are by: a class where nothing else is said.
BRANCHES = [
    {},
    {"positives": "jaccard"},
    {"positives": "cosine", "anchor_views": "first"},
    INSIDE,
    INSIDE | {"positives": "soft"},
    INSIDE | {"positives_cap": 2},
    INSIDE | ONE_POSITIVE,
    INSIDE | ONLY_NEGATIVES | {"positives_cap": 3, "anchor_views": "first"},
    ONE_POSITIVE | {"positives_cap": 2, "scale_by_temperature": False},
    ONE_POSITIVE | {"positives": "all"},
    ONLY_NEGATIVES,
    ONLY_NEGATIVES | MASK,
    INSIDE | MASK,
    {"positives_cap": 1},
    {"positives_cap": 3, "positives": "any"},
    {"denominator": "sincere"},
    ONE_POSITIVE | {"margin": 0.7, "positives": "any"},
    ONE_POSITIVE | {"margin": 0.7, "hardness": 2.0},
    {"hardness": 2.0},
    INSIDE | {"hardness": 1.0, "positives_cap": 3},
    ONLY_NEGATIVES | {"hardness": 1.0, "positives": "any"},
    {"spread": 0.4, "denominator": "sincere"},
    INSIDE | {"spread": 0.4, "positives_cap": 3, "positives": "any"},
]


def test_every_option_is_in_a_branch():
    names = {field.name for field in dataclasses.fields(Options)}
    in_branches = {name for options in BRANCHES for name in options}
    # These two have tests below.
    in_branches |= {"temperature", "unsupervised_classes"}
    assert names == in_branches - {"positive_mask"}


@pytest.mark.parametrize("options", BRANCHES)
def test_every_implementation_equals_the_loops(options, monkeypatch):
    """All pairs at once, in windows, by sums; a negative's weight is fixed."""
    # Several tiles, strips and widths.
    monkeypatch.setattr(streaming, "_TILE_ROWS", 4)
    monkeypatch.setattr(strips, "_STRIP", 3)
    monkeypatch.setattr(strips, "_WIDTHS", (3, 5, 9))
    z, weights = vectors.unit([5, 2, 2], seed=2), np.arange(1.0, 6.0)
    labels = [1, 0, 1, 1, 9]
    if "positives" in options:
        labels = vectors.SETS[1:]
        if options["positives"] in ("soft", "cosine"):
            labels = labels * [0.7, 0.5, 0.3, 2.0]
    if "positive_mask" in options:
        labels = None
    options = options | {"temperature": 0.3}
    differences = reference.finite_differences(
        lambda moved: (
            weights
            * reference.supcon_loss(moved, labels, constants=z, **options)
        ).sum(),
        z,
    )
    expected = reference.supcon_loss(z, labels, **options), differences
    for function, tiling in (
        (losses.supcon_loss, {}),
        (losses.tiled_supcon_loss, {"unit_length": True}),
        (losses.tiled_supcon_loss, {"tile_rows": 3}),
    ):
        results = vectors.value_and_gradient(
            lambda z, f=function, t=tiling: f(z, labels, **options, **t),
            z,
            weights,
        )
        vectors.assert_close(results, expected, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("unsupervised", "options"),
    [((1,), {}), ((9, -4), ONE_POSITIVE), ((9, -4), {"positives_cap": 2})],
)
def test_unsupervised_classes_have_their_own_views_alone(unsupervised, options):
    """All pairs at once, in windows, by sums; a queue's rows of the class."""
    z, labels = vectors.unit([5, 2, 4], seed=2), [1, 9, 1, -4, 9]
    queued_z, queued_labels = vectors.unit([4, 4], seed=3), [9, 1, 9, -4]
    options = options | {"unsupervised_classes": unsupervised}
    queue = losses.ProjectionQueue(4, 4)
    queue.enqueue(queued_z, queued_labels)
    expected = reference.supcon_loss(
        z,
        labels,
        temperature=0.1,
        queue=queued_z,
        queue_labels=queued_labels,
        **options,
    )
    for implementation in ("dense", "tiled"):
        loss = losses.SupConLoss(
            queue=queue,
            implementation=implementation,
            reduction="none",
            **options,
        )
        np.testing.assert_allclose(loss(np.array(labels), z), expected, 1e-5)
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
        (
            {"margin": 0.1},
            "`margin` must be 0 but with the denominator sincere",
        ),
        ({"hardness": -1.0}, "`hardness` must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.supcon_loss(z, [0, 1, 0, 1], **options)
        with pytest.raises(ValueError, match=message):
            losses.SupConLoss(**options)
    with pytest.raises(ValueError, match="`spread` must be 0 with one view"):
        losses.supcon_loss(z[:, :1], [0, 1, 0, 1], spread=0.5)
    with pytest.raises(ValueError, match="`unsupervised_classes` must be empt"):
        losses.supcon_loss(z[:, :1], [0, 1, 0, 1], unsupervised_classes=(1,))


@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
def test_gradient_of_one_anchor_is_supplement_eq_8_and_12(formulation):
    """Of the projection, and through the norm of a longer vector."""
    w = np.random.default_rng(3).normal(size=[1, 1, 4]) * 7
    contrasts = vectors.unit([6, 4], seed=4)
    labels = np.array([1, 0, 1, 1, 0, 2])

    def loss(z):
        return losses.supcon_loss(
            z,
            [1],
            temperature=0.2,
            formulation=formulation,
            scale_by_temperature=False,
            contrast_projections=contrasts,
            contrast_labels=labels,
        )

    norm = np.linalg.norm(w)
    z = w[0, 0] / norm
    expected = reference.anchor_gradient(
        z, contrasts, labels == 1, 0.2, formulation
    )
    _, gradient = vectors.value_and_gradient(loss, w / norm)
    np.testing.assert_allclose(gradient[0, 0], expected, rtol=1e-5, atol=1e-5)
    _, gradient = vectors.value_and_gradient(
        lambda w: loss(tf.math.l2_normalize(w, axis=-1)), w
    )
    expected = (expected - np.dot(z, expected) * z) / norm
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


@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
@pytest.mark.parametrize("scale", [True, False])
def test_equal_projections_give_chance_level(formulation, scale):
    loss = losses.supcon_loss(
        np.tile(vectors.unit([1, 1, 8]), [6, 2, 1]),
        [0, 1, 1, 2, 2, 2],
        temperature=0.1,
        formulation=formulation,
        scale_by_temperature=scale,
    )
    chance = losses.chance_loss(11, 0.1, scale)
    np.testing.assert_allclose(loss, [chance] * 6, rtol=1e-5)


def test_chance_level_is_the_plateau_that_users_reported():
    # tau / 0.07 scaling, batches 256 and 64: the numbers in public threads.
    for batch, reported in ((256, 8.909), (64, 6.920)):
        chance = losses.chance_loss(2 * batch - 1, 0.1, False) / 0.7
        assert chance == pytest.approx(reported, abs=2e-3)


def test_in_a_narrow_cone_l_out_costs_the_variance_of_similarities():
    """With it docs/guides/training.md explains slow first epochs."""
    noise = 0.1 * np.random.default_rng(0).normal(size=[96, 16])
    z = np.eye(1, 16) + noise
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    labels = np.arange(96) % 3
    logits = z @ z.T / 0.2
    is_contrast = ~np.eye(96, dtype=bool)
    is_positive = (labels[:, None] == labels) & is_contrast

    def over_pairs(measure, mask):
        """A measure of the logits of each anchor in a mask, [96]."""
        return np.array(list(map(measure, logits[mask].reshape(96, -1))))

    pull = over_pairs(np.mean, is_positive) - over_pairs(np.mean, is_contrast)
    spread = over_pairs(np.var, is_contrast)
    positive_spread = over_pairs(np.var, is_positive)
    expected = {
        "out": math.log(95) - pull + spread / 2,
        "in": math.log(95) - pull + (spread - positive_spread) / 2,
    }
    for formulation, anchor_losses in expected.items():
        results = losses.supcon_loss(
            z[:, np.newaxis],
            labels,
            temperature=0.2,
            formulation=formulation,
            scale_by_temperature=False,
        )
        # What is left out is of the third order.
        error = abs(np.mean(results) - anchor_losses.mean())
        assert error < 0.1 * spread.mean() / 2
