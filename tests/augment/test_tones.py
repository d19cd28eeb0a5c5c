import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from supcon_tf.augment import tones
from tests.augment import inputs

_SHAPES = [(17, 23), (32, 32), (40, 31), (2, 128), (1, 300), (9, 1), (1, 1)]
_THRESHOLDS = (0, 1, 2, 63, 128, 200, 254, 255, 256)
_ADDITIONS = (0, 1, 33, 110, 127, 128, 200, 255)


def _pictures(height: int = 17, width: int = 23) -> np.ndarray:
    """Images that tables may fail on, with all levels where they fit."""
    rng = np.random.default_rng(0)
    shape = (height, width, 3)
    ramp = np.resize(np.arange(256), shape[:2])
    speck = np.full(shape, 30)
    speck[-1, -1] = (31, 255, 0)
    dark = np.full(shape, 7)
    dark[0] = (200, 8, 255)
    one_constant = rng.integers(0, 256, shape)
    one_constant[..., 1] = 77
    pictures = [
        rng.integers(0, 256, shape),
        rng.integers(100, 120, shape),
        np.clip(rng.normal(128, 120, shape), 0, 255),
        np.clip(rng.normal(90, 9, shape), 0, 255),
        rng.integers(0, 2, shape) * 255,
        rng.integers(0, 2, shape) * 40 + (3, 100, 215),
        np.full(shape, 0),
        np.full(shape, 255),
        np.broadcast_to((255, 0, 128), shape),
        np.stack([ramp, 255 - ramp, ramp // 2], axis=-1),
        one_constant,
        speck,
        dark,
    ]
    return np.stack(pictures).astype(np.uint8)


def _crossed(pictures, numbers) -> tuple[np.ndarray, np.ndarray]:
    """Every picture with every number, in one batch."""
    return (
        np.repeat(pictures, len(numbers), axis=0),
        np.tile(np.array(numbers, np.int32), len(pictures)),
    )


def _by_pil(operation, pictures, *numbers) -> np.ndarray:
    return np.stack(
        [
            np.asarray(operation(Image.fromarray(picture), *map(int, levels)))
            for picture, *levels in zip(pictures, *numbers, strict=True)
        ]
    )


@pytest.mark.parametrize(
    "ours, pils, numbers",
    [
        (tones.auto_contrast, ImageOps.autocontrast, None),
        (tones.equalize, ImageOps.equalize, None),
        (tones.posterize, ImageOps.posterize, range(9)),
        (tones.solarize, ImageOps.solarize, _THRESHOLDS),
    ],
)
def test_operations_are_exactly_pil(ours, pils, numbers):
    for shape in _SHAPES:
        batch = [_pictures(*shape)]
        if numbers:
            batch = _crossed(*batch, numbers)
        result = ours(*map(tf.constant, batch))
        assert result.dtype == tf.uint8
        np.testing.assert_array_equal(result, _by_pil(pils, *batch))


def test_solarize_add_matches_numpy():
    pictures, additions = _crossed(_pictures(), _ADDITIONS)
    results = tones.solarize_add(pictures, additions)
    raised = pictures + additions[:, None, None, None]
    expected = np.where(pictures < 128, np.minimum(raised, 255), pictures)
    np.testing.assert_array_equal(results, expected)


def test_auto_contrast_is_pils_for_all_darkest_and_brightest():
    darkest, brightest = np.triu_indices(256, k=1)
    scale = 255.0 / (brightest - darkest)
    expected = np.arange(256) * scale[:, None] + (-darkest * scale)[:, None]
    expected = np.clip(expected, 0, 255).astype(np.uint8)
    expected = expected.reshape(-1, 3, 256)
    ends = np.stack([darkest, brightest], axis=-1).reshape(-1, 3, 2)
    levels = np.clip(np.arange(256), ends[..., :1], ends[..., 1:])
    images = np.swapaxes(levels, 1, 2)[:, None].astype(np.uint8)
    stretched = tones.auto_contrast(images)
    tables = np.take_along_axis(expected, levels, axis=2)
    np.testing.assert_array_equal(stretched[:, 0], np.swapaxes(tables, 1, 2))


def test_equalize_at_the_edge_of_changing_nothing():
    """254 pixels below the brightest level are too few, 255 suffice."""
    for count in (254, 255, 256, 509, 510):
        image = np.full([1, 1, count + 60, 3], 250, np.uint8)
        image[0, 0, :count] = np.arange(count)[:, None] % 100
        equal = tones.equalize(image)
        expected = _by_pil(ImageOps.equalize, image)
        np.testing.assert_array_equal(equal, expected)
        assert np.array_equal(equal, image) == (count == 254)


@pytest.mark.parametrize(
    "operation, high",
    [
        (tones.auto_contrast, None),
        (tones.equalize, None),
        (tones.posterize, 9),
        (tones.solarize, 257),
        (tones.solarize_add, 256),
    ],
)
def test_same_everywhere(operation, high):
    pictures = _pictures()
    rng = np.random.default_rng(1)
    count = len(pictures)
    levels = [rng.integers(0, high, count).astype(np.int32)] if high else []
    inputs.assert_same_everywhere(operation, pictures, *levels)
