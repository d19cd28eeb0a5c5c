"""Stateless random numbers with one seed per image of a batch.

`tf.random.stateless_*` takes one seed for a whole tensor. Here every image
brings its own pair of integers, so that what it draws depends neither on its
neighbours nor on the size of the batch.
"""

from __future__ import annotations

import enum
import math

import tensorflow as tf

from supcon_tf import exceptions

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # Salmon et al. 2011, Table 2
_PARITY = 0x1BD11BDA  # the key-schedule constant of Threefish
_FOLD_STREAM = 0xFFFFFFFF  # no stream of draws: see `fold_in`


class Stream(enum.IntEnum):
    """One stream per use: operations given equal seeds draw independently."""

    UNNAMED = 0
    FLIP = 1
    JITTER = 2
    WARP_LENGTH = 3
    WARP_DIRECTION = 4
    SIM_AUGMENT = 5
    AUTO_AUGMENT = 6
    RAND_AUGMENT = 7


def threefry(
    keys: tuple[tf.Tensor, tf.Tensor], counters: tuple[tf.Tensor, tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Threefry-2x32 with 20 rounds, the counter-based generator.

    Takes four uint32 tensors, which must broadcast, and returns two.

    Reference: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11.
    """
    parity = tf.constant(_PARITY, tf.uint32)
    schedule = (*keys, keys[0] ^ keys[1] ^ parity)
    left = counters[0] + schedule[0]
    right = counters[1] + schedule[1]
    for group in range(1, 6):
        for bits in _ROTATIONS[(group - 1) % 2]:
            left += right
            right = left ^ (
                tf.bitwise.left_shift(right, tf.constant(bits, tf.uint32))
                | tf.bitwise.right_shift(
                    right, tf.constant(32 - bits, tf.uint32)
                )
            )
        left += schedule[group % 3]
        right += schedule[(group + 1) % 3] + tf.constant(group, tf.uint32)
    return left, right


def uniform(
    seeds: tf.Tensor, count: int, stream: int = Stream.UNNAMED
) -> tf.Tensor:
    """Uniform draws in [0, 1), `count` for each image.

    Draw number n of an image is a function of its seeds, n and the stream
    alone: asking for more draws does not change the first ones.

    Args:
      seeds: [batch, 2] int32.
      count: draws per image.
      stream: draws from different streams are independent, 0 to 2**32 - 2.

    Returns:
      [batch, count] float32, multiples of 2**-24 in [0, 1).

    Raises:
      ValueError: `seeds` is not [batch, 2] int32.
    """
    seeds = tf.convert_to_tensor(seeds)
    fits = seeds.shape.is_compatible_with([None, 2])
    exceptions.require(
        seeds.dtype == tf.int32 and fits,
        "`seeds` must be [batch, 2] int32",
        f"{seeds.shape} {seeds.dtype.name}",
    )
    first, second = tf.split(tf.bitcast(seeds, tf.uint32), 2, axis=1)
    draws = tf.cast(tf.range(count)[tf.newaxis], tf.uint32)  # [1, count]
    words, _ = threefry(
        (first, second), (draws, tf.constant(stream, tf.uint32))
    )  # [batch, count]
    top = tf.bitwise.right_shift(words, tf.constant(8, tf.uint32))
    return tf.cast(top, tf.float32) * 2.0**-24


def normal(
    seeds: tf.Tensor, count: int, stream: int = Stream.UNNAMED
) -> tf.Tensor:
    """Standard normal draws by Box-Muller, `count` for each image.

    Arguments and errors are those of `uniform`, of which draw n uses draws 2n
    and 2n + 1. Returns [batch, count] float32, magnitude below 5.8.
    """
    # float64: in float32 the vector and the scalar code of log and cos differ
    # in the last bit, and the place in the batch decides which one runs.
    draws = tf.cast(uniform(seeds, 2 * count, stream), tf.float64)
    radius = tf.sqrt(-2.0 * tf.math.log(1.0 - draws[:, 0::2]))
    angle = 2.0 * math.pi * draws[:, 1::2]
    return tf.cast(radius * tf.cos(angle), tf.float32)


def fold_in(seeds: tf.Tensor, data: tf.Tensor) -> tf.Tensor:
    """Hashes an integer into seeds: a run's seed, then epoch, position, view.

    The result is independent of all draws made with the same seeds, and of
    what other integers give. The order of several foldings matters.

    Args:
      seeds: [..., 2] int32, such as [2] or [batch, 2].
      data: [...] of any integer type, taken modulo 2**32; broadcasts with the
        leading axes of `seeds`.

    Returns:
      [..., 2] int32, of the broadcast shape.

    Raises:
      ValueError: `seeds` does not end in 2, or is not int32; `data` is not
        of an integer type.
    """
    seeds, data = tf.convert_to_tensor(seeds), tf.convert_to_tensor(data)
    exceptions.require(
        seeds.dtype == tf.int32 and seeds.shape[-1:] == [2],
        "`seeds` must be [..., 2] int32",
        f"{seeds.shape} {seeds.dtype.name}",
    )
    exceptions.require(
        data.dtype.is_integer, "`data` must be integers", data.dtype.name
    )
    keys = tf.unstack(tf.bitcast(seeds, tf.uint32), axis=-1)
    words = threefry(
        (keys[0], keys[1]),
        (tf.cast(data, tf.uint32), tf.constant(_FOLD_STREAM, tf.uint32)),
    )
    return tf.bitcast(tf.stack(words, axis=-1), tf.int32)
