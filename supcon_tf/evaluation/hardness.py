"""Which pairs teach: gradients against hardness, Sec. 3.2.3, Suppl. Sec. 3."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from matplotlib import axes, figure

from supcon_tf import palette
from supcon_tf.measures import hardness
from supcon_tf.training import builders, checkpoints, input_pipeline, runs

_BINS = np.linspace(-1.0, 1.0, 41)
_LEAST = 20  # pairs of a bin that is drawn
_KINDS = ("positives", "negatives")


def plot_gradients(opened: Mapping[str, runs.Run]) -> figure.Figure:
    """What a pair adds to the gradient of its anchor, over its cosine.

    The pairs are those of the first training batch of each run, with batch norm
    as in training. A panel for positives, hard ones at the left, and one for
    negatives, hard ones at the right; a line per run, the mean of a bin, for
    L_out, and a broken one for L_in. Lengths are those of a |w_i| of 1.

    Args:
      opened: runs of a loss of projections by what the figure calls them.

    Example:
      >>> from supcon_tf import evaluation, training
      >>> opened = {"mine": training.Run.open("runs/mine")}
      >>> panels = evaluation.plot_gradients(opened).axes
      >>> [line.get_label() for line in panels[0].lines]
      ['mine, L_out', 'mine, L_in']
    """
    drawn = figure.Figure(layout="constrained", figsize=(9, 3.8))
    panels = drawn.subplots(1, 2)
    for panel, kind in zip(panels, _KINDS, strict=True):
        panel.set_xlabel(f"cosine of anchor and one of the {kind}")
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("length of its part of the gradient")
    for (name, run), color in zip(opened.items(), palette.COLORS, strict=False):
        z, labels = _projections(run)
        for formulation, style in (("out", "-"), ("in", "--")):
            factors = hardness.pair_gradients(
                z, labels, run.settings.temperature, formulation
            )
            label = f"{name}, L_{formulation}"
            line = {"linestyle": style, "color": color, "label": label}
            _draw(panels, z, labels, factors, line)
    panels[0].legend(frameon=False)
    return drawn


def _projections(run: runs.Run) -> tuple[np.ndarray, np.ndarray]:
    """Projections [rows, dim] of unit length, and the labels of the rows."""
    settings, images = run.settings, run.source("train")
    model = builders.model(settings, len(run.class_names))
    checkpoints.restore(
        run.checkpoint,
        encoder=model.encoder,
        projection_head=model.projection_head,
    )
    views, labels, *_ = next(
        iter(
            input_pipeline.made_here(
                settings,
                images,
                settings.batch_size,
                settings.image_size,
                settings.num_views,
            )
        )
    )
    z = model(views, training=True)
    dim = z.shape[-1]
    z = tf.math.l2_normalize(tf.reshape(z, [-1, dim]), axis=1)
    return z.numpy(), np.repeat(labels.numpy(), settings.num_views)


def _draw(
    panels: np.ndarray,
    z: np.ndarray,
    labels: np.ndarray,
    factors: np.ndarray,
    line: dict[str, object],
) -> None:
    """A line of means in each panel."""
    cosines = np.clip(z @ z.T, -1.0, 1.0)
    lengths = np.abs(factors) * np.sqrt(1.0 - cosines**2)
    same = labels[:, np.newaxis] == labels
    other_row = ~np.eye(len(labels), dtype=bool)
    for panel, kind in zip(panels, (same & other_row, ~same), strict=True):
        _draw_means(panel, cosines[kind], lengths[kind], line)


def _draw_means(
    panel: axes.Axes,
    cosines: np.ndarray,
    lengths: np.ndarray,
    line: dict[str, object],
) -> None:
    places = np.digitize(cosines, _BINS) - 1
    counts = np.bincount(places, minlength=len(_BINS))
    sums = np.bincount(places, lengths, minlength=len(_BINS))
    drawn = np.flatnonzero(counts[:-1] >= _LEAST)
    middles = (_BINS[:-1] + _BINS[1:]) / 2
    panel.plot(middles[drawn], sums[drawn] / counts[drawn], **line)
