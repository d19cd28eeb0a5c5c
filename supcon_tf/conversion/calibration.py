"""The training images that tell int8 the ranges of its activations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from supcon_tf import data
from supcon_tf.data import subsets


def calibration_images(
    images: data.Source, image_size: int, count: int, seed: int
) -> npt.NDArray[np.uint8]:
    """Draws images of all classes alike, and crops them as evaluation does.

    Args:
      images: the training split.
      image_size: side S of the crops in pixels.
      count: images; all there are, where these are fewer.
      seed: the same seed draws the same images.

    Returns:
      [n, S, S, 3] uint8.
    """
    drawn = draw_alike(subsets.labels_of(images), count, seed)
    examples = data.make_examples(
        images, len(drawn), image_size=image_size, positions=drawn
    )
    return examples.get_single_element()[0].numpy()


def draw_alike(labels: npt.ArrayLike, count: int, seed: int) -> np.ndarray:
    """Draws as many examples of each class as of any other, as far as it goes.

    Their numbers differ by one where the classes do not divide `count`, and
    are lower for classes that have no more.

    Args:
      labels: [examples] integers.
      count: examples to draw, at least 1; all, where there are fewer.
      seed: integer; the same seed draws the same examples.

    Returns:
      [min(count, examples)] positions in `labels`, rising.
    """
    labels = np.asarray(labels)
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    # How many of its class come before an example, in the shuffled order.
    rank = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        own = labels[shuffled] == label
        rank[own] = np.arange(own.sum())
    first = np.argsort(rank, kind="stable")[:count]
    return np.sort(shuffled[first])
