"""Figures of views, of any images in rows, and of representations.

Save a figure with `figure.savefig(path)`; at the end of a notebook cell it
shows itself. Where pyplot is imported, `plt.show()` shows it too; else it is a
plain `matplotlib.figure.Figure`: nothing global is opened or left open.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import threadpoolctl
from matplotlib import axes, figure, font_manager, textpath
from sklearn import decomposition, manifold

from supcon_tf import exceptions
from supcon_tf.display import fonts, palette
from supcon_tf.measures import neighbors
from supcon_tf.training import tensorboard

_LEGEND_ROWS = 20
# t-SNE takes about 5 s for 2,000 points on a core; more hide one another.
_MAX_POINTS = 2000
# 128, so that pixels / DPI * DPI is exact: then a pixel of the canvas is one of
# the figure.
_DPI = 128
_FONT_SIZE = 7.5  # points; 13 pixels
_PANEL = 96  # pixels; smaller images are enlarged
_GAP = 4  # pixels between panels
_LINE = 16  # pixels for a line of text


class NotebookFigure(figure.Figure):
    """A figure that notebooks display, whichever backend is selected.

    IPython knows how to show a plain Figure only once pyplot has selected the
    inline backend.
    """

    def png(self) -> bytes:
        """The content of a PNG file, at the figure's own resolution."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=self.dpi)
        return buffer.getvalue()

    _repr_png_ = png  # what IPython asks for

    def _ipython_display_(self) -> None:
        """Asked first: what IPython shows now, pyplot shows not once more."""
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close(self)
        raise NotImplementedError  # so that it goes on with the picture


