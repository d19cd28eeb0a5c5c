from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageDraw

from supcon_tf.augment import affine

_FILL = (3, 77, 200)
_GRAY = (128, 128, 128)
_SHAPES = [
    (1, 1),
    (1, 9),
    (9, 1),
    (2, 3),
    (17, 24),
    (31, 33),
    (32, 32),
    (224, 224),
]
_ANGLES = (0, 1, 7.3, 15, 29.99, 30, 45, 60, 90, 120, 180, 270, 359, 750.5)
_FACTORS = (0, 1e-7, 0.01, 0.1, 0.123, 0.3, 0.5, 1)
# The last two round differently in fixed point than in floats.
_PIXELS = (0, 0.25, 0.5, 1, 1.5, 10.7, 31, 150, 300, 1e4, 0.499998, 1.499999)
_MOVES = {
    "rotate": (affine.rotate, _ANGLES, None),
    "shear_x": (affine.shear_x, _FACTORS, lambda v: (1, v, 0, 0, 1, 0)),
    "shear_y": (affine.shear_y, _FACTORS, lambda v: (1, 0, 0, v, 1, 0)),
    "translate_x": (affine.translate_x, _PIXELS, lambda v: (1, 0, v, 0, 1, 0)),
    "translate_y": (affine.translate_y, _PIXELS, lambda v: (1, 0, 0, 0, 1, v)),
}
_OPERATIONS = {
    **{name: move[0] for name, move in _MOVES.items()},
    "affine_transform": affine.affine_transform,
    "cutout": affine.cutout,
}


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


def _pil_affine(picture: np.ndarray, matrix, fill=_FILL) -> np.ndarray:
    image = Image.fromarray(picture)
    data = tuple(float(number) for number in matrix)
    nearest = Image.Resampling.NEAREST
    return np.asarray(
        image.transform(
            image.size, Image.Transform.AFFINE, data, nearest, fillcolor=fill
        )
    )


def _pil_rotate(picture: np.ndarray, degrees: float, fill=_FILL) -> np.ndarray:
    return np.asarray(
        Image.fromarray(picture).rotate(float(degrees), fillcolor=fill)
    )


def _pil_move(name: str, picture: np.ndarray, value: float, fill=_FILL):
    if name == "rotate":
        return _pil_rotate(picture, value, fill)
    return _pil_affine(picture, _MOVES[name][2](value), fill)


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


