from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from supcon_tf import augment
from supcon_tf.augment import tables
from tests.augment import made


@pytest.mark.parametrize("count", [14, 16])
def test_operations_are_drawn_uniformly_in_every_layer(count, recorded):
    examples = 30_000
    policy = augment.RandAugment(num_layers=3, num_operations=count)
    policy(np.zeros([examples, 1, 1, 3], np.uint8), made.seeds(examples))
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
    policy(np.zeros([count, 1, 1, 3], np.uint8), made.seeds(count))
    acted = np.count_nonzero(recorded[0][1])  # 16 of 17 draws are not identity
    assert stats.binomtest(acted, count, 0.3 * 16 / 17).pvalue > 1e-3


@pytest.mark.parametrize("magnitude", [0.5, 4.0, 10.0])
def test_views_are_exactly_what_pil_makes_of_the_draws(magnitude, recorded):
    images, fill = made.noise(150, 32, 32, 3).numpy(), (7, 130, 250)
    policy = augment.RandAugment(2, magnitude, fill=fill)
    views = policy(images, made.seeds(150)).numpy()
    for i, image in enumerate(images):
        drawn = [(steps[choices[i]], d[i]) for steps, choices, d in recorded]
        ranges = tables.RAND_AUGMENT_RANGES
        expected = made.by_pil(image, drawn, ranges, fill)
        np.testing.assert_array_equal(views[i], expected)


def test_no_probability_no_change():
    images = made.noise(20, 32, 32, 3)
    views = augment.RandAugment(probability=0.0)(images, made.seeds(20))
    np.testing.assert_array_equal(views, images)


def test_config_and_errors():
    policy = augment.RandAugment(3, 6.5, 14, 0.5, (1, 2, 3))
    again = augment.RandAugment(**policy.get_config())
    assert again.get_config() == policy.get_config()
    for arguments, message in (
        ({"num_layers": 0}, "`num_layers` must be >= 1, got 0"),
        ({"magnitude": 10.5}, "`magnitude` must be in .* got 10.5"),
        ({"num_operations": 15}, "`num_operations` must be 14 or 16, got 15"),
        ({"probability": -0.1}, "`probability` must be in .* got -0.1"),
        ({"fill": (1, 2, 300)}, "`fill` must be three numbers .* 300"),
    ):
        with pytest.raises(ValueError, match=message):
            augment.RandAugment(**arguments)
