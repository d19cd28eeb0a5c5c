"""The loss of equal projections, which tell nothing: where training begins.

All logits are equal then, and what is left of SupCon is the logarithm of how
many rows an anchor is contrasted with. By `denominator`, with A(i) and N(i) as
in `losses.supcon_loss`:

  all  log |A(i)|,  one_positive  log(1 + |N(i)|),  only_negatives  log |N(i)|

where a negative counts exp(hardness) times, and the one positive exp(-margin),
in both formulations; of a share of spread, log |P(i)|; and 0 without positives,
or without negatives where they alone are contrasts. Which samples meet in a
batch is drawn anew in each epoch: the level is the mean over draws, by the
labels of the images.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from supcon_tf import config, data, losses
from supcon_tf.data import hierarchy

_ANCHORS = 1000  # of several labels, compared with all images
_AT_ONCE = 10_000  # of these
_GROUPS = 64  # numbers of partners that are told apart

# Numbers [X], and the share of each.
_Spread = tuple[np.ndarray, np.ndarray]


def level(
    settings: config.ObjectiveSettings,
    replicas: int,
    images: data.Source | None = None,
) -> float | None:
    """The level of a run; None where its loss has none.

    It depends on the labels of `images` where not all rows are contrasts, or
    a sample may be without positives. Those of a set that is read in file
    order are taken to be as many of each class. A queue is taken to be full.
    """
    if not settings.traits.has_chance_level:
        return None
    views = settings.num_views
    samples = settings.batch_size // (1 if settings.cross_replica else replicas)
    all_rows = views * samples - 1 + settings.queue_size
    multiple = settings.temperature if settings.scale_by_temperature else 1.0
    if settings.hierarchy is not None:
        # With one view, a level may have positives where the one below it has
        # none.
        if images is None or views == 1:
            return None
        multiple *= _mean_penalty(settings, images)
    cap, denominator = settings.positives_cap, settings.denominator
    changes = settings.hardness or settings.spread
    is_plain = cap is None and denominator == "all" and not changes
    if views > 1 and is_plain:
        return multiple * float(np.log(all_rows))
    # How many positives mixed samples have is not worked out.
    if images is None or settings.has_soft_labels:
        return None
    if settings.unsupervised_classes and (
        images.labels is None or settings.samples_per_class
    ):
        return None
    partners, shares = _partners(settings, images, samples)
    positives = views - 1 + partners
    negatives = np.maximum(all_rows - positives, 0)
    positives = np.minimum(positives, cap or np.inf)
    harder = negatives * np.exp(settings.hardness)
    one_positive = harder + np.exp(-settings.margin)
    contrasts = {
        "all": positives + harder,
        "one_positive": one_positive,
        "sincere": one_positive,
        "only_negatives": harder,
    }[denominator]
    # Without negatives, where they alone are contrasts, the loss is 0.
    logarithms = np.log(np.where(contrasts > 0, contrasts, 1))
    apart = np.log(np.maximum(positives, 1))
    logarithms += settings.spread * (apart - logarithms)
    values = np.where(positives > 0, logarithms, 0.0)
    return multiple * float(np.sum(shares * values))


def _mean_penalty(
    settings: config.ObjectiveSettings, images: data.Source
) -> float:
    """What the levels of `losses.HierarchicalSupConLoss` multiply the loss by.

    No level's own loss is above that of the classes, which is the maximum.
    """
    names = images.class_names
    ancestors = hierarchy.read_ancestors(settings.hierarchy, names)
    heights = 1 + np.arange(ancestors.shape[1])
    penalty = losses.HierarchicalSupConLoss.penalty
    return float(np.mean(penalty ** (1 / heights)))


def _partners(
    settings: config.ObjectiveSettings, images: data.Source, samples: int
) -> _Spread:
    """How many rows of other samples, and of a queue, are positives."""
    views, queued = settings.num_views, settings.queue_size
    of_class = settings.samples_per_class
    if of_class:  # the classes take turns: see data.class_balanced
        classes = settings.batch_size // of_class
        turns = np.arange(settings.batch_size) % classes
        parts = turns.reshape(-1, samples)
        counts = np.concatenate([np.bincount(part) for part in parts])
        present = len(images.class_names)
        if images.labels is not None:
            present = len(np.unique(images.labels))
        others = views * (counts - 1) + queued / present
        return others, counts / counts.sum()
    population = images.num_examples - 1
    draws = samples - 1 + round(queued / views)
    values, shares = [], []
    for count, share in zip(*_alike(settings, images), strict=True):
        drawn = np.arange(draws + 1)
        if draws <= population:
            chances = stats.hypergeom.pmf(drawn, population, count, draws)
        else:  # earlier epochs are in the queue
            chances = stats.binom.pmf(drawn, draws, count / population)
        values.append(views * drawn)
        shares.append(share * chances)
    return np.concatenate(values), np.concatenate(shares)


def _alike(settings: config.ObjectiveSettings, images: data.Source) -> _Spread:
    """How many other images an image has for positives."""
    labels = images.labels
    if labels is None:
        each = round(images.num_examples / len(images.class_names)) - 1
        return np.array([each]), np.ones(1)
    if labels.ndim == 1 or settings.positives == "all":
        _, place, counts = np.unique(
            labels, axis=0, return_inverse=True, return_counts=True
        )
        alike = counts[place.reshape(-1)] - 1
        if labels.ndim == 2:  # without labels only its own views
            alike *= labels.any(axis=1)
        for name in settings.unsupervised_classes:
            alike[labels == images.class_names.index(name)] = 0
    else:
        alike = _overlapping(labels)
    alike, counts = np.unique(alike, return_counts=True)
    if len(alike) > _GROUPS:
        parts = np.array_split(np.repeat(alike, counts), _GROUPS)
        alike = np.array([round(part.mean()) for part in parts])
        counts = np.array([len(part) for part in parts])
    return alike, counts / counts.sum()


def _overlapping(labels: np.ndarray) -> np.ndarray:
    """How many others share a label with each of some images, evenly spaced."""
    step = -(-len(labels) // _ANCHORS)
    anchors = labels[::step].astype(np.float32)
    counts = np.zeros(len(anchors), np.int64)
    for start in range(0, len(labels), _AT_ONCE):
        others = labels[start : start + _AT_ONCE].astype(np.float32)
        counts += (anchors @ others.T > 0).sum(axis=1)
    return counts - anchors.any(axis=1)
