"""MixUp and CutMix against NumPy, their labels, their distributions."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from supcon_tf import augment
from supcon_tf.augment import mixing

_MIXES = (augment.MixUp, augment.CutMix)
_SEED = np.array([3, 5], np.int32)


def _views(batch, num_views=2, height=12, width=16):
    """Random colours, but red is the position in the batch: who is who."""
    rng = np.random.default_rng(batch)
    shape = (batch, num_views, height, width, 3)
    views = rng.integers(0, 256, shape).astype(np.uint8)
    views[..., 0] = np.arange(batch).reshape(-1, 1, 1, 1)
    return views


def _mix(mix_class, alpha, views, seed=_SEED):
    """Mixes where each sample is a class of its own: labels tell all."""
    count = len(views)
    mix = tf.function(mix_class(count, alpha))
    mixed, soft = mix(views, np.arange(count), seed)
    assert mixed.dtype == tf.uint8 and soft.dtype == tf.float32
    assert mixed.shape == views.shape and soft.shape == (count, count)
    soft = soft.numpy()
    np.testing.assert_allclose(soft.sum(1, dtype=np.float64), 1, atol=1e-7)
    assert (soft >= 0).all()
    return mixed.numpy(), soft


def _partner(soft, i):
    """Who a sample met by its soft label; itself where it met nobody else."""
    partners = [j for j in np.flatnonzero(soft[i]) if j != i]
    assert len(partners) <= 1
    return partners[0] if partners else i


@pytest.mark.parametrize("alpha", [1e-9, 0.2, 1.0, 1e9])
def test_mixup_is_the_rounded_sum_that_the_labels_say(alpha):
    views = _views(24)
    mixed, soft = _mix(augment.MixUp, alpha, views)
    for i in range(24):
        weight = int(4096 * soft[i, i])
        assert weight == 4096 * soft[i, i]  # the pixels' weight, not about it
        partner = views[_partner(soft, i)].astype(np.int64)
        total = weight * views[i].astype(np.int64) + (4096 - weight) * partner
        np.testing.assert_array_equal(mixed[i], (total + 2048) // 4096)
    weights = soft.diagonal()
    if alpha == 1e-9:  # both gammas underflow: all or nothing
        assert set(weights) == {0.0, 1.0}
    elif alpha == 1e9:
        assert ((weights == 0.5) | (weights == 1)).all()
        assert (weights == 0.5).sum() > 18
    else:
        assert len(set(weights)) > 12


@pytest.mark.parametrize("alpha", [1e-9, 0.3, 1.0, 1e9])
def test_cutmix_pastes_a_box_and_the_labels_count_its_pixels(alpha):
    views = _views(40)
    mixed, soft = _mix(augment.CutMix, alpha, views)
    sizes = []
    for i in range(40):
        j = _partner(soft, i)
        pasted = mixed[i, 0, :, :, 0] != i  # [H, W]
        rows, columns = pasted.any(1), pasted.any(0)
        for side in (rows, columns):
            assert np.abs(np.diff(np.pad(side, 1).astype(int))).sum() in (0, 2)
        box = np.outer(rows, columns)
        np.testing.assert_array_equal(pasted, box)
        expected = np.where(box[..., None], views[j], views[i])
        np.testing.assert_array_equal(mixed[i], expected)  # in both views
        assert soft[i, i] == np.float32(1 - box.mean())
        is_inside = not (rows[[0, -1]].any() or columns[[0, -1]].any())
        if is_inside and box.any():  # of the aspect of the image
            assert abs(rows.sum() - columns.sum() * 12 / 16) < 1
        sizes.append((rows.sum(), columns.sum()))
    if alpha == 1e-9:
        assert (0, 0) in sizes
    if alpha == 1e9:  # side sqrt(1/2): 8 of 12, 11 of 16
        assert max(rows for rows, _ in sizes) == 8
        assert max(columns for _, columns in sizes) == 11


def test_share_of_the_box_is_that_of_the_paper():
    """Areas 1 - lambda, uniform centres, cut off: simulated in NumPy."""
    rng = np.random.default_rng(0)
    side = np.sqrt(1 - rng.beta(0.5, 0.5, 200_000))
    shares = 1.0
    for _ in range(2):
        center = rng.uniform(size=side.size)
        low, high = center - side / 2, center + side / 2
        shares = shares * (np.clip(high, 0, 1) - np.clip(low, 0, 1))
    count = 2000
    views = np.zeros((count, 1, 64, 96, 3), np.uint8)
    views[::2] = 255
    mixed, soft = _mix(augment.CutMix, 0.5, views)
    drawn_shares = 1 - soft.diagonal()
    error = shares.std() / np.sqrt(count)
    assert abs(drawn_shares.mean() - shares.mean()) < 4 * error
    assert drawn_shares.std() == pytest.approx(shares.std(), rel=0.05)
    assert stats.ks_2samp(drawn_shares, shares).pvalue > 1e-3
    changed = (mixed != views)[:, 0, :, :, 0].mean(0)  # [H, W]
    for flipped in (changed[::-1], changed[:, ::-1]):
        assert np.abs(changed - flipped).max() < 0.06


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 7.0])
def test_weights_are_beta(alpha):
    count = 20_000
    draws = mixing._beta(alpha, count, _SEED).numpy()
    assert ((draws >= 0) & (draws <= 1)).all()
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(draws.mean() - 0.5) < 4 * np.sqrt(variance / count)
    assert draws.var() == pytest.approx(variance, rel=0.04)
    # Float64 has no numbers between 1 - 2**-53 and 1: judge the lower half.
    lower = np.minimum(draws, 0.5)
    expected = stats.beta(alpha, alpha).cdf
    for quantile in np.linspace(0.001, 0.499, 50):
        assert abs((lower <= quantile).mean() - expected(quantile)) < 0.015
    if alpha > 0.1:
        assert stats.kstest(draws, expected).pvalue > 1e-3


def test_partners_are_a_random_permutation():
    mix = augment.MixUp(4, alpha=1e9)  # halves: labels show the partners

    def find_partners(step):
        seed = augment.fold_in(tf.constant([1, 0]), step)
        _, soft = mix(tf.zeros([4, 1, 1, 1, 3], tf.uint8), tf.range(4), seed)
        partner_weights = soft - 0.5 * tf.eye(4)
        partners = tf.argmax(partner_weights, axis=1)
        return partners, tf.reduce_sum(partner_weights, axis=0)

    partners, weight_sums = zip(
        *tf.data.Dataset.range(960).map(find_partners).as_numpy_iterator(),
        strict=True,
    )
    np.testing.assert_array_equal(weight_sums, 0.5)  # everybody once
    _, counts = np.unique(partners, axis=0, return_counts=True)
    assert len(counts) == 24  # 4!
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("mix_class", _MIXES)
def test_the_seed_decides_everywhere_alike(mix_class):
    views, labels = _views(9), np.arange(9, dtype=np.uint8) % 3
    mix = mix_class(3, alpha=1.0)
    expected = mix(views, labels, _SEED)
    graph = tf.function(
        mix,
        input_signature=[
            tf.TensorSpec([None, 2, 12, 16, 3], tf.uint8),
            tf.TensorSpec([None], tf.uint8),
            tf.TensorSpec([2], tf.int32),
        ],
    )
    dataset = tf.data.Dataset.from_tensor_slices((views, labels)).batch(9)
    dataset = dataset.map(lambda *batch: graph(*batch, _SEED))
    assert dataset.element_spec[0].shape.as_list() == [None, 2, 12, 16, 3]
    assert dataset.element_spec[1].shape.as_list() == [None, 3]
    rebuilt = mix_class(**mix.get_config())
    for result in (
        graph(views, labels, _SEED),
        next(iter(dataset)),
        rebuilt(views, labels, _SEED),
    ):
        for tensor, expected_tensor in zip(result, expected, strict=True):
            np.testing.assert_array_equal(tensor, expected_tensor)
    for seed in ([3, 6], [4, 5]):
        result = graph(views, labels, tf.constant(seed))
        assert (result[0] != expected[0]).numpy().any()
        assert (result[1] != expected[1]).numpy().any()
    _, soft = mix(views, np.full(9, 2), _SEED)  # equal labels stay hard
    np.testing.assert_array_equal(soft, np.eye(3)[[2] * 9])
    for alpha in (1e-320, 1e300):
        _mix(mix_class, alpha, _views(8, 1, 2, 2))
    no_views, no_labels = mix(views[:0], labels[:0], _SEED)
    assert no_views.shape == (0, 2, 12, 16, 3) and no_labels.shape == (0, 3)


@pytest.mark.parametrize("mix_class", _MIXES)
def test_errors_name_value_and_rule(mix_class):
    for alpha in (0.0, -1.0, float("inf"), float("nan")):
        message = f"`alpha` must be positive and finite, got {alpha}"
        with pytest.raises(ValueError, match=message):
            mix_class(10, alpha)
    with pytest.raises(ValueError, match="`num_classes` must be at least 2, g"):
        mix_class(1)
    mix, views, labels = mix_class(4), _views(4), np.arange(4)
    for bad_views in (views[:, 0], views[..., :2], views.astype(np.float32)):
        with pytest.raises(ValueError, match=r"`views` must be \[batch, views"):
            mix(bad_views, labels, _SEED)
    for bad_labels in (
        labels[:3],
        labels.astype(np.float32),
        np.eye(4, dtype=int),
    ):
        with pytest.raises(ValueError, match="`labels` must be .batch. integ"):
            mix(views, bad_labels, _SEED)
    for bad_seed in (tf.zeros([4, 2], tf.int32), tf.zeros([2]), tf.constant(3)):
        with pytest.raises(ValueError, match=r"`seed` must be \[2\] int32, go"):
            mix(views, labels, bad_seed)
    for bad_labels in (labels + 1, labels - 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match="in 0 ... 3"):
            tf.function(mix)(views, bad_labels, _SEED)
