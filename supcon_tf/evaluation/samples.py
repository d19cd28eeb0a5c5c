"""Images for a report to show: samples.npz, representations.npz."""

from __future__ import annotations

import numpy as np

from supcon_tf import data, measures, run_files
from supcon_tf.data import subsets
from supcon_tf.evaluation import plots, splits
from supcon_tf.host import trust
from supcon_tf.training import input_pipeline, runs

_SIDE = 96  # pixels, of an image in samples.npz
_NEIGHBORS = 8
_MISTAKES = 10
_VIEWED_IMAGES = 4
_VIEWS = 6
_CANDIDATES = 16  # first images of stage 1, to choose the viewed ones from


def write_samples(
    run: runs.Run,
    into: run_files.RunDirectory,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    count: int,
) -> None:
    """Writes samples.npz of an evaluation, with `count` test images at most.

    It holds `images` [S, H, W, 3] uint8 of the test split, `labels` [S] and
    `predicted` [S] (-1 without a classifier) int32; the training images most
    similar to each, `neighbors` [S, K, H, W, 3] uint8, `neighbor_labels` [S, K]
    int32 and `neighbor_similarities` [S, K] float32, cosines; the views of some
    training images, `views` [I, V, H, W, 3] uint8 and `view_labels` [I] int32.
    With a classifier, the test images that it is surest of and wrong on, ten
    at most: `mistakes` [M, H, W, 3] uint8, the surest first, and their
    positions in the fixed order, `mistake_positions` [M] int32. H = W is the
    side of the images, reduced to 96 pixels at most. A run on texts has str in
    place of images, and no views. Where `bank` is the test split itself, the
    neighbours are the other test images. The same arguments give the same file.
    """
    positions = _sample_positions(test.labels, test.predicted, count)
    train = run.source("train") if bank is test else bank.source
    similarities, nearest = _nearest(test, positions, bank)
    run_files.write_arrays(
        into.samples_file,
        images=test.to_display(positions, _SIDE),
        labels=test.labels[positions],
        predicted=test.predicted[positions],
        neighbors=bank.to_display(nearest, _SIDE),
        neighbor_labels=bank.labels[nearest],
        neighbor_similarities=similarities,
        **_mistakes(test),
        **_views(run, train),
    )


def write_representations(
    into: run_files.RunDirectory,
    test: splits.EncodedSplit,
    positions: np.ndarray,
    method: str,
) -> None:
    """Writes representations.npz of an evaluation.

    Of the E test images at `positions`, `representations` [E, dim] float32,
    `labels` [E] int32, `ids` [E] str and `plane` [E, 2] float32, by
    `plane_method`, "tsne" or "pca"; `class_names` of all classes. Where the
    representations are fewer than three or all the same, `plane` is all zeros.
    """
    points = test.representations[positions]
    run_files.write_arrays(
        into.representations_file,
        representations=points,
        labels=test.labels[positions],
        ids=test.names(positions),
        plane=_plane(points, method),
        plane_method=np.array(method),
        class_names=np.array(test.source.class_names),
    )


def _nearest(
    test: splits.EncodedSplit, positions: np.ndarray, bank: splits.EncodedSplit
) -> list[np.ndarray]:
    """Similarities and positions in the bank of the neighbours, [Q, K] each.

    Where the bank is the test split, no image is its own neighbour.
    """
    is_bank = bank is test
    similarities, nearest = measures.nearest_neighbors(
        test.representations[positions],
        bank.representations,
        _NEIGHBORS + is_bank,
    )
    if not is_bank:
        return [similarities, nearest]
    is_other = nearest != positions[:, None]
    # Of K + 1 equal images one may be missing among its own neighbours.
    is_other[is_other.all(axis=1), -1] = False
    shape = len(nearest), nearest.shape[1] - 1  # [Q, K]
    return [array[is_other].reshape(shape) for array in (similarities, nearest)]


def _sample_positions(
    labels: np.ndarray, predicted: np.ndarray, count: int
) -> np.ndarray:
    """Positions of test images to show: wrong ones first, half if as many.

    They are of as many classes as possible, first by first.
    """
    count = min(count, len(labels))
    is_wrong = (predicted != labels) & (predicted >= 0)
    wrong, right = np.flatnonzero(is_wrong), np.flatnonzero(~is_wrong)
    num_wrong = min(len(wrong), max(count // 2, count - len(right)))
    shown_wrong = _spread(wrong, labels, num_wrong, wrong[:0])
    shown_right = _spread(right, labels, count - num_wrong, shown_wrong)
    return np.concatenate([shown_wrong, shown_right])


def _spread(
    candidates: np.ndarray, labels: np.ndarray, count: int, chosen: np.ndarray
) -> np.ndarray:
    """`count` candidates, of the classes that are rarest among the chosen.

    Where more classes are equally rare, the classes are evenly spread too.
    `candidates` and `chosen` are positions in `labels`.
    """
    positions = np.concatenate([chosen, candidates])
    turns = subsets.turns(labels[positions])[len(chosen) :]
    order = np.lexsort([labels[candidates], turns])
    rarest = np.count_nonzero(turns == turns.min(initial=len(labels)))
    if count < rarest:
        order = order[subsets.evenly(rarest, count)]
    return candidates[order[:count]]


def _mistakes(test: splits.EncodedSplit) -> dict[str, np.ndarray]:
    """The wrong predictions of highest confidence; {} where all are right."""
    wrong = np.flatnonzero(test.predicted != test.labels)
    if test.predictions is None or not len(wrong):
        return {}
    # Stable: a report sorts predictions.npz in the same way.
    surest = np.argsort(-test.predictions.confidence[wrong], kind="stable")
    positions = wrong[surest[:_MISTAKES]]
    return {
        "mistakes": test.to_display(positions, _SIDE),
        "mistake_positions": positions.astype(np.int32),
    }


def _views(run: runs.Run, source: data.Source) -> dict[str, np.ndarray]:
    """Views of some of the first images of stage 1, as in its first epoch.

    {} for texts, and where they are made by code that only the run names.

    The views are not mixed, and made here whatever data service there was. With
    `images_per_class` stage 1 took images in another order.
    """
    stage_1 = run.settings
    if run.is_of_texts or trust.names_module(stage_1.augmentation):
        return {}
    count = min(_CANDIDATES, source.num_examples)
    batches = input_pipeline.local_views(
        stage_1, source, count, stage_1.image_size, _VIEWS
    )
    views, labels, *_ = next(batches.as_numpy_iterator())  # [C, V, H, W, 3]
    candidates = np.arange(count)
    chosen = _spread(candidates, labels, _VIEWED_IMAGES, candidates[:0])
    chosen = np.sort(chosen)
    views = np.stack([splits.reduced(image, _SIDE) for image in views[chosen]])
    return {"views": views, "view_labels": labels[chosen]}


def _plane(points: np.ndarray, method: str) -> np.ndarray:
    """The points in the plane; zeros where there is nothing to lay out.

    A collapsed encoder is a result, not a reason to lose the others.
    """
    if len(points) < 3 or np.ptp(points, axis=0).max() == 0:
        return np.zeros([len(points), 2], np.float32)
    return plots.to_plane(points, method)[0].astype(np.float32)