def _batch(operation: str, side: int = 20) -> tuple[np.ndarray, ...]:
    """Images and arguments, another for each image."""
    count = 10
    rng = np.random.default_rng(2)
    arguments = {
        "rotate": [rng.uniform(-30, 30, count)],
        "shear_x": [rng.uniform(-0.3, 0.3, count)],
        "shear_y": [rng.uniform(-0.3, 0.3, count)],
        "translate_x": [rng.uniform(-9, 9, count)],
        "translate_y": [rng.uniform(-9, 9, count)],
        "affine_transform": [_matrices(count, side)],
        "cutout": [
            rng.integers(0, side, (count, 2)),
            rng.integers(0, side // 2, count),
        ],
    }[operation]
    dtypes = {"affine_transform": np.float64, "cutout": np.int32}
    dtype = dtypes.get(operation, np.float32)
    return (
        _pictures(count, side, side),
        *(argument.astype(dtype) for argument in arguments),
    )


@pytest.mark.parametrize("name", _MOVES)
def test_moves_are_exactly_pil(name):
    operation, values, _ = _MOVES[name]
    for fill in (_FILL, _GRAY):
        for height, width in _SHAPES:
            arguments = _signed(values)
            pictures = _pictures(len(arguments), height, width)
            results = operation(pictures, arguments, fill).numpy()
            for picture, result, value in zip(
                pictures, results, arguments, strict=True
            ):
                expected = _pil_move(name, picture, value, fill)
                message = f"{value} at {height} x {width}"
                np.testing.assert_array_equal(result, expected, message)


@pytest.mark.parametrize("height, width", _SHAPES)
def test_affine_transform_is_exactly_pil(height, width):
    matrices = _matrices(60, max(height, width))
    pictures = _pictures(len(matrices), height, width)
    results = affine.affine_transform(pictures, matrices, _FILL).numpy()
    for picture, result, matrix in zip(
        pictures, results, matrices, strict=True
    ):
        expected = _pil_affine(picture, matrix)
        np.testing.assert_array_equal(result, expected, str(matrix))


def test_scalings_add_up_their_rounding_errors_as_in_pil():
    # Thirds and tenths of a pixel meet whole pixels, where it shows.
    steps = np.repeat([1 / 3, 0.1, 0.7, 5 / 6, 1.1, -0.1, -1 / 3], 7)
    offsets = np.tile(np.arange(7) / 6, 7) + (steps < 0) * 40.0
    matrices = np.zeros([len(steps), 6])
    matrices[:, 0] = matrices[:, 4] = steps
    matrices[:, 2] = matrices[:, 5] = offsets - steps / 2
    pictures = _pictures(1, 60, 50).repeat(len(steps), axis=0)
    results = affine.affine_transform(pictures, matrices).numpy()
    for picture, result, matrix in zip(
        pictures, results, matrices, strict=True
    ):
        expected = _pil_affine(picture, matrix, _GRAY)
        np.testing.assert_array_equal(result, expected, str(matrix))


@pytest.mark.parametrize("height, width", [(224, 224), (31, 50)])
def test_rotation_matrices_are_pils(monkeypatch, height, width):
    seen = []
    monkeypatch.setattr(
        Image.Image, "transform", lambda *arguments, **_: seen.append(arguments)
    )
    degrees = np.random.default_rng(0).uniform(-400, 400, 500)
    degrees = np.array([45, -1e-3, 36000032, *degrees], np.float32)
    for value in degrees:
        Image.new("RGB", (width, height)).rotate(float(value))
    expected = [arguments[3] for arguments in seen]
    matrices = affine.rotation_matrices(degrees, height, width)
    assert matrices.dtype == tf.float64
    # The 15th decimal may differ: it is 1e-10 of a step in fixed point.
    np.testing.assert_allclose(matrices, expected, rtol=0, atol=1e-12)


def test_right_angles_have_exact_matrices():
    matrices = affine.rotation_matrices([0.0, 90.0, -90.0, 180.0], 4, 6)
    expected = [
        (1, 0, 0, 0, 1, 0),
        (0, -1, 5, 1, 0, -1),
        (0, 1, 1, -1, 0, 5),
        (-1, 0, 6, 0, -1, 4),
    ]
    np.testing.assert_array_equal(matrices, expected)


def test_positive_turns_counter_clockwise_and_moves_left_and_up():
    picture = np.zeros([1, 5, 5, 3], np.uint8)
    picture[0, 2, 4] = 255  # at the right, in the middle

    def spot(operation, value: float) -> list[int]:
        result = operation(picture, [value], (0, 0, 0))
        return np.argwhere(np.asarray(result)[0, ..., 0]).tolist()

    assert spot(affine.rotate, 90.0) == [[0, 2]]
    assert spot(affine.translate_x, 1.0) == [[2, 3]]
    assert spot(affine.translate_y, 1.0) == [[1, 4]]
    assert spot(affine.shear_x, 0.5) == [[2, 3]]
    assert spot(affine.shear_y, 0.25) == [[1, 4]]


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


def test_zero_changes_nothing():
    pictures = _pictures(4, 30, 20)
    zeros = np.zeros(4, np.float32)
    for operation, _, _ in _MOVES.values():
        np.testing.assert_array_equal(operation(pictures, zeros), pictures)
    centers = np.full([4, 2], 5, np.int32)
    same = affine.cutout(pictures, centers, np.zeros(4, np.int32))
    np.testing.assert_array_equal(same, pictures)


def test_what_goes_far_leaves_fill_alone():
    far = np.array([1e4, -1e4, 1e9, -1e9, 3e38, -3e38], np.float32)
    pictures = _pictures(len(far), 32, 32)
    skewed = np.tile([1.0, 0.2, 0.0, 0.1, 1.0, 0.0], [len(far), 1])
    skewed[:, 2] = far
    steep = np.tile([1.0, 0.2, 0.0, 0.1, 1.0, 0.0], [len(far), 1])
    steep[:, [0, 2]] = far[:, np.newaxis]
    scaled = np.tile([0.5, 0.0, 0.0, 0.0, 2.0, 0.0], [len(far), 1])
    scaled[:, 5] = far
    results = [
        affine.translate_x(pictures, far, _FILL),
        affine.translate_y(pictures, far, _FILL),
        affine.affine_transform(pictures, skewed, _FILL),
        affine.affine_transform(pictures, steep, _FILL),
        affine.affine_transform(pictures, scaled, _FILL),
    ]
    expected = np.broadcast_to(np.uint8(_FILL), pictures.shape)
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", _OPERATIONS)
def test_same_in_a_function_in_a_pipeline_and_alone(name):
    operation = _OPERATIONS[name]
    batch = _batch(name)
    eager = operation(*batch).numpy()
    assert (eager != batch[0]).any((1, 2, 3)).sum() > 5
    unknown = [
        tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in batch
    ]
    traced = tf.function(operation, input_signature=unknown)
    static = traced.get_concrete_function().output_shapes
    assert static.as_list() == [None, 20, 20, 3]
    np.testing.assert_array_equal(traced(*batch), eager)
    alone = [traced(*(a[i : i + 1] for a in batch))[0] for i in range(10)]
    np.testing.assert_array_equal(alone, eager)
    dataset = tf.data.Dataset.from_tensor_slices(batch).batch(3).map(operation)
    piped = np.concatenate(list(dataset.as_numpy_iterator()))
    np.testing.assert_array_equal(piped, eager)
    empty = traced(*(array[:0] for array in batch))
    assert empty.shape == (0, 20, 20, 3) and empty.dtype == tf.uint8


@pytest.mark.parametrize("name", _OPERATIONS)
def test_refuses_other_images_and_fills(name):
    pictures, *arguments = _batch(name)
    operation = _OPERATIONS[name]
    with pytest.raises(ValueError, match="`images` must be"):
        operation(pictures.astype(np.float32), *arguments)
    for fill in ((0, 0), (0, 0, 256), (-1, 0, 0), (0.5, 0, 0)):
        with pytest.raises(ValueError, match="`fill` must be three numbers"):
            operation(pictures, *arguments, fill)
