import pytest

from supcon_tf.augment import operations, tables

# The sums of the published probabilities and levels.
_SUMS = {
    "imagenet": ("Posterize 0.4 8, Rotate 0.6 9", 31.0, 287),
    "v0": ("Equalize 0.8 1, ShearY 0.8 4", 29.8, 240),
    "cifar10": ("Invert 0.1 7, Contrast 0.2 6", 26.5, 267),
    "svhn": ("ShearX 0.9 4, Invert 0.2 3", 32.9, 231),
}


@pytest.mark.parametrize("policy", tables.AUTO_AUGMENT)
def test_sub_policies(policy):
    first, probabilities, levels = _SUMS[policy]
    rows, _ = tables.AUTO_AUGMENT[policy]
    steps = [step for row in rows for step in row]
    assert len(rows) == 25 and len(steps) == 50
    assert rows[0] == tuple(
        (name, float(probability), int(level))
        for name, probability, level in map(str.split, first.split(", "))
    )
    assert sum(step[1] for step in steps) == pytest.approx(probabilities)
    assert sum(step[2] for step in steps) == levels
    for name, probability, level in steps:
        assert name in operations.NAMES
        assert 0 <= probability <= 1 and 0 <= level <= 10


def test_operations_of_rand_augment():
    for names in tables.RAND_AUGMENT.values():
        assert len({*names}) == len(names) and {*names} <= {*operations.NAMES}
        assert names[0] == "Identity"
    fewer, more = tables.RAND_AUGMENT[14], tables.RAND_AUGMENT[16]
    assert (len(fewer), len(more)) == (14, 16 + 1)
    assert set(more) - set(fewer) == {"Invert", "SolarizeAdd", "Cutout"}
