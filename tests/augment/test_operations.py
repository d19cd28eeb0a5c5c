import numpy as np
import pytest

from supcon_tf.augment import operations, tables
from tests.augment import inputs

_RANGES = tables.RAND_AUGMENT_RANGES
_LEVELS = (0.0, 2.0, 5.0, 7.3, 10.0)
_STEPS = [(name, level) for name in operations.NAMES for level in _LEVELS]


def _pictures(count: int, height: int, width: int) -> np.ndarray:
    """Random, dark, constant, two-valued and smooth images in turn."""
    rng = np.random.default_rng(0)
    shape = (count, height, width, 3)
    pictures = rng.integers(0, 256, shape)
    pictures[1::5] = rng.integers(10, 90, shape)[1::5]
    pictures[2::5] = rng.integers(0, 256, (count, 1, 1, 3))[2::5]
    pictures[3::5] = 40 + 170 * (pictures[3::5] > 128)
    ramp = np.linspace(0, 255, width)[:, None] * (0.3, 0.6, 1.0)
    pictures[4::5] = ramp + rng.integers(0, 2, (height, width, 1))
    return np.clip(pictures, 0, 255).astype(np.uint8)


def _draws(count: int) -> np.ndarray:
    return np.random.default_rng(1).random((count, 3), np.float32)


@pytest.mark.parametrize("height, width", [(32, 32), (17, 23), (1, 9)])
def test_every_operation_at_every_level_is_exactly_pil(height, width):
    choices = np.tile(np.arange(len(_STEPS)), 4)
    pictures = _pictures(len(choices), height, width)
    draws = _draws(len(choices))
    fill = (200, 3, 90)
    results = operations.apply(
        pictures, _STEPS, choices, draws, _RANGES, fill
    ).numpy()
    for picture, result, choice, draw in zip(
        pictures, results, choices, draws, strict=True
    ):
        drawn_steps = [(_STEPS[choice], draw)]
        expected = inputs.by_pil(picture, drawn_steps, _RANGES, fill)
        np.testing.assert_array_equal(result, expected, f"{_STEPS[choice]}")


def test_same_in_a_function_in_a_pipeline_and_alone():
    choices = np.arange(len(_STEPS))
    pictures, draws = _pictures(len(choices), 20, 20), _draws(len(choices))

    inputs.assert_same_everywhere(
        lambda pictures, choices, draws: operations.apply(
            pictures, _STEPS, choices, draws, _RANGES
        ),
        pictures,
        choices,
        draws,
    )


def test_levels_that_change_nothing():
    steps = [
        *((name, 0.0) for name in (*operations.SIGNED, "Cutout")),
        *((name, 5.0) for name in ("Color", "Contrast", "Brightness")),
        ("Sharpness", 5.0),
        ("SolarizeAdd", 0.0),
        ("Solarize", 10.0),
    ]
    pictures = _pictures(len(steps), 32, 32)
    draws = _draws(len(steps))
    results = operations.apply(
        pictures, steps, np.arange(len(steps)), draws, _RANGES
    )
    np.testing.assert_array_equal(results, pictures)


@pytest.mark.parametrize(
    "policy, name, levels",
    [
        (None, "Rotate", {10: 30.0}),
        (None, "ShearX", {5: 0.15}),
        (None, "TranslateY", {10: 100.0}),
        (None, "Cutout", {10: 40, 3: 12}),
        # int(0.8) bits would leave a black image.
        (None, "Posterize", {10: 4, 5: 2, 2: 1}),
        (None, "Solarize", {10: 256, 5: 128}),
        (None, "SolarizeAdd", {10: 110}),
        (None, "Contrast", {0: 0.1, 10: 1.9}),
        (None, "Invert", {7: 0.0}),
        ("imagenet", "Posterize", {5: 6, 6: 6, 7: 6, 8: 7}),
        ("v0", "Posterize", {2: 1, 6: 2}),
        ("v0", "TranslateY", {9: 225.0}),
        ("cifar10", "TranslateX", {9: 0.9 * 150 * 224 / 331}),
    ],
)
def test_arguments_of_levels_at_224_pixels(policy, name, levels):
    """Of RandAugment, and of the policies of AutoAugment."""
    ranges = tables.AUTO_AUGMENT[policy][1] if policy else _RANGES
    for level, expected in levels.items():
        value = operations.argument(name, level, 224, ranges)
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_lengths_scale_with_the_side():
    for name in ("TranslateX", "TranslateY"):
        at_32 = operations.argument(name, 10, 32, _RANGES)
        assert at_32 == pytest.approx(100 * 32 / 224)
    assert operations.argument("Cutout", 10, 32, _RANGES) == 5  # int(5.71)
    for name in ("Rotate", "ShearX", "Posterize", "Solarize", "Color"):
        at_32 = operations.argument(name, 7, 32, _RANGES)
        assert at_32 == operations.argument(name, 7, 224, _RANGES)


@pytest.mark.parametrize("name, level", [("Blur", 1), ("Rotate", 11)])
def test_unknown_names_and_levels_are_refused(name, level):
    with pytest.raises(ValueError, match="got ('Blur'|11)"):
        operations.argument(name, level, 32, _RANGES)
