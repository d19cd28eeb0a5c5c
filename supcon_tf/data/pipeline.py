"""Batches of views for training."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import exceptions, tracing
from supcon_tf.augment import geometry, mixing, named, randomness
from supcon_tf.data import (
    epoch_steps,
    images,
    mixed,
    sampling,
    service,
    sources,
)

# Uses of a seed are folded in first, so that no two uses share their bits.
_ORDER, _VIEW = 0, 1  # uses of the run's seed
_CROP, _FLIP, _POLICY = 0, 1, 2  # uses of a view's seed

# Side in pixels up to which a file is decoded whole: operations on header and
# window would cost more than the pixels.
_SMALL_SIDE = 64

# Examples of one parallel call: a call per example would cost as much as a
# small image. Batches are rebatched from chunks.
_CHUNK = 16

_MAX_EPOCHS = 2**31  # in effect, without end

# A name, a policy, or a Keras layer, which is called with images alone.
Augmentation = str | named.Policy | Callable[[tf.Tensor], tf.Tensor] | None


def steps_per_epoch(source: sources.Source, batch_size: int) -> int:
    """The full batches in one epoch, at least 1: num_examples // batch_size.

    Example:
      >>> from supcon_tf import data
      >>> data.steps_per_epoch(data.load("digits", "train"), 64)
      22

    Raises:
      ValueError: `batch_size` is not in 1..num_examples.
    """
    exceptions.require(
        1 <= batch_size <= source.num_examples,
        "`batch_size` must be in 1..num_examples",
        f"{batch_size} for the {source.num_examples} examples of "
        f"{source.name} ({source.split})",
    )
    return source.num_examples // batch_size


@epoch_steps.with_epochs
def make_views(
    source: sources.Source,
    batch_size: int,
    num_views: int = 2,
    augmentation: Augmentation = None,
    seed: int = 0,
    *,
    image_size: int | None = None,
    crop_area: tuple[float, float] | None = geometry.CROP_AREA,
    crop_aspect: tuple[float, float] = geometry.CROP_ASPECT,
    horizontal_flip: bool = True,
    start_step: int = 0,
    images_per_class: int | None = None,
    shard: tuple[int, int] = (0, 1),
    mix: mixing.MixUp | mixing.CutMix | None = None,
    data_service: str | None = None,
    job_name: str | None = None,
) -> tf.data.Dataset:
    """Makes the endless multiviewed batches of training.

    Each view is an independent random resized crop, flip and `augmentation` of
    its example. Every epoch is a fresh permutation cut into `steps_per_epoch`
    full batches. Order and views depend on (seed, epoch, position in the epoch,
    view) alone, so that `start_step` enters the same sequence at any step. A
    data service gives the views in another order. The images are mixed behind
    the service, since mixing depends on the step.

    Args:
      source: the training split.
      batch_size: examples per batch, over all replicas.
      num_views: views per example, all of one decoding of its file.
      augmentation: a policy on ([n, S, S, C] images, [n, 2] int32 seeds) that
        returns the same shape and dtype, or an argument of `augment.policy`: a
        name such as "simaugment", a Keras layer, which ignores the seeds; None
        for none.
      seed: integer in 0..2^31-1.
      image_size: side S of the views in pixels; None takes the source's.
      crop_area: range of the share of the area; None for a central crop.
      crop_aspect: range of the crop's width / height.
      horizontal_flip: mirror each view with probability 0.5.
      start_step: step of the whole run whose batch comes first.
      images_per_class: as of `sampling.class_balanced`; None for any.
      shard: (index, count) of a worker, which reads its consecutive rows of
        every global batch, or fills them from its own files; from a data
        service, as many rows of any batch.
      mix: mixes the images of a batch, or of a worker's rows of it; the labels
        become soft, [batch_size / count, classes] float32.
      data_service: grpc://host:port of a data service, whose workers make the
        views, as by `through_service`; None makes them in this process.
      job_name: as of `through_service`; several workers need one.

    Example:
      >>> from supcon_tf import augment, data
      >>> digits = data.load("digits", "train")
      >>> views = data.make_views(digits, 64)
      >>> [part.shape for part in views.element_spec]
      [TensorShape([64, 2, 32, 32, 3]), TensorShape([64])]
      >>> mixed = data.make_views(digits, 64, mix=augment.MixUp(num_classes=10))
      >>> mixed.element_spec[1].shape
      TensorShape([64, 10])

    Returns:
      An infinite dataset of (views [batch_size / count, num_views, S, S, C] of
      the type of the source, labels [batch_size / count] int32); for a source
      with weights, a third element has them, [batch_size / count] float32.
      Models of this package read the epochs of the dataset: `fit` needs no
      steps, and a second `fit` goes on with the sequence.

    Raises:
      ValueError: an argument is out of range, the images have no common size
        and `image_size` is None, or `shard` does not divide the batch or is not
        that of the source; images with weights are mixed; or as
        `check_service`.
    """
    exceptions.require(
        mix is None or source.weights is None,
        "`mix` must be None for images with weights",
        type(mix).__name__,
    )
    if images_per_class is not None:
        source = sampling.class_balanced(source, batch_size, images_per_class)
    size = resolve_image_size(source, image_size)
    # The workers of a run share the whole batches of a data service.
    source_shard = shard if data_service is None else (0, 1)
    chunks = ordered(source, batch_size, seed, start_step, source_shard)
    read = _chunk_reader(source, num_views, seed, size, crop_area, crop_aspect)
    chunks = chunks.map(read, num_parallel_calls=tf.data.AUTOTUNE)
    batches = endless(
        chunks.rebatch(batch_size // source_shard[1], drop_remainder=True).map(
            augmenter(horizontal_flip, augmentation),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
    )
    worker, workers = shard
    if data_service is not None:
        exceptions.require(
            workers == 1 or job_name is not None,
            "`job_name` must be given, the same on all workers of a run, for "
            "else each of them would get all batches",
            job_name,
        )
        if workers > 1:  # All share the job, and get their rows of any batch.
            rows = batch_size // workers
            batches = batches.rebatch(rows, drop_remainder=True)
        with exceptions.argument("data_service", "address"):
            batches = service.through_service(batches, data_service, job_name)
    if mix is not None:
        batches = mixed.by_step(batches, mix, seed, start_step, worker)
    return batches


def ordered(
    source: sources.Source,
    batch_size: int,
    seed: int,
    start_step: int,
    shard: tuple[int, int],
) -> tf.data.Dataset:
    """Yields n records, epochs [n] and positions in them [n], without end.

    The order and the arguments are those of `make_views`.

    Raises:
      ValueError: an argument is out of range, or `shard` does not divide the
        batch or is not that of the source.
    """
    _check_shard(source, batch_size, shard)
    check_at_least("seed", seed, 0)
    check_at_least("start_step", start_step, 0)
    steps = steps_per_epoch(source, batch_size)
    first_epoch, first_step = divmod(start_step, steps)
    order_seeds = randomness.fold_in(_seed_pair(seed), _ORDER)
    index, count = shard

    def worker_rows(dataset: tf.data.Dataset) -> tf.data.Dataset:
        if count == 1:
            return dataset
        return dataset.batch(batch_size // count).shard(count, index).unbatch()

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        first = tf.where(epoch == first_epoch, first_step * batch_size, 0)
        first, end = tf.cast(first, tf.int64), steps * batch_size
        positions = worker_rows(tf.data.Dataset.range(first, end))
        records = source.records(randomness.fold_in(order_seeds, epoch))
        if source.shard is None:
            records = worker_rows(records.skip(first))
        else:
            records = records.repeat().skip(first // count)
        return tf.data.Dataset.zip((records, positions)).map(
            lambda record, position: (record, epoch, position)
        )

    # Not Dataset.counter: each worker of a data service would count by itself.
    epochs = tf.data.Dataset.range(first_epoch, _MAX_EPOCHS)
    return epochs.flat_map(epoch_records).batch(_CHUNK)


def view_seeds(
    seed: int, epochs: tf.Tensor, positions: tf.Tensor, num_views: int
) -> tf.Tensor:
    """The seeds [n, V, 2] of the views of n examples that `ordered` yields."""
    seeds = randomness.fold_in(_seed_pair(seed), _VIEW)
    seeds = randomness.fold_in(seeds, epochs)  # [n, 2]
    seeds = randomness.fold_in(seeds, positions)[:, tf.newaxis]
    return randomness.fold_in(seeds, tf.range(num_views))


def crop_seeds(seeds: tf.Tensor) -> tf.Tensor:
    """The seeds [..., 2] of crops, from the seeds of views."""
    return randomness.fold_in(seeds, _CROP)


def _seed_pair(seed: int) -> tf.Tensor:
    return tf.constant([seed, 0], tf.int32)


def _chunk_reader(
    source: sources.Source,
    num_views: int,
    seed: int,
    size: int,
    area: tuple[float, float] | None,
    aspect: tuple[float, float],
) -> Callable[..., tuple[tf.Tensor, ...]]:
    """Makes the function that reads and crops n examples.

    It returns views [n, V, S, S, C], their seeds [n, V, 2], labels and, for a
    source with weights, weights.
    """
    check_at_least("num_views", num_views, 1)
    has_weights = source.weights is not None
    is_small = 0 < (source.image_size or 0) <= _SMALL_SIDE
    decode = is_small or area is None

    def read_views(
        example: tuple[sources.Record, tf.Tensor],
    ) -> tuple[tf.Tensor, ...]:
        record, seeds = example  # seeds [V, 2]
        image, label = read_image(source, record, decode=decode)
        if area is None:
            view = geometry.central_view(image, size)
            views = tf.stack([view] * num_views)  # [V, S, S, 3]
        elif image.dtype == tf.string:
            views = images.decode_and_crop(image, seeds, size, area, aspect)
        else:
            views = geometry.random_resized_crop(
                image, seeds, size, area, aspect
            )
        weight = [source.read_weight(record)] if has_weights else []
        return views, label, *weight

    def read_chunk(
        records: sources.Record, epochs: tf.Tensor, positions: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        # Hashing n seeds at once costs as much as hashing one.
        seeds = view_seeds(seed, epochs, positions, num_views)
        views, *labels = tf.map_fn(
            read_views,
            (records, crop_seeds(seeds)),
            fn_output_signature=(
                tf.TensorSpec(
                    [num_views, size, size, source.channels], source.dtype
                ),
                label_spec(source),
                *[tf.TensorSpec([], tf.float32)] * has_weights,
            ),
            parallel_iterations=1,
        )
        return views, seeds, *labels

    return read_chunk


def augmenter(flip: bool, policy: Augmentation) -> Callable[..., tuple]:
    """Makes the function that flips and augments views, all at once.

    It takes views [B, V, S, S, C], their seeds [B, V, 2] and labels, and
    returns views and labels.
    """
    policy = named.policy(policy)

    def augment(
        views: tf.Tensor, seeds: tf.Tensor, *labels: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        pixels = tf.reshape(views, [-1, *views.shape[2:]])  # [B*V, S, S, C]
        seeds = tf.reshape(seeds, [-1, 2])  # [B*V, 2]
        if flip:
            flip_seeds = randomness.fold_in(seeds, _FLIP)
            pixels = geometry.random_flip(pixels, flip_seeds)
        if policy is not None:
            policy_seeds = randomness.fold_in(seeds, _POLICY)
            pixels = _apply(policy, pixels, policy_seeds)
        shape = [views.shape[0] or -1, *views.shape[1:]]
        return tf.reshape(pixels, shape), *labels

    return augment


def _apply(
    policy: named.Policy, images: tf.Tensor, seeds: tf.Tensor
) -> tf.Tensor:
    """Augmented images; ValueError for those of another shape or dtype."""
    augmented = tracing.rewritten(policy)(images, seeds)
    dtype = getattr(augmented, "dtype", None)
    shape = getattr(augmented, "shape", None)
    exceptions.require(
        dtype == images.dtype and images.shape.is_compatible_with(shape),
        "`augmentation` must return images of the shape and dtype that it "
        f"takes, {images.shape} {images.dtype.name}",
        type(augmented) if dtype is None else f"{shape} {dtype}",
    )
    return augmented


def endless(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Batches with prefetching, options, and infinite cardinality."""
    return (
        batches.prefetch(tf.data.AUTOTUNE)
        .with_options(options())
        # Else Keras would not ask for steps_per_epoch, and run for ever.
        .apply(
            tf.data.experimental.assert_cardinality(
                tf.data.INFINITE_CARDINALITY
            )
        )
    )


