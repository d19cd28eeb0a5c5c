"""What a report shows of single images: samples.npz, representations.npz."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, measures, run_files
from supcon_tf.evaluation import plots, splits
from supcon_tf.training import input_pipeline, runs

_SIDE = 96  # pixels, of an image in samples.npz
_NEIGHBORS = 8
_MISTAKES = 10
_VIEWED_IMAGES = 4
_VIEWS = 6
_CANDIDATES = 16  # first images of stage 1, of which the viewed ones are
_BATCH_SIZE = 64  # bounds the memory of images before they are reduced


def write_samples(
    run: runs.Run,
    chosen: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    probabilities: np.ndarray | None,
) -> None:
    """Writes samples.npz and representations.npz of a run.

    samples.npz: `images` [S, H, W, 3] uint8 of the test split, `labels` [S] and
    `predicted` [S] (-1 without a classifier) int32; the training images most
    similar to each, `neighbors` [S, K, H, W, 3] uint8, `neighbor_labels` [S, K]
    int32 and `neighbor_similarities` [S, K] float32, cosines; the views of some
    training images, `views` [I, V, H, W, 3] uint8 and `view_labels` [I] int32.
    With a classifier, the test images that it is surest of and wrong on, ten
    at most: `mistakes` [M, H, W, 3] uint8, the surest first, and their places
    in the fixed order, `mistake_positions` [M] int32. H = W is the side of the
    images, reduced to 96 pixels at most.

    representations.npz: of E test images, evenly from the fixed order,
    `representations` [E, dim] float32, `labels` [E] int32, `ids` [E] str and
    `plane` [E, 2] float32, by `plane_method`; `class_names` of all classes.
    Where the representations are fewer than three or all the same, `plane` is
    all zeros.

    The same arguments give the same files. Where the settings want none of
    one, an earlier one is removed.

    Args:
      run: where they are written; size and augmentation are its own.
      chosen: how many images, and the method of the plane.
      test: the split that images are chosen from.
      bank: the training split.
      probabilities: [test examples, classes] float of the linear classifier;
        None without one.
    """
    for file in (run.files.samples_file, run.files.representations_file):
        file.unlink(missing_ok=True)
    if chosen.sample_images:
        predicted = predicted_labels(test, probabilities)
        positions = _sample_positions(
            test.labels, predicted, chosen.sample_images
        )
        size = run.settings.image_size
        views, view_labels = _views(run.settings, bank.source)
        run_files.write_arrays(
            run.files.samples_file,
            images=thumbnails(test.source, positions, size, _SIDE),
            labels=test.labels[positions],
            predicted=predicted[positions],
            views=views,
            view_labels=view_labels,
            **_mistakes(test, probabilities, size),
            **_neighbors(test.representations[positions], bank, size),
        )
    if chosen.plotted_images:
        positions = plotted_positions(chosen, test)
        points = test.representations[positions]
        run_files.write_arrays(
            run.files.representations_file,
            representations=points,
            labels=test.labels[positions],
            ids=plotted_ids(positions, test.source),
            plane=_plane(points, chosen.plane),
            plane_method=np.array(chosen.plane),
            class_names=np.array(test.source.class_names),
        )


def predicted_labels(
    test: splits.EncodedSplit, probabilities: np.ndarray | None
) -> np.ndarray:
    """The most probable class of each test image.

    Args:
      test: the split.
      probabilities: [examples, classes] float; None without a classifier.

    Returns:
      [examples] int32, -1 without a classifier.
    """
    if probabilities is None:
        return np.full_like(test.labels, -1)
    return probabilities.argmax(axis=1).astype(np.int32)


def plotted_positions(
    chosen: config.EvaluateSettings, test: splits.EncodedSplit
) -> np.ndarray:
    """Which test images are plotted: all, or as many, evenly spread.

    Args:
      chosen: the settings; `plotted_images` is the largest number.
      test: the split.

    Returns:
      [E] int64, ascending positions in the fixed order.
    """
    count = len(test.labels)
    return _evenly(count, min(count, chosen.plotted_images))


def plotted_ids(positions: np.ndarray, source: data.Source) -> np.ndarray:
    """What examples are called: their ids, or else their positions.

    Args:
      positions: [E] integers in the fixed order.
      source: the split.

    Returns:
      [E] str.
    """
    if source.ids is None:
        return positions.astype(str)
    return np.array([source.ids[position] for position in positions])


def thumbnails(
    source: data.Source, positions: np.ndarray, image_size: int, side: int
) -> np.ndarray:
    """Reads images of a split as evaluation crops them, and reduces them.

    Args:
      source: the split.
      positions: integers of any shape, positions in the fixed order.
      image_size: side in pixels of the centre crops.
      side: side in pixels that larger ones are reduced to, each pixel the mean
        of those that it covers.

    Returns:
      [*shape of positions, S, S, 3] uint8, S the smaller of the two sides.
    """
    needed, places = np.unique(positions, return_inverse=True)
    examples = data.make_examples(
        source, _BATCH_SIZE, image_size=image_size, positions=needed
    )
    images = np.concatenate([_reduced(batch, side) for batch, _ in examples])
    return images[places.reshape(positions.shape)]


def _reduced(images: tf.Tensor, side: int) -> np.ndarray:
    """Images [n, S, S, 3] of `side` pixels at most, by area."""
    side = min(side, images.shape[1])
    resized = tf.image.resize(images, [side, side], method="area")
    return tf.cast(tf.round(resized), tf.uint8).numpy()


def _sample_positions(
    labels: np.ndarray, predicted: np.ndarray, count: int
) -> np.ndarray:
    """Which test images are shown: wrong ones first, half of all if there are.

    Of as many classes as possible, first by first.
    """
    count = min(count, len(labels))
    is_wrong = (predicted != labels) & (predicted >= 0)
    wrong, right = np.flatnonzero(is_wrong), np.flatnonzero(~is_wrong)
    num_wrong = min(len(wrong), max(count // 2, count - len(right)))
    first = _spread(wrong, labels, num_wrong)
    return _spread(right, labels, count - num_wrong, first)


def _spread(
    candidates: np.ndarray,
    labels: np.ndarray,
    count: int,
    before: np.ndarray | tuple[()] = (),
) -> np.ndarray:
    """Positions `before`, and `count` candidates of the rarest classes so far.

    Where more classes are equally rare, the classes are evenly spread too.
    """
    before = np.asarray(before, np.int64)
    both = np.concatenate([before, candidates])
    turns = _turns(labels[both])[len(before) :]
    order = np.lexsort([labels[candidates], turns])
    rarest = np.count_nonzero(turns == turns.min(initial=len(labels)))
    if count < rarest:
        order = order[_evenly(rarest, count)]
    return np.concatenate([before, candidates[order[:count]]])


def _turns(labels: np.ndarray) -> np.ndarray:
    """How often each label was there before, [n] int."""
    order = np.argsort(labels, kind="stable")
    ranked = labels[order]
    turns = np.empty(len(labels), np.int64)
    turns[order] = np.arange(len(labels)) - np.searchsorted(ranked, ranked)
    return turns


def _evenly(total: int, count: int) -> np.ndarray:
    """`count` of the integers below `total`, evenly spread."""
    return np.arange(count) * total // max(count, 1)


def _neighbors(
    queries: np.ndarray, bank: splits.EncodedSplit, size: int
) -> dict[str, np.ndarray]:
    """The training images most similar to each query, most similar first."""
    similarities, indices = measures.nearest_neighbors(
        queries, bank.representations, _NEIGHBORS
    )
    return {
        "neighbors": thumbnails(bank.source, indices, size, _SIDE),
        "neighbor_labels": bank.labels[indices],
        "neighbor_similarities": similarities,
    }


def _mistakes(
    test: splits.EncodedSplit, probabilities: np.ndarray | None, size: int
) -> dict[str, np.ndarray]:
    """The wrong predictions of the highest confidence; {} where none is."""
    wrong = np.flatnonzero(predicted_labels(test, probabilities) != test.labels)
    if probabilities is None or not len(wrong):
        return {}
    # Stable: a report sorts predictions.npz in the same way.
    order = np.argsort(-probabilities[wrong].max(axis=1), kind="stable")
    positions = wrong[order[:_MISTAKES]]
    return {
        "mistakes": thumbnails(test.source, positions, size, _SIDE),
        "mistake_positions": positions.astype(np.int32),
    }


def _views(
    pretrained: config.PretrainSettings, source: data.Source
) -> tuple[np.ndarray, np.ndarray]:
    """Views of some of the first images of stage 1, as its first epoch has.

    Not mixed, and made here whatever data service there was. With
    `images_per_class` stage 1 took images in another order.
    """
    batches = data.make_views(
        source,
        min(_CANDIDATES, source.num_examples),
        _VIEWS,
        input_pipeline.augmentation(pretrained),
        pretrained.seed,
        image_size=pretrained.image_size,
        crop_area=pretrained.crop_area or None,
        horizontal_flip=pretrained.horizontal_flip,
    )
    views, labels = next(batches.as_numpy_iterator())
    shown = np.sort(_spread(np.arange(len(labels)), labels, _VIEWED_IMAGES))
    views = views[shown]
    flat = _reduced(tf.constant(views.reshape(-1, *views.shape[2:])), _SIDE)
    return flat.reshape(*views.shape[:2], *flat.shape[1:]), labels[shown]


def _plane(points: np.ndarray, method: str) -> np.ndarray:
    """The points in the plane; zeros where there is nothing to lay out.

    A collapsed encoder is a result, not a reason to lose the others.
    """
    if len(points) < 3 or np.ptp(points, axis=0).max() == 0:
        return np.zeros([len(points), 2], np.float32)
    return plots.to_plane(points, method)[0].astype(np.float32)