def new_figure(**options: object) -> NotebookFigure:
    """A figure, one of pyplot's where whoever calls has imported it."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return NotebookFigure(**options)
    return pyplot.figure(FigureClass=NotebookFigure, **options)


def line_panels(
    count: int, inches: float
) -> tuple[NotebookFigure, Sequence[axes.Axes]]:
    """A figure for lines, with panels side by side; as wide as `inches`."""
    fig = new_figure(layout="constrained", figsize=(inches, 3.8))
    panels = fig.subplots(1, count, squeeze=False)[0]
    for panel in panels:
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    return fig, panels


def plot_views(
    views: npt.ArrayLike,
    labels: npt.ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    max_rows: int = 8,
) -> figure.Figure:
    """Small multiples of a multiviewed batch: a row per image, a column a view.

    Args:
      views: [batch, views, height, width, 3] uint8.
      labels: [batch] integers, written beside the rows; None writes nothing.
      class_names: the name of each class id; None writes the id.
      max_rows: positive int; images after these are not drawn.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import evaluation
      >>> views = np.zeros([1, 2, 32, 32, 3], np.uint8)
      >>> fig = evaluation.plot_views(views, [1], ["cat", "dog"])
      >>> [text.get_text() for text in fig.axes[0].texts]
      ['view 1', 'view 2', 'dog']

    Returns:
      A figure of min(batch, max_rows) x views images.

    Raises:
      ValueError: `views` has another shape or dtype or is empty, `labels` does
        not fit the batch or `class_names`, or `max_rows` is not positive.
    """
    views = np.asarray(views)
    exceptions.require(
        views.ndim == 5 and views.shape[-1] == 3 and views.size,
        "`views` must have shape [batch, views, height, width, 3] and not be "
        "empty",
        views.shape,
    )
    exceptions.require(
        views.dtype == np.uint8, "`views` must be uint8", views.dtype
    )
    exceptions.require(max_rows >= 1, "`max_rows` must be at least 1", max_rows)
    names = [""] * len(views)
    if labels is not None:
        names = _names(_check_ids(labels, len(views)), class_names)
    titles = [f"view {column + 1}" for column in range(views.shape[1])]
    return plot_grid(views[:max_rows], names[:max_rows], titles)


def plot_grid(
    rows: Sequence[np.ndarray],
    row_names: Sequence[str],
    column_names: Sequence[str],
    captions: Sequence[Sequence[str]] | None = None,
) -> NotebookFigure:
    """Images in rows, with every pixel of an image as it is.

    At the figure's own resolution, which is that of `savefig`, a pixel of an
    image is a square of n x n pixels; n is 1 for images of 96 pixels and more.

    Args:
      rows: per row [columns, height, width, 3] uint8; rows may differ in their
        number of columns.
      row_names: written left of the rows.
      column_names: written above the columns, at least as many as the longest
        row has.
      captions: per row and column, written under the images; None leaves no
        place for them.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import evaluation
      >>> rows = np.zeros([2, 1, 32, 32, 3], np.uint8)
      >>> fig = evaluation.plot_grid(rows, ["cat", "dog"], ["original"])
      >>> [text.get_text() for text in fig.axes[0].texts]
      ['original', 'cat', 'dog']
      >>> fig.savefig("grid.png")

    Returns:
      A figure with one axes, in pixels from the top left.
    """
    scale = -(-_PANEL // max(rows[0].shape[1:3]))
    panels = [row.repeat(scale, axis=1).repeat(scale, axis=2) for row in rows]
    height, width = panels[0].shape[1:3]
    captions = captions or [()] * len(rows)
    line = _LINE + 2 * _GAP if any(captions) else 0  # nearer to its own image
    font = font_manager.FontProperties(family=fonts.families(), size=_FONT_SIZE)
    texts = [*column_names, *itertools.chain(*captions)]
    widest = max((_text_width(text, font) for text in texts), default=0)
    beyond = -(-max(0, widest - width) // 2)  # the image, to either side
    margin = max(_text_width(name, font) for name in row_names) + 2 * _GAP
    margin = max(margin, beyond + _GAP)
    right = 2 * beyond + _GAP
    images = tensorboard.mosaic(panels, right=right, below=line + _GAP)
    canvas = np.pad(
        images, [(_LINE + _GAP, 0), (margin, 0), (0, 0)], constant_values=255
    )
    lefts = range(margin, canvas.shape[1], width + right)
    tops = range(_LINE + _GAP, canvas.shape[0], height + line + _GAP)
    size = canvas.shape[1] / _DPI, canvas.shape[0] / _DPI
    fig = new_figure(figsize=size, dpi=_DPI)
    panel = fig.add_axes((0, 0, 1, 1))
    panel.set_axis_off()
    panel.imshow(canvas, interpolation="nearest", aspect="auto")
    style = {"va": "center", "fontproperties": font, "parse_math": False}

    def write_row(y: float, names: Sequence[str]) -> None:
        for left, name in zip(lefts, names, strict=False):
            panel.text(left + width / 2, y, name, ha="center", **style)

    write_row(_LINE / 2, column_names)
    for name, below, top in zip(row_names, captions, tops, strict=True):
        panel.text(margin - _GAP, top + height / 2, name, ha="right", **style)
        write_row(top + height + _LINE / 2, below)
    return fig


def plot_representation(
    representations: npt.ArrayLike,
    labels: npt.ArrayLike,
    class_names: Sequence[str] | None = None,
    method: str = "tsne",
    seed: int = 0,
) -> figure.Figure:
    """Scatter of representations in the plane, a colour and mark per class.

    Above 2,000 examples a random 2,000 of them are drawn. Above 70 classes the
    colours and marks repeat, and there is no legend.

    Args:
      representations: [examples, dim] real, finite; at least 3 examples and 2
        dimensions.
      labels: [examples] integers.
      class_names: the name of each class id; None writes the id.
      method: "tsne" (neighbours stay near, distances between groups mean
        nothing) or "pca" (linear: the two directions of largest variance).
      seed: of the choice of examples and of the method; the same seed gives the
        same figure.

    Example:
      >>> from supcon_tf import evaluation
      >>> line = [[0, 0], [1, 2], [2, 4]]
      >>> fig = evaluation.plot_representation(line, [0, 0, 1], method="pca")
      >>> fig.axes[0].get_xlabel()
      'component 1 (100% of the variance)'

    Returns:
      A figure with one axes.

    Raises:
      ValueError: `representations` has another shape, is not finite or is the
        same for all examples, `labels` does not fit it or `class_names`, or
        `method` is unknown.
    """
    points = np.asarray(representations, np.float64)
    exceptions.require(
        points.ndim == 2 and points.shape[0] >= 3 and points.shape[1] >= 2,
        "`representations` must have shape [examples >= 3, dim >= 2]",
        points.shape,
    )
    neighbors.check_matrix("representations", points)
    ids = _check_ids(labels, len(points))
    _names(ids, class_names)
    if len(points) > _MAX_POINTS:
        rng = np.random.default_rng(seed)
        sample = rng.choice(len(points), _MAX_POINTS, replace=False)
        points, ids = points[sample], ids[sample]
    plane, axis_names = to_plane(points, method, seed)
    classes = np.unique(ids)
    fig = new_figure(figsize=(7, 5), layout="constrained")
    panel = fig.subplots()
    names = _names(classes, class_names)
    for i, (class_id, name) in enumerate(zip(classes, names, strict=True)):
        panel.scatter(
            *plane[ids == class_id].T,
            **palette.style(i),
            s=14,
            linewidths=0,
            label=name,
        )
    panel.set(xlabel=axis_names[0], ylabel=axis_names[1], xticks=[], yticks=[])
    if len(classes) <= palette.MOST_CLASSES:
        fig.legend(
            loc="outside right upper",
            ncols=-(-len(classes) // _LEGEND_ROWS),
            markerscale=2,
            frameon=False,
            prop={"family": fonts.families()},
        )
    return fig


# scikit-learn's threads spin: where other processes share the cores, t-SNE on
# all of them takes ten times as long as on one (60 s against 6 s).
@threadpoolctl.threadpool_limits.wrap(limits=1)
def to_plane(
    points: np.ndarray, method: str = "tsne", seed: int = 0
) -> tuple[np.ndarray, tuple[str, str]]:
    """[examples, 2] points of the plane for representations, and two axes.

    Arguments and errors are those of `plot_representation`.
    """
    points = np.asarray(points, np.float64)
    spread = np.ptp(points, axis=0).max()
    exceptions.require(  # scikit-learn's t-SNE crashes the process on this
        spread > 0,
        "`representations` must differ between examples",
        f"one point {len(points)} times: the encoder has collapsed",
    )
    # Neither method minds the scale, but tiny variances underflow in them.
    points = (points - points.mean(axis=0)) / spread
    if method == "pca":
        pca = decomposition.PCA(2, random_state=seed)
        plane = pca.fit_transform(points)
        return plane, tuple(
            f"component {i} ({share:.0%} of the variance)"
            for i, share in enumerate(pca.explained_variance_ratio_, 1)
        )
    exceptions.require(
        method == "tsne", '`method` must be "tsne" or "pca"', f'"{method}"'
    )
    # scikit-learn refuses a perplexity of the number of points or more.
    perplexity = min(30.0, (len(points) - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, random_state=seed)
    return tsne.fit_transform(points), ("t-SNE 1", "t-SNE 2")


def _text_width(text: str, font: font_manager.FontProperties) -> int:
    """Width of a line of text in pixels."""
    points, _, _ = textpath.text_to_path.get_text_width_height_descent(
        text, font, ismath=False
    )
    return round(points * _DPI / 72)


def _check_ids(labels: npt.ArrayLike, num_examples: int) -> np.ndarray:
    """The labels as an array, once they are one integer per example."""
    ids = np.asarray(labels)
    exceptions.require(
        ids.shape == (num_examples,) and ids.dtype.kind in "iu",
        f"`labels` must be integers of shape ({num_examples},)",
        f"{ids.dtype} of shape {ids.shape}",
    )
    return ids


def _names(ids: np.ndarray, class_names: Sequence[str] | None) -> list[str]:
    """What to write for each class id."""
    if class_names is None:
        return [str(class_id) for class_id in ids]
    exceptions.require(
        ids.min() >= 0 and ids.max() < len(class_names),
        "`class_names` must name every label",
        f"{len(class_names)} names for labels from {ids.min()} to {ids.max()}",
    )
    return [class_names[class_id] for class_id in ids]
