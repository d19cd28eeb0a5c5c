import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw

from supcon_tf.augment import affine
from tests.augment import inputs

_FILL = (3, 77, 200)
_GRAY = (128, 128, 128)
_SHAPES = [(1, 1), (1, 9), (9, 1), (2, 3), (17, 24), (31, 33), (32, 32)]
_SHAPES += [(224, 224)]
_ANGLES = (0, 1, 7.3, 15, 29.99, 30, 45, 60, 90, 120, 180, 270, 359, 750.5)
_FACTORS = (0, 1e-7, 0.01, 0.1, 0.123, 0.3, 0.5, 1)
# The last two round differently in fixed point than in floats.
_PIXELS = (0, 0.25, 0.5, 1, 1.5, 10.7, 31, 150, 300, 1e4, 0.499998, 1.499999)
# Shears and translations: what stands where in the matrix of the identity.
_MOVES = {1: _FACTORS, 3: _FACTORS, 2: _PIXELS, 5: _PIXELS}
_IDENTITY = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])


def _pictures(count: int, height: int, width: int) -> np.ndarray:
    """Random, constant, two-valued and fill-colored images in turn."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (count, height, width, 3))
    pictures[1::4] = 255
    pictures[2::4] = 255 * (pictures[2::4] > 128)
    pictures[3::4] = np.where(pictures[3::4, ..., :1] > 128, _FILL, 0)
    return pictures.astype(np.uint8)


def _signed(values) -> np.ndarray:
    return np.array([*values, *(-value for value in values)], np.float32)


def _assert_is_pils(matrices, height, width, fill=_FILL):
    matrices = np.asarray(matrices, np.float64)
    pictures = _pictures(len(matrices), height, width)
    results = affine.affine_transform(pictures, matrices, fill).numpy()
    for picture, result, matrix in zip(
        pictures, results, matrices, strict=True
    ):
        image = Image.fromarray(picture)
        expected = image.transform(
            image.size,
            Image.Transform.AFFINE,
            tuple(matrix.tolist()),
            Image.Resampling.NEAREST,
            fillcolor=fill,
        )
        np.testing.assert_array_equal(result, expected, str(matrix))


def _matrices(count: int, side: int) -> np.ndarray:
    """Any maps, scalings, shears and maps in quarters of a pixel in turn."""
    rng = np.random.default_rng(1)
    matrices = rng.normal(size=(count, 6))
    matrices[:, [2, 5]] *= side
    matrices[1::3, [1, 3]] = 0
    matrices[1::6, [0, 4]] = rng.choice([1 / 3, 0.1, 0.7, -0.1, 1, -1, 2], 2)
    matrices[1::6, [2, 5]] = rng.integers(-side, side, 2) / 6
    matrices[2::3] = np.round(4 * matrices[2::3]) / 4
    matrices[2::9, [0, 1, 2, 4, 5]] = (1, 0, 0, 1, 0)
    matrices[5::9, [0, 2, 3, 4, 5]] = (1, 0, 0, 1, 0)
    return matrices


@pytest.mark.parametrize(
    "entry, fill", [(1, _FILL), (3, _GRAY), (2, _GRAY), (5, _FILL)]
)
def test_moves_are_exactly_pil(entry, fill):
    values = _signed(_MOVES[entry]).astype(np.float64)
    for height, width in _SHAPES:
        matrices = _IDENTITY + values[:, None] * np.eye(6)[entry]
        _assert_is_pils(matrices, height, width, fill)


def test_rotations_are_exactly_pil(fill=_FILL):
    random_degrees = np.random.default_rng(0).uniform(-400, 400, 20)
    degrees = _signed([*_ANGLES, 1e-3, 36000032, *random_degrees])
    for height, width in _SHAPES:
        pictures = _pictures(len(degrees), height, width)
        matrices = affine.rotation_matrices(degrees, height, width)
        assert matrices.dtype == tf.float64
        results = affine.affine_transform(pictures, matrices, fill).numpy()
        for picture, result, value in zip(
            pictures, results, degrees, strict=True
        ):
            image = Image.fromarray(picture)
            expected = np.asarray(image.rotate(float(value), fillcolor=fill))
            np.testing.assert_array_equal(result, expected, str(value))


@pytest.mark.parametrize("height, width", _SHAPES)
def test_any_map_is_exactly_pil(height, width):
    _assert_is_pils(_matrices(60, max(height, width)), height, width)


def test_scalings_add_up_their_rounding_errors_as_in_pil():
    # Thirds and tenths of a pixel meet whole pixels, where it shows.
    steps = np.repeat([1 / 3, 0.1, 0.7, 5 / 6, 1.1, -0.1, -1 / 3], 7)
    offsets = np.tile(np.arange(7) / 6, 7) + (steps < 0) * 40.0
    matrices = np.zeros([len(steps), 6])
    matrices[:, 0] = matrices[:, 4] = steps
    matrices[:, 2] = matrices[:, 5] = offsets - steps / 2
    _assert_is_pils(matrices, 60, 50)


@pytest.mark.parametrize("height, width", [(1, 1), (2, 7), (32, 32), (61, 40)])
def test_cutout_is_a_filled_square(height, width):
    rng = np.random.default_rng(0)
    count = 60
    centers = rng.integers(-3, [height + 3, width + 3], (count, 2))
    centers[:4] = (0, 0), (0, width - 1), (height - 1, 0), (height, width)
    half_sides = rng.integers(0, max(height, width), count)
    pictures = _pictures(count, height, width)
    results = affine.cutout(
        pictures, centers.astype(np.int32), half_sides.astype(np.int32), _FILL
    ).numpy()
    for picture, result, (row, column), half in zip(
        pictures, results, centers, half_sides, strict=True
    ):
        image = Image.fromarray(picture)
        if half:
            corners = (column - half, row - half)
            corners += (column + half - 1, row + half - 1)
            ImageDraw.Draw(image).rectangle(corners, fill=_FILL)
        np.testing.assert_array_equal(result, np.asarray(image))


def test_maps_far_outside_leave_the_fill_alone():
    far = np.array([1e4, -1e4, 1e9, -1e9, 3e38, -3e38])
    pictures = _pictures(len(far), 32, 32)
    expected = np.broadcast_to(np.uint8(_FILL), pictures.shape)
    for matrix, columns in (
        ([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [2]),
        ([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], [5]),
        ([1.0, 0.2, 0.0, 0.1, 1.0, 0.0], [2]),
        ([1.0, 0.2, 0.0, 0.1, 1.0, 0.0], [0, 2]),
        ([0.5, 0.0, 0.0, 0.0, 2.0, 0.0], [5]),
    ):
        matrices = np.tile(matrix, [len(far), 1])
        matrices[:, columns] = far[:, np.newaxis]
        result = affine.affine_transform(pictures, matrices, _FILL)
        np.testing.assert_array_equal(result, expected)


_RNG = np.random.default_rng(2)
_BATCHES = {
    affine.affine_transform: (_pictures(10, 20, 20), _matrices(10, 20)),
    affine.cutout: (
        _pictures(10, 20, 20),
        _RNG.integers(0, 20, (10, 2), np.int32),
        _RNG.integers(0, 10, 10, np.int32),
    ),
}


@pytest.mark.parametrize("operation", _BATCHES)
def test_same_everywhere_and_no_other_fills(operation):
    pictures, *arguments = _BATCHES[operation]
    eager = inputs.assert_same_everywhere(operation, pictures, *arguments)
    assert (eager != pictures).any((1, 2, 3)).sum() > 5
    for fill in ((0, 0), (0, 0, 256), (-1, 0, 0), (0.5, 0, 0)):
        with pytest.raises(ValueError, match="`fill` must be three numbers"):
            operation(pictures, *arguments, fill)
