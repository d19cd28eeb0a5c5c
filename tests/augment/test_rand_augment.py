from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from supcon_tf import augment
from supcon_tf.augment import operations, randomness, tables
from tests import pil


def _images(count: int, side: int = 32) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def _seeds(count: int, root: int = 11) -> tf.Tensor:
    return randomness.fold_in(tf.constant([root, 1]), tf.range(count))


@pytest.fixture
def recorded(monkeypatch):
    """The calls of `operations.apply`, which runs all the same."""
    calls, apply = [], operations.apply

    def record(images, steps, choices, draws, *others):
        calls.append((steps, np.asarray(choices), np.asarray(draws)))
        return apply(images, steps, choices, draws, *others)

    monkeypatch.setattr(operations, "apply", record)
    return calls


@pytest.mark.parametrize("count", [14, 16])
def test_operations_are_drawn_uniformly_in_every_layer(count, recorded):
    examples = 30_000
    policy = augment.RandAugment(num_layers=3, num_operations=count)
    policy(np.zeros([examples, 1, 1, 3], np.uint8), _seeds(examples))
    names = tables.RAND_AUGMENT[count]
    assert len(recorded) == 3
    for steps, choices, _ in recorded:
        assert steps == [(name, 10.0) for name in names]
        seen = np.bincount(choices, minlength=len(names))
        assert stats.chisquare(seen).pvalue > 1e-3
    pairs = recorded[0][1] * len(names) + recorded[1][1]  # independent layers
    seen = np.bincount(pairs, minlength=len(names) ** 2)
    assert stats.chisquare(seen).pvalue > 1e-3


def test_probability_is_that_of_a_layer(recorded):
    count = 20_000
    policy = augment.RandAugment(1, num_operations=16, probability=0.3)
    policy(np.zeros([count, 1, 1, 3], np.uint8), _seeds(count))
    acted = np.count_nonzero(recorded[0][1])  # 16 of 17 draws are not identity
    assert stats.binomtest(acted, count, 0.3 * 16 / 17).pvalue > 1e-3


@pytest.mark.parametrize("magnitude", [0.5, 4.0, 10.0])
def test_views_are_exactly_what_pil_makes_of_the_draws(magnitude, recorded):
    images, fill = _images(150), (7, 130, 250)
    policy = augment.RandAugment(2, magnitude, fill=fill)
    views = policy(images, _seeds(150)).numpy()
    for i, image in enumerate(images):
        for steps, choices, draws in recorded:
            name, level = steps[choices[i]]
            value = operations.argument(
                name, level, 32, tables.RAND_AUGMENT_RANGES
            )
            if name in operations.SIGNED and draws[i, 0] < 0.5:
                value = -value
            value = float(np.float32(value))
            image = pil.apply(name, image, value, draws[i, 1:], fill)
        np.testing.assert_array_equal(views[i], image)


def test_no_probability_no_change():
    images = _images(20)
    views = augment.RandAugment(probability=0.0)(images, _seeds(20))
    np.testing.assert_array_equal(views, images)


def test_config_and_errors():
    made = augment.RandAugment(3, 6.5, 14, 0.5, (1, 2, 3))
    again = augment.RandAugment(**made.get_config())
    assert again.get_config() == made.get_config()
    for arguments, message in (
        ({"num_layers": 0}, "`num_layers` must be >= 1, got 0"),
        ({"magnitude": 10.5}, "`magnitude` must be in .* got 10.5"),
        ({"num_operations": 15}, "`num_operations` must be 14 or 16, got 15"),
        ({"probability": -0.1}, "`probability` must be in .* got -0.1"),
        ({"fill": (1, 2, 300)}, "`fill` must be three numbers .* 300"),
    ):
        with pytest.raises(ValueError, match=message):
            augment.RandAugment(**arguments)
