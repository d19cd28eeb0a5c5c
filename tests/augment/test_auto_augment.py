from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from supcon_tf import augment
from supcon_tf.augment import operations, tables
from tests.augment import made

_POLICIES = tuple(tables.AUTO_AUGMENT)


@pytest.mark.parametrize("policy", _POLICIES)
def test_frequencies_are_those_of_the_table(policy, recorded):
    rows, _ = tables.AUTO_AUGMENT[policy]
    count = 40_000
    augment.AutoAugment(policy)(
        np.zeros([count, 1, 1, 3], np.uint8), made.seeds(count)
    )
    (first_steps, first, first_draws), (second_steps, second, _) = recorded
    # What is not seen of the draws: which sub-policy an image that got
    # neither operation had. So those are one cell.
    cells = {}
    for row, ((_, p, _), (_, q, _)) in enumerate(rows, 1):
        share = count / len(rows)
        cells[row, row] = share * p * q
        cells[row, 0] = share * p * (1 - q)
        cells[0, row] = share * (1 - p) * q
        cells[0, 0] = cells.get((0, 0), 0.0) + share * (1 - p) * (1 - q)
    seen = dict.fromkeys(cells, 0)
    for pair in zip(first.tolist(), second.tolist(), strict=True):
        seen[pair] += 1  # KeyError: operations of two sub-policies
    possible = [cell for cell in cells if cells[cell] > 0]
    assert all(seen[cell] == 0 for cell in cells if cell not in possible)
    test = stats.chisquare(
        [seen[cell] for cell in possible], [cells[cell] for cell in possible]
    )
    assert test.pvalue > 1e-3
    for place, steps in enumerate((first_steps, second_steps)):
        drawn = [(row[place][0], row[place][2]) for row in rows]
        assert steps == [("Identity", 0.0), *drawn]
    negative = np.mean(first_draws[:, 0] < 0.5)
    assert abs(negative - 0.5) < 0.01


@pytest.mark.parametrize("policy", _POLICIES)
def test_views_are_exactly_what_pil_makes_of_the_draws(policy, recorded):
    images, fill = made.noise(150, 32, 32, 3).numpy(), (7, 130, 250)
    policy_of = augment.AutoAugment(policy, fill)
    views = policy_of(images, made.seeds(150)).numpy()
    _, ranges = tables.AUTO_AUGMENT[policy]
    for i, image in enumerate(images):
        drawn = [(steps[choices[i]], d[i]) for steps, choices, d in recorded]
        expected = made.by_pil(image, drawn, ranges, fill)
        np.testing.assert_array_equal(views[i], expected)


@pytest.mark.parametrize(
    "policy, name, levels",
    [
        ("imagenet", "Posterize", {5: 6, 6: 6, 7: 6, 8: 7}),
        ("v0", "Posterize", {2: 1, 6: 2}),
        ("v0", "TranslateY", {9: 225.0}),
        ("cifar10", "TranslateX", {9: 0.9 * 150 * 224 / 331}),
    ],
)
def test_ranges_of_levels(policy, name, levels):
    _, ranges = tables.AUTO_AUGMENT[policy]
    for level, expected in levels.items():
        value = operations.argument(name, level, 224, ranges)
        assert value == pytest.approx(expected)


def test_config_and_errors():
    policy = augment.AutoAugment("svhn", fill=(1, 2, 3))
    again = augment.AutoAugment(**policy.get_config())
    assert again.get_config() == {"policy": "svhn", "fill": (1, 2, 3)}
    with pytest.raises(ValueError, match="one of imagenet, v0.* got 'v1'"):
        augment.AutoAugment("v1")
