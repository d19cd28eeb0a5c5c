"""A split of the data: as an encoder sees it, and as people are shown it."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import data

_BATCH_SIZE = 64  # bounds the memory of images before they are reduced


@dataclasses.dataclass(frozen=True)
class EncodedSplit:
    """The examples of a split and their representations, in the same order.

    Attributes:
      source: images or texts; its fixed order is that of the arrays.
      representations: [examples, dim] float32.
      labels: [examples] int32.
      image_size: side in pixels of the centre crops that were encoded; None for
        texts.
      probabilities: [examples, classes] float of the first classifier of the
        run; None without one.
    """

    source: data.Source
    representations: np.ndarray
    labels: np.ndarray
    image_size: int | None
    probabilities: np.ndarray | None = None

    @property
    def predicted(self) -> np.ndarray:
        """The most probable classes, [examples] int32; -1 without any."""
        if self.probabilities is None:
            return np.full_like(self.labels, -1)
        return self.probabilities.argmax(axis=1).astype(np.int32)

    def names(self, positions: np.ndarray) -> np.ndarray:
        """What examples at positions are called, [E] str: ids or positions."""
        if self.source.ids is None:
            return positions.astype(str)
        return np.array([self.source.ids[position] for position in positions])

    def shown(self, positions: np.ndarray, side: int) -> np.ndarray:
        """What people are shown of examples: texts, or centre crops, reduced.

        Args:
          positions: integers of any shape, positions in the fixed order.
          side: side in pixels that larger images are reduced to.

        Returns:
          [*shape of positions, S, S, 3] uint8, S the smaller of both sides; or
          the texts, [*shape of positions] str.
        """
        if self.source.texts is not None:
            texts = [self.source.texts[place] for place in positions.flat]
            return np.array(texts, str).reshape(positions.shape)
        needed, places = np.unique(positions, return_inverse=True)
        examples = data.make_examples(
            self.source,
            _BATCH_SIZE,
            image_size=self.image_size,
            positions=needed,
        )
        images = np.concatenate([reduced(batch, side) for batch, _ in examples])
        return images[places.reshape(positions.shape)]


def reduced(images: tf.Tensor | np.ndarray, side: int) -> np.ndarray:
    """Reduces images by area to a side in pixels: [n, side, side, 3] uint8.

    Smaller images stay as they are; gray ones become RGB.
    """
    side = min(side, images.shape[1])
    resized = tf.image.resize(images, [side, side], method="area")
    pixels = tf.cast(tf.round(resized), tf.uint8)
    return tf.broadcast_to(pixels, [*pixels.shape[:3], 3]).numpy()


def evenly(total: int, count: int) -> np.ndarray:
    """At most `count` of the integers below `total`, evenly spread, rising."""
    count = min(count, total)
    return np.arange(count) * total // max(count, 1)
