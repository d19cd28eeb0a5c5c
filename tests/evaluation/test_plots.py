"""What the figures show, that they save, and that notebooks display them."""

import io
import warnings

import numpy as np
import pytest
import tensorflow as tf
from matplotlib import figure
from PIL import Image
from sklearn import datasets

from supcon_tf import evaluation
from supcon_tf.evaluation import plots
from tests import system_fonts

NAMES = [f"digit {i}" for i in range(10)]


@pytest.fixture(scope="module")
def digits():
    """Pixels [300, 64], images [300, 8, 8, 3] uint8 and labels [300]."""
    loaded = datasets.load_digits()
    images = (loaded.images[:300] * 255 / 16).astype(np.uint8)
    images = np.repeat(images[..., None], 3, axis=-1)
    return loaded.data[:300], images, loaded.target[:300]


def _views(images: np.ndarray) -> np.ndarray:
    return np.stack([images, 255 - images, images[:, ::-1]], axis=1)


def _legend(fig: figure.Figure) -> list[str]:
    return [text.get_text() for text in fig.legends[0].get_texts()]


def _offsets(fig: figure.Figure) -> np.ndarray:
    return np.concatenate(
        [np.asarray(c.get_offsets()) for c in fig.axes[0].collections]
    )


def _texts(fig: figure.Figure) -> list[tuple[str, float, float]]:
    return [(t.get_text(), *t.get_position()) for t in fig.axes[0].texts]


def _pixels(fig: figure.Figure) -> np.ndarray:
    """What is in the PNG, to which a notebook and a tool come."""
    return np.asarray(Image.open(io.BytesIO(fig._repr_png_())).convert("RGB"))


def test_views_rows_are_images_and_columns_are_views(digits):
    _, images, labels = digits
    views = _views(images[:12])
    fig = plots.plot_views(views, labels[:12], NAMES, max_rows=5)
    assert isinstance(fig, figure.Figure)
    pixels = _pixels(fig)
    height, width, _ = pixels.shape
    for row, column in np.ndindex(5, 3):
        # 8 pixels become 96, and 4 pixels lie between; labels are left and top.
        y, x = height - 100 * (5 - row), width - 100 * (3 - column)
        panel = pixels[y : y + 96, x : x + 96]
        for shift in range(12):
            np.testing.assert_array_equal(
                panel[shift::12, shift::12], views[row, column]
            )
        title = (f"view {column + 1}", x + 48, 8)
        name = (NAMES[labels[row]], width - 304, y + 48)
        assert title in _texts(fig) and name in _texts(fig)
    assert len(_texts(fig)) == 5 + 3
    tensor = tf.constant(views[:2])
    for ids, names in ((None, ["", ""]), (tf.constant([7, 4]), ["7", "4"])):
        fig = plots.plot_views(tensor, ids)
        written = [text for text, *_ in _texts(fig)]
        assert written == ["view 1", "view 2", "view 3", *names]


def test_captions_do_not_overlap():
    rows = np.zeros([2, 3, 96, 96, 3], np.uint8)
    captions = [["a_caption_much_wider_than_its_image"] * 3] * 2
    fig = plots.plot_grid(rows, ["", ""], ["a", "b", "c"], captions)
    fig.draw_without_rendering()
    boxes = [
        text.get_window_extent()
        for text in fig.axes[0].texts
        if text.get_text() in captions[0]
    ]
    assert len(boxes) == 6
    assert all(0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
    assert not any(
        a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]
    )


def test_a_confusion_matrix_has_counts_and_names():
    counts = np.array([[3, 1, 0], [0, 0, 0], [2, 0, 40]])
    names = ["cat", "a $dog_", "ant"]
    fig = evaluation.plot_confusion_matrix(counts, names)
    (axes,) = fig.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == names
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    written = {(y, x): text for text, x, y in _texts(fig)}
    assert written == {(0, 0): "3", (0, 1): "1", (2, 0): "2", (2, 2): "40"}
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares[0], [0.75, 0.25, 0])
    np.testing.assert_allclose(shares[1], 0)
    fig.savefig(io.BytesIO())
    for wrong, message in (
        (counts[:2], "`counts` must be .classes, classes. integers.*int64 of"),
        (counts / 2, "float64 of shape"),
        (-counts, "none of them below 0"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.plot_confusion_matrix(wrong)
    with pytest.raises(ValueError, match="must be 3 names, got 1"):
        evaluation.plot_confusion_matrix(counts, ["cat"])


def test_grid_has_rows_of_any_length_and_captions():
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 255, [n, 100, 50, 3], np.uint8) for n in (1, 3)]
    fig = plots.plot_grid(
        rows,
        ["short", "a $long_ one"],
        ["a", "b", "c"],
        [["x"], ["p", "", "r"]],
    )
    pixels = _pixels(fig)
    height, width, _ = pixels.shape
    assert pixels.shape == fig.axes[0].images[0].get_array().shape
    pitch = 100 + 16 + 3 * 4
    for row, column in ((0, 0), (1, 0), (1, 1), (1, 2)):
        y, x = height - pitch * (2 - row), width - 54 * (3 - column)
        panel = pixels[y : y + 100, x : x + 50]
        np.testing.assert_array_equal(panel, rows[row][column])
    assert (pixels[-2 * pitch : -pitch, -108:] == 255).all()
    # The names fit, and nothing is written on the images.
    assert (pixels[20:, 0] == 255).all() and (pixels[20:, :-162] < 99).any()
    positions = {text: position for text, *position in _texts(fig)}
    assert positions["x"] == [width - 162 + 25, height - pitch - 20]
    assert positions["r"] == [width - 54 + 25, height - 20]