def read_image(
    source: sources.Source, record: sources.Record, *, decode: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads one example; with `decode`, an image file becomes pixels."""
    image, label = tracing.rewritten(source.read)(record)
    if decode and image.dtype == tf.string:
        image = images.decode_trusted(image)
        if source.image_size is not None:
            # A static size saves the branches for other sizes.
            side = source.image_size
            image = tf.ensure_shape(image, [side, side, 3])
    return image, tf.ensure_shape(label, label_spec(source).shape)


def label_spec(source: sources.Source) -> tf.TensorSpec:
    """The spec of labels: a class id, or 0 or 1 for each class."""
    if source.is_multi_label:
        return tf.TensorSpec([len(source.class_names)], tf.uint8)
    return tf.TensorSpec([], tf.int32)


def resolve_image_size(source: sources.Source, image_size: int | None) -> int:
    """`image_size`, or the common size of all images."""
    size = source.image_size if image_size is None else image_size
    exceptions.require(
        size is not None and size >= 1,
        "`image_size` must be given in pixels (224, say), for the images of "
        f"{source.name} ({source.split}) have no common square size that is "
        "known",
        image_size,
    )
    return size


def _check_shard(
    source: sources.Source, batch_size: int, shard: tuple[int, int]
) -> None:
    """Checks that a worker's rows divide a batch, and suit the source."""
    index, count = shard
    exceptions.require(
        0 <= index < count and batch_size % count == 0,
        "`shard` must be (index, count), 0 <= index < count, and count must "
        "divide `batch_size`",
        f"{shard} and {batch_size}",
    )
    exceptions.require(
        source.shard is None or tuple(source.shard) == (index, count),
        f"`shard` must be that of {source.name} ({source.split}), which holds "
        f"the part {source.shard} of the files",
        shard,
    )


def check_at_least(name: str, value: int, low: int) -> None:
    """Checks an integer that becomes part of a seed or a size."""
    exceptions.require(
        low <= value < 2**31,
        f"`{name}` must be in {low}..2^31-1",
        value,
    )


def options() -> tf.data.Options:
    """Options that keep the order, and shard batches, not files."""
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return options
