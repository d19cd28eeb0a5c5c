"""Stateless random numbers with one seed per image of a batch.

`tf.random.stateless_*` takes one seed for a whole tensor. Here every image has
its own pair of integers, so that its draws depend neither on its neighbours nor
on the size of the batch.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence

import tensorflow as tf

from supcon_tf import exceptions

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # Salmon et al. 2011, Table 2
_PARITY = 0x1BD11BDA  # the key-schedule constant of Threefish
_FOLD_STREAM = 0xFFFFFFFF  # of `fold_in`, not of draws


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
    keys: Sequence[tf.Tensor], counters: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Threefry-2x32 with 20 rounds, the counter-based generator.

    Takes two keys and two counters, uint32 tensors that must broadcast, and
    returns two more.

    Reference: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11.
    """
    tensors = *keys, *counters
    shapes = [tensor.shape for tensor in tensors]
    left, right = _threefry(*tensors)
    for words in (left, right):
        words.set_shape(functools.reduce(tf.broadcast_static_shape, shapes))
    return left, right


# A pipeline has some ten hashes: as a function each is one node, not 160.
@tf.function(
    input_signature=[tf.TensorSpec(None, tf.uint32)] * 4, autograph=False
)
def _threefry(
    key: tf.Tensor, key_2: tf.Tensor, left: tf.Tensor, right: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    schedule = key, key_2, key ^ key_2 ^ _PARITY
    left += key
    right += key_2
    for group in range(1, 6):
        for bits in _ROTATIONS[(group - 1) % 2]:
            left += right
            right = left ^ (
                tf.bitwise.left_shift(right, bits)
                | tf.bitwise.right_shift(right, 32 - bits)
            )
        left += schedule[group % 3]
        right += schedule[(group + 1) % 3] + group
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
    is_pair = seeds.shape.is_compatible_with([None, 2])
    exceptions.require(
        seeds.dtype == tf.int32 and is_pair,
        "`seeds` must be [batch, 2] int32",
        f"{seeds.shape} {seeds.dtype.name}",
    )
    keys = tf.split(tf.bitcast(seeds, tf.uint32), 2, axis=1)
    draws = tf.cast(tf.range(count)[tf.newaxis], tf.uint32)  # [1, count]
    counters = draws, tf.constant(stream, tf.uint32)
    words, _ = threefry(keys, counters)  # [batch, count]
    return tf.cast(tf.bitwise.right_shift(words, 8), tf.float32) * 2.0**-24


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

    The result is independent of all draws made with the same seeds, and of the
    results of other integers. The order of several foldings matters.

    Args:
      seeds: [..., 2] int32, such as [2] or [batch, 2].
      data: [...] of any integer type, taken modulo 2**32; broadcasts with the
        leading axes of `seeds`.

    Example:
      >>> from supcon_tf import augment
      >>> epoch_seed = augment.fold_in([0, 0], 3)
      >>> seeds = augment.fold_in(epoch_seed, range(256))  # of 256 positions
      >>> tuple(epoch_seed.shape), tuple(seeds.shape)
      ((2,), (256, 2))

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
    counters = tf.cast(data, tf.uint32), tf.constant(_FOLD_STREAM, tf.uint32)
    return tf.bitcast(tf.stack(threefry(keys, counters), axis=-1), tf.int32)
