"""What AutoAugment and RandAugment draw, and what PIL makes of it."""

import numpy as np
import pytest
from scipy import stats

from supcon_tf import augment
from supcon_tf.augment import operations, tables
from tests.augment import inputs

_POLICIES = tuple(tables.AUTO_AUGMENT)


@pytest.fixture
def recorded(monkeypatch):
    """The calls of `operations.apply`, which runs all the same."""
    calls, apply = [], operations.apply

    def record(images, steps, choices, draws, *arguments):
        calls.append((steps, np.asarray(choices), np.asarray(draws)))
        return apply(images, steps, choices, draws, *arguments)

    monkeypatch.setattr(operations, "apply", record)
    return calls


@pytest.mark.slow(but=["imagenet"])
@pytest.mark.parametrize("policy", _POLICIES)
def test_frequencies_are_those_of_the_table(policy, recorded):
    rows, _ = tables.AUTO_AUGMENT[policy]
    count = 30_000
    augment.AutoAugment(policy)(
        np.zeros([count, 1, 1, 3], np.uint8), inputs.seeds(count)
    )
    (first_steps, first, first_draws), (second_steps, second, _) = recorded
    # An image without an operation may have drawn any sub-policy: all such
    # images are one cell.
    cells = {}
    for row, ((_, p, _), (_, q, _)) in enumerate(rows, 1):
        share = count / len(rows)
        cells[row, row] = share * p * q
        cells[row, 0] = share * p * (1 - q)
        cells[0, row] = share * (1 - p) * q
        cells[0, 0] = cells.get((0, 0), 0.0) + share * (1 - p) * (1 - q)
    counts = dict.fromkeys(cells, 0)
    for pair in zip(first.tolist(), second.tolist(), strict=True):
        counts[pair] += 1  # KeyError: operations of two sub-policies
    possible = [cell for cell in cells if cells[cell] > 0]
    assert all(counts[cell] == 0 for cell in cells if cell not in possible)
    test = stats.chisquare(
        [counts[cell] for cell in possible], [cells[cell] for cell in possible]
    )
    assert test.pvalue > 1e-3
    for position, steps in enumerate((first_steps, second_steps)):
        expected_steps = [(row[position][0], row[position][2]) for row in rows]
        assert steps == [("Identity", 0.0), *expected_steps]
    negative = np.mean(first_draws[:, 0] < 0.5)
    assert abs(negative - 0.5) < 0.01


@pytest.mark.parametrize("count", tables.RAND_AUGMENT)
def test_operations_are_drawn_uniformly_in_every_layer(count, recorded):
    examples = 30_000
    policy = augment.RandAugment(num_layers=3, num_operations=count)
    policy(np.zeros([examples, 1, 1, 3], np.uint8), inputs.seeds(examples))
    names = tables.RAND_AUGMENT[count]
    assert len(recorded) == 3
    for steps, choices, _ in recorded:
        assert steps == [(name, 10.0) for name in names]
        counts = np.bincount(choices, minlength=len(names))
        assert stats.chisquare(counts).pvalue > 1e-3
    pairs = recorded[0][1] * len(names) + recorded[1][1]  # independent layers
    counts = np.bincount(pairs, minlength=len(names) ** 2)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_probability_is_that_of_a_layer(recorded):
    count = 20_000
    policy = augment.RandAugment(1, num_operations=16, probability=0.3)
    policy(np.zeros([count, 1, 1, 3], np.uint8), inputs.seeds(count))
    acted = np.count_nonzero(recorded[0][1])  # 16 of 17 draws are not identity
    assert stats.binomtest(acted, count, 0.3 * 16 / 17).pvalue > 1e-3


@pytest.mark.slow(but=["v0", "svhn", "4.0"])
@pytest.mark.parametrize("policy", [*_POLICIES, 0.5, 4.0, 10.0])
def test_views_are_exactly_pil_by_the_draws(policy, recorded):
    """Of the tables, or of RandAugment at a magnitude."""
    images, fill = inputs.noise(150, 32, 32, 3).numpy(), (7, 130, 250)
    if policy in _POLICIES:
        views = augment.AutoAugment(policy, fill)(images, inputs.seeds(150))
        _, ranges = tables.AUTO_AUGMENT[policy]
    else:
        drawing = augment.RandAugment(2, policy, fill=fill)
        views = drawing(images, inputs.seeds(150))
        ranges = tables.RAND_AUGMENT_RANGES
    for i, image in enumerate(images):
        drawn_steps = [
            (steps[choices[i]], d[i]) for steps, choices, d in recorded
        ]
        expected = inputs.by_pil(image, drawn_steps, ranges, fill)
        np.testing.assert_array_equal(views[i], expected)