def test_names_have_a_font_with_their_characters(digits, tmp_path):
    """As Chinese names, which are boxes in matplotlib's own font."""
    points, images, labels = digits
    file = system_fonts.make_font(tmp_path / "c.ttf", "Noto Sans CJK JP", "猫")

    def draw(names: list[str]) -> list[np.ndarray]:
        with system_fonts.only_fonts(file), warnings.catch_warnings():
            warnings.simplefilter("error")
            grid = plots.plot_views(_views(images[:2]), labels[:2], names)
            plane = plots.plot_representation(points, labels, names, "pca")
            counts = np.eye(10, dtype=int)
            matrix = evaluation.plot_confusion_matrix(counts, names)
            return [_pixels(fig) for fig in (grid, plane, matrix)]

    pictures = draw([f"{i} 猫" for i in range(10)])
    expected = draw([f"{i} A" for i in range(10)])  # how that font draws it
    for picture, other in zip(pictures, expected, strict=True):
        np.testing.assert_array_equal(picture, other)


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_representation_draws_every_example(method, digits):
    points, _, labels = (arrays[:100] for arrays in digits)
    fig = plots.plot_representation(points, labels, NAMES, method)
    (axes,) = fig.axes
    assert _legend(fig) == NAMES
    counts = [len(c.get_offsets()) for c in axes.collections]
    assert counts == np.bincount(labels).tolist()
    assert np.isfinite(_offsets(fig)).all()
    again = plots.plot_representation(points, labels, NAMES, method)
    np.testing.assert_array_equal(_offsets(fig), _offsets(again))
    if method == "pca":
        assert axes.get_xlabel().startswith("component 1 (")
        assert axes.get_ylabel().endswith("% of the variance)")


def test_large_sets_are_subsampled_by_seed():
    points = np.random.default_rng(0).normal(size=(2500, 4))
    first, same, other = (
        _offsets(
            plots.plot_representation(
                points, np.arange(2500) % 3, None, "pca", seed
            )
        )
        for seed in (0, 0, 1)
    )
    assert len(first) == len(other) == 2000
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_seventy_classes_have_their_own_style():
    points = np.random.default_rng(0).normal(size=(71, 3))
    fig = plots.plot_representation(points[:70], np.arange(70), method="pca")
    styles = {
        (
            tuple(c.get_facecolor()[0]),
            c.get_paths()[0].vertices.round(3).tobytes(),
        )
        for c in fig.axes[0].collections
    }
    assert len(styles) == len(_legend(fig)) == 70
    unnamed = plots.plot_representation(points, np.arange(71), method="pca")
    assert not unnamed.legends


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_few_and_tiny_representations(method):
    for scale in (1, 1e-25):
        rows, labels = scale * np.eye(3), [4, -1, 4]
        fig = plots.plot_representation(rows, labels, method=method)
        assert np.isfinite(_offsets(fig)).all()
        assert _legend(fig) == ["-1", "4"]


@pytest.mark.slow
def test_figures_show_themselves_in_a_notebook(digits):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    call = "plots.plot_views(np.zeros((2, 2, 8, 8, 3), np.uint8))"
    start = (
        "import sys, numpy as np\nfrom supcon_tf.evaluation import plots\n"
        "from supcon_tf.keras_2 import PACKAGE\n"
        # Keras 3, beside tf_keras, imports it with TensorFlow.
        "assert PACKAGE != 'keras' or 'matplotlib.pyplot' not in sys.modules\n"
    )
    cells = [
        start + call,
        "import matplotlib.pyplot as plt\n" + call,
        f"fig = {call}\nplt.show()",
        f"fig = {call}",
    ]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells]
    )
    nbclient.NotebookClient(
        notebook, timeout=900, startup_timeout=900
    ).execute()
    for cell in notebook.cells:
        (output,) = cell.outputs  # Once, not once more by the backend.
        assert "image/png" in output.data


VIEWS = np.zeros((2, 2, 8, 8, 3), np.uint8)
POINTS = "representations"
VIEWS_PLOT = (
    plots.plot_views,
    {"views": VIEWS, "labels": [0, 1], "class_names": ["cat", "dog"]},
)
PLANE = plots.plot_representation, {POINTS: np.eye(4), "labels": [0, 1, 0, 1]}


@pytest.mark.parametrize(
    ("draw", "arguments", "message"),
    [
        (VIEWS_PLOT, {"views": VIEWS[0]}, "`views` must have shape"),
        (VIEWS_PLOT, {"views": VIEWS / 1}, "must be uint8, got float64"),
        (VIEWS_PLOT, {"labels": [0]}, r"of shape \(2,\), got int64 of shape"),
        (VIEWS_PLOT, {"labels": [0, 2]}, "2 names for labels from 0 to 2"),
        (VIEWS_PLOT, {"max_rows": 0}, "`max_rows` must be at least 1, got 0"),
        (PLANE, {POINTS: np.eye(2)}, r"examples >= 3, .*got \(2, 2\)"),
        (PLANE, {POINTS: np.full((4, 2), np.inf)}, "must be finite"),
        (PLANE, {POINTS: np.ones((4, 2))}, "one point 4 times"),
        (PLANE, {"class_names": ["cat"]}, "got 1 names for labels from 0 to 1"),
        (
            PLANE,
            {"method": "umap"},
            '`method` must be "tsne" or "pca", got "um',
        ),
    ],
)
def test_errors_name_the_rule(draw, arguments, message):
    plot, valid = draw
    with pytest.raises(ValueError, match=message):
        plot(**(valid | arguments))
