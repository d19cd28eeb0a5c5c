"""Which pairs teach: gradients against hardness, Sec. 3.2.3, Suppl. Sec. 3."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from matplotlib import figure

from supcon_tf import exceptions
from supcon_tf.display import palette
from supcon_tf.evaluation import plots
from supcon_tf.host import trust
from supcon_tf.measures import hardness
from supcon_tf.training import builders, checkpoints, input_pipeline, runs

_BINS = np.linspace(-1.0, 1.0, 41)
_LEAST_PAIRS = 20  # of a bin that is drawn
_KINDS = ("positives", "negatives")


def plot_gradients(opened: Mapping[str, runs.Run]) -> figure.Figure:
    """The gradient that a pair adds to its anchor, over the pair's cosine.

    The pairs are those of the first training batch of each run, with batch norm
    as in training. A panel for positives, hard ones at the left, and one for
    negatives, hard ones at the right; a line per run, the mean of a bin, for
    L_out, and a broken one for L_in. Lengths are those of a |w_i| of 1.

    Args:
      opened: runs of a loss of projections, by their names in the figure.

    Example:
      >>> from supcon_tf import evaluation, training
      >>> opened = {"mine": training.Run.open("runs/mine")}
      >>> panels = evaluation.plot_gradients(opened).axes
      >>> [line.get_label() for line in panels[0].lines]
      ['mine, L_out', 'mine, L_in']
    """
    fig, panels = plots.line_panels(2, inches=9)
    for panel, kind in zip(panels, _KINDS, strict=True):
        panel.set_xlabel(f"cosine of anchor and one of the {kind}")
        panel.set_yscale("log")
    panels[0].set_ylabel("length of its part of the gradient")
    for index, (name, run) in enumerate(opened.items()):
        z, labels = _projections(run)
        color = palette.style(index)["color"]
        cosines = np.clip(z @ z.T, -1.0, 1.0)  # [rows, rows]
        is_negative = labels[:, np.newaxis] != labels
        is_positive = ~is_negative & ~np.eye(len(labels), dtype=bool)
        for formulation, dashes in (("out", "-"), ("in", "--")):
            factors = hardness.pair_gradients(
                z, labels, run.settings.temperature, formulation
            )
            lengths = np.abs(factors) * np.sqrt(1.0 - cosines**2)
            label = f"{name}, L_{formulation}"
            style = {"linestyle": dashes, "color": color, "label": label}
            for panel, mask in zip(
                panels, (is_positive, is_negative), strict=True
            ):
                means = _bin_means(cosines[mask], lengths[mask])
                panel.plot(*means, **style)
    panels[0].legend(frameon=False)
    return fig


def _projections(run: runs.Run) -> tuple[np.ndarray, np.ndarray]:
    """Projections [rows, dim] of unit length, and the labels of the rows."""
    settings, images = run.settings, run.source("train")
    exceptions.require(
        not trust.names_module(settings.augmentation),
        f"{run.files.path} must have a policy of supcon_tf, whose views are "
        "drawn",
        settings.augmentation,
    )
    model = builders.model(settings, len(run.class_names))
    checkpoints.restore(
        run.checkpoint,
        encoder=model.encoder,
        projection_head=model.projection_head,
    )
    batches = input_pipeline.local_views(
        settings,
        images,
        settings.batch_size,
        settings.image_size,
        settings.num_views,
    )
    views, labels, *_ = next(iter(batches))
    z = model(views, training=True)  # [batch, views, dim]
    z = tf.reshape(z, [-1, z.shape[-1]])  # [rows, dim]
    z = tf.math.l2_normalize(z, axis=1)
    return z.numpy(), np.repeat(labels.numpy(), settings.num_views)


def _bin_means(
    cosines: np.ndarray, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The middles of bins of cosines, and the mean length of pairs in each.

    Cosines and lengths are [pairs]; bins of few pairs are left out.
    """
    bins = np.digitize(cosines, _BINS) - 1  # [pairs]
    counts = np.bincount(bins, minlength=len(_BINS))
    sums = np.bincount(bins, lengths, minlength=len(_BINS))
    full = np.flatnonzero(counts[:-1] >= _LEAST_PAIRS)
    middles = (_BINS[:-1] + _BINS[1:]) / 2
    return middles[full], sums[full] / counts[full]
