"""The chance level of the loss: its value for equal projections.

All logits are equal then, and SupCon is the logarithm of the number of an
anchor's contrasts. By `denominator`, with A(i) and N(i) as in
`losses.supcon_loss`:

  all  log |A(i)|,  one_positive  log(1 + |N(i)|),  only_negatives  log |N(i)|

where a negative counts exp(hardness) times, and the one positive exp(-margin),
in both formulations. A share of spread has log |P(i)|. The loss is 0 without
positives, or without negatives where they alone are contrasts. The samples of
a batch are drawn anew in each epoch: the level is the mean over draws, by the
labels of the images.
"""

from __future__ import annotations

import numpy as np

from supcon_tf import config, data, losses
from supcon_tf.data import hierarchy

_MAX_ANCHORS = 1000  # images of several labels, compared with all images
_BLOCK = 10_000  # images that are compared at once
_MAX_COUNTS = 64  # different counts of positives; more are averaged in groups

# X different counts of positives, [X], and the share of each count, [X].
_Distribution = tuple[np.ndarray, np.ndarray]


def level(
    settings: config.ObjectiveSettings,
    replicas: int,
    images: data.Source | None = None,
) -> float | None:
    """The level of a run; None where its loss has none.

    The level depends on the labels of `images` where not all rows are
    contrasts, or a sample may be without positives. A set that is read in file
    order is assumed to have equal classes, and a queue to be full.
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
    is_weighted = settings.hardness or settings.spread
    is_plain = cap is None and denominator == "all" and not is_weighted
    if views > 1 and is_plain:
        return multiple * float(np.log(all_rows))
    # The counts of positives of mixed samples are not worked out.
    if images is None or settings.has_soft_labels:
        return None
    if settings.unsupervised_classes and (
        images.labels is None or settings.samples_per_class
    ):
        return None
    partners, shares = _partner_counts(settings, images, samples)  # [X]
    positives = views - 1 + partners
    negatives = np.maximum(all_rows - positives, 0)
    positives = np.minimum(positives, cap or np.inf)
    negative_weights = negatives * np.exp(settings.hardness)
    one_positive = negative_weights + np.exp(-settings.margin)
    contrasts = {
        "all": positives + negative_weights,
        "one_positive": one_positive,
        "sincere": one_positive,
        "only_negatives": negative_weights,
    }[denominator]
    # Without negatives, where they alone are contrasts, the loss is 0.
    losses = np.log(np.where(contrasts > 0, contrasts, 1))  # [X]
    spread_losses = np.log(np.maximum(positives, 1))
    losses += settings.spread * (spread_losses - losses)
    values = np.where(positives > 0, losses, 0.0)
    return multiple * float(np.sum(shares * values))


def _mean_penalty(
    settings: config.ObjectiveSettings, images: data.Source
) -> float:
    """Factor of `losses.HierarchicalSupConLoss` on the loss of the classes.

    mean of penalty^(1 / height) over the levels: the loss of each level is at
    most that of the classes.
    """
    names = images.class_names
    ancestors = hierarchy.read_ancestors(settings.hierarchy, names)
    heights = 1 + np.arange(ancestors.shape[1])
    penalty = losses.HierarchicalSupConLoss.penalty
    return float(np.mean(penalty ** (1 / heights)))


def _partner_counts(
    settings: config.ObjectiveSettings, images: data.Source, samples: int
) -> _Distribution:
    """Distribution of the rows of other samples that are positives."""
    views, queued = settings.num_views, settings.queue_size
    per_class = settings.samples_per_class
    if per_class:  # the classes take turns: see data.class_balanced
        classes = settings.batch_size // per_class
        turns = np.arange(settings.batch_size) % classes
        parts = turns.reshape(-1, samples)  # [losses per batch, samples]
        counts = np.concatenate([np.bincount(part) for part in parts])
        present = len(images.class_names)
        if images.labels is not None:
            present = len(np.unique(images.labels))
        others = views * (counts - 1) + queued / present
        return others, counts / counts.sum()
    from scipy import stats  # which takes half a second, and few losses need

    population = images.num_examples - 1
    draws = samples - 1 + round(queued / views)
    values, shares = [], []
    for count, share in zip(*_positive_counts(settings, images), strict=True):
        drawn = np.arange(draws + 1)
        if draws <= population:
            chances = stats.hypergeom.pmf(drawn, population, count, draws)
        else:  # earlier epochs are in the queue
            chances = stats.binom.pmf(drawn, draws, count / population)
        values.append(views * drawn)
        shares.append(share * chances)
    return np.concatenate(values), np.concatenate(shares)


def _positive_counts(
    settings: config.ObjectiveSettings, images: data.Source
) -> _Distribution:
    """Distribution of the other images that are positives of an image."""
    labels = images.labels
    if labels is None:
        per_class = round(images.num_examples / len(images.class_names)) - 1
        return np.array([per_class]), np.ones(1)
    if labels.ndim == 1 or settings.positives == "all":
        _, inverse, counts = np.unique(
            labels, axis=0, return_inverse=True, return_counts=True
        )
        numbers = counts[inverse.reshape(-1)] - 1
        if labels.ndim == 2:  # an image without labels has its views alone
            numbers *= labels.any(axis=1)
        for name in settings.unsupervised_classes:
            numbers[labels == images.class_names.index(name)] = 0
    else:
        numbers = _overlap_counts(labels)
    numbers, counts = np.unique(numbers, return_counts=True)
    if len(numbers) > _MAX_COUNTS:
        parts = np.array_split(np.repeat(numbers, counts), _MAX_COUNTS)
        numbers = np.array([round(part.mean()) for part in parts])
        counts = np.array([len(part) for part in parts])
    return numbers, counts / counts.sum()


def _overlap_counts(labels: np.ndarray) -> np.ndarray:
    """Images that share a label with each of `_MAX_ANCHORS` images, [A] int."""
    step = -(-len(labels) // _MAX_ANCHORS)
    anchors = labels[::step].astype(np.float32)
    counts = np.zeros(len(anchors), np.int64)
    for start in range(0, len(labels), _BLOCK):
        others = labels[start : start + _BLOCK].astype(np.float32)
        counts += (anchors @ others.T > 0).sum(axis=1)  # [A, block] -> [A]
    return counts - anchors.any(axis=1)
