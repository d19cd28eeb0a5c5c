"""The input pipelines of `bench_input`: the work, and ours.

TensorFlow is imported by the functions that need it, see `libraries`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from supcon_tf.benchmarks import input_images

CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)

Batches = Iterator[object]


@dataclasses.dataclass(frozen=True)
class Work:
    """What an implementation is to do.

    Attributes:
      input: "memory": policy alone, from the arrays; "jpeg": read, decode,
        random crop, flip and policy; "views": that, with two views.
      size: side of the views in pixels.
      policy: one of `config.INPUT_POLICIES`.
      batch_size: images per batch; for "views" two views each.
      folder: what `input_images.prepare` has filled.
      workers: processes of a DataLoader.
      seed: of our augmentation; the peers' draws are their own.
    """

    input: str
    size: int
    policy: str
    batch_size: int
    folder: str
    workers: int
    seed: int


def make_policy(name: str) -> Callable[[object, object], object]:
    """Our policy of that name: [n, H, W, 3] uint8 images, [n, 2] seeds."""
    from supcon_tf import augment

    return {
        "identity": augment.Identity,
        "autoaugment": lambda: augment.AutoAugment(policy="v0"),
        "randaugment": lambda: augment.RandAugment(2, 10.0),
        "simaugment": augment.SimAugment,
        "simclr": lambda: augment.SimAugment(warp_probability=0.0),
        "stacked_randaugment": augment.StackedRandAugment,
    }[name]()


def our_memory(work: Work) -> Batches:
    """Ours on a batch at a time, seeds included."""
    import tensorflow as tf

    from supcon_tf import augment

    images = tf.constant(load_arrays(work))
    policy = make_policy(work.policy)
    run_seeds = tf.constant([work.seed, 0], tf.int32)

    def make_batch(step: tf.Tensor) -> tf.Tensor:
        positions = step * work.batch_size + tf.range(
            work.batch_size, dtype=tf.int64
        )
        seeds = augment.fold_in(augment.fold_in(run_seeds, step), positions)
        return policy(tf.gather(images, positions % len(images)), seeds)

    return iter(
        tf.data.Dataset.counter()
        .map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def our_jpeg(work: Work, views: int = 1) -> Batches:
    """Ours as training uses it; the views of an image follow each other."""
    import tensorflow as tf

    shape = [-1, work.size, work.size, 3]
    for batch, _ in _make_views(work, views, work.seed):
        yield tf.reshape(batch, shape)


def our_views(work: Work) -> Batches:
    """Two views of each image from one decode."""
    return our_jpeg(work, views=2)


def our_views_twice(work: Work) -> Batches:
    """The same from two pipelines of one view, each with its own decode."""
    import tensorflow as tf

    halves = [_make_views(work, 1, work.seed + half) for half in range(2)]
    shape = [-1, work.size, work.size, 3]
    pairs = (
        tf.data.Dataset.zip(tuple(halves))
        .map(lambda one, two: tf.concat([one[0], two[0]], axis=1))
        .prefetch(tf.data.AUTOTUNE)
    )
    for batch in pairs:
        yield tf.reshape(batch, shape)


def _make_views(work: Work, views: int, seed: int) -> object:
    """The pipeline of training, a tf.data.Dataset."""
    from supcon_tf import data

    source = data.load("folder", "train", work.folder)
    return data.make_views(
        source,
        work.batch_size,
        views,
        make_policy(work.policy),
        seed,
        image_size=work.size,
        crop_area=CROP_AREA,
        crop_aspect=CROP_ASPECT,
    )


def load_arrays(work: Work) -> np.ndarray:
    """[distinct, size, size, 3] uint8."""
    return np.load(input_images.array_path(work.folder, work.size))


def list_files(work: Work) -> list[str]:
    """Paths of the JPEG files, in order."""
    return sorted(map(str, input_images.link_directory(work.folder).iterdir()))
