"""A figure of which classes are taken for which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib import figure

from supcon_tf import exceptions
from supcon_tf.display import fonts
from supcon_tf.evaluation import plots

_INCHES = 0.42  # of a class
_LEAST_INCHES = 3.0
_MOST_CLASSES = 60  # whose names can still be read
_DARK = 0.5  # share from which the number is white


def plot_confusion_matrix(
    counts: npt.ArrayLike, class_names: Sequence[str] | None = None
) -> figure.Figure:
    """A confusion matrix: a row per true class, a column per predicted one.

    The colour is the share of its row, the number the count; none is written
    for 0.

    Args:
      counts: [classes, classes] integers, as of `measures.confusion_matrix`; 2
        to 60 classes.
      class_names: one per class; None writes the numbers.

    Example:
      >>> from supcon_tf import evaluation, measures
      >>> counts = measures.confusion_matrix([0, 1, 1], [0, 0, 1], 2)
      >>> fig = evaluation.plot_confusion_matrix(counts, ["cat", "dog"])
      >>> [text.get_text() for text in fig.axes[0].texts]
      ['1', '1', '1']

    Returns:
      A figure with one axes.

    Raises:
      ValueError: `counts` is no such matrix, or the names are not as many.
    """
    counts = np.asarray(counts)
    classes = len(counts) if counts.ndim else 0
    exceptions.require(
        counts.shape == (classes, classes)
        and counts.dtype.kind in "iu"
        and 2 <= classes <= _MOST_CLASSES
        and counts.min() >= 0,
        "`counts` must be [classes, classes] integers of 2 to "
        f"{_MOST_CLASSES} classes, none of them below 0",
        f"{counts.dtype} of shape {counts.shape}",
    )
    names = [*map(str, range(classes) if class_names is None else class_names)]
    exceptions.require(
        len(names) == classes,
        f"`class_names` must be {classes} names",
        len(names),
    )
    side = max(_LEAST_INCHES, _INCHES * classes)
    fig = plots.new_figure(figsize=(side + 1, side + 0.5), layout="constrained")
    axes = fig.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ticks = np.arange(classes)
    style = {"family": fonts.families(), "parse_math": False}
    axes.set_xticks(ticks, names, rotation=45, ha="right", **style)
    axes.set_yticks(ticks, names, **style)
    axes.set(xlabel="predicted class", ylabel="true class")
    for row, column in np.argwhere(counts):
        color = "white" if shares[row, column] > _DARK else "black"
        text = str(counts[row, column])
        axes.text(column, row, text, ha="center", va="center", color=color)
    return fig
