"""TFRecord files of encoded images, read in file order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions
from supcon_tf.data import cache, file_order, sources, tfrecord_index
from supcon_tf.defaults import TFRECORD_FEATURES
from supcon_tf.disk import files


def load_tfrecords(
    data_dir: str,
    split: str,
    tfrecord_features: Sequence[str],
    shard: tuple[int, int] | None,
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of a directory of TFRecord files.

    The names of the files have "-of-" and, as a word, the split: train, and
    test or val, as in train-00000-of-00008. Examples are read in file order,
    through a buffer (`sources.in_file_order`). A feature `image/weight`, a
    number, is the weight of an image.

    Args:
      data_dir: the directory, local or gs://.
      split: "train" or "test".
      tfrecord_features: names of the features of the encoded image; of its
        labels, integers or texts; and of the labels' names, which files may
        lack.
      shard: (index, count) to read only every count-th file; None for all.
      check_images: decode every image first.
      skip_bad_images: leave images out that cannot be decoded.

    Raises:
      ValueError: there are no such files or features, an image cannot be
        decoded, the test split has seen and unseen labels, or there are fewer
        files than workers in `shard`.
    """
    exceptions.require(
        len(tfrecord_features) == 3,
        "`tfrecord_features` must be three names",
        tfrecord_features,
    )
    directory = epath.Path(data_dir)
    index = tfrecord_index.read_index(directory, tuple(tfrecord_features))
    names, (part, count) = sorted(index.examples[split]), shard or (0, 1)
    file_order.check_shard((part, count), len(names), f"{directory} ({split})")
    records = functools.partial(
        tfrecord_index.records, directory, index.compression
    )
    image = tfrecord_index.parser((index.features[0], tf.string))
    fields, positions = file_order.fields(
        records(names),
        records(names[part::count]),
        # The first value; no bytes, and so a bad image, where there is none.
        lambda record: tf.strings.reduce_join(image(record)[0][:1]),
        lambda: _keys(directory, index.features[0], index.examples[split]),
        set_name=str(directory),
        example_name=functools.partial(_record_name, index.examples[split]),
        check_images=check_images,
        skip_bad_images=skip_bad_images,
    )
    _check_files_of_workers(index.examples[split], positions, count, directory)
    mean, weights = 1.0, index.weights.get(split)
    if weights is not None:
        weights = np.array(weights, np.float32)[positions]
        mean = weights.mean() or 1.0  # where only weights of 0 are left
        weights = weights / mean
    class_names = index.class_names(split, directory)
    return sources.Source(
        name="tfrecord",
        split=split,
        class_names=tuple(class_names),
        read=_reader(index, split, class_names),
        shard=shard,
        is_multi_label=index.is_multi_label,
        weights=weights,
        read_weight=_weight_reader(mean),
        faults=lambda: _faults(directory, names, index.states),
        **{"image_size": index.image_size} | fields,
    )


def _check_files_of_workers(
    examples: dict[str, int],
    positions: np.ndarray,
    num_workers: int,
    directory: epath.Path,
) -> None:
    """Raises ValueError for a worker without images: it would wait for ever.

    Args:
      examples: the number of each file of a split, by name.
      positions: of the examples that are kept.
      num_workers: each of which reads every `num_workers`-th file.
      directory: of the files.
    """
    counts = [examples[name] for name in sorted(examples)]
    files_of = np.repeat(np.arange(len(counts)), counts)[positions]
    num_busy = len(np.unique(files_of % num_workers))
    exceptions.require(
        num_busy == num_workers,
        f"{directory} must have images in the files of each of the "
        f"{num_workers} workers; sharing by element has no such limit",
        f"images for {num_busy}",
    )


def _keys(
    directory: epath.Path, feature: str, examples: dict[str, int]
) -> np.ndarray:
    """Keys of the image of every example, [examples] uint64.

    They are of the file, the position in it, and the feature of the image.
    """
    # Without the name of the usual feature, keys of earlier versions are valid.
    names = [] if feature == TFRECORD_FEATURES[0] else [feature]
    keys = [np.zeros(0, np.uint64)]
    for name, count in sorted(examples.items()):
        state = files.state(directory / name)
        first = np.uint64(cache.key(name, *state, *names))
        keys.append(first + np.arange(count, dtype=np.uint64))  # may wrap
    return np.concatenate(keys)


def _faults(
    directory: epath.Path,
    names: Sequence[str],
    states: dict[str, Sequence[int]],
) -> list[str]:
    """Files that have changed since the index was read."""
    faults = []
    for name in names:
        try:
            size, _ = state = files.state(directory / name)
        except (OSError, tf.errors.OpError):
            faults.append(f"{directory / name} (not there)")
            continue
        if list(state) != list(states[name]):
            faults.append(
                f"{directory / name} ({size} bytes, was {states[name][0]}; "
                "changed since)"
            )
    return faults


def _record_name(examples: dict[str, int], position: int) -> str:
    """FILE:RECORD, from 1, of the example at a position."""
    names = sorted(examples)
    ends = np.cumsum([examples[name] for name in names])
    file = int(np.searchsorted(ends, position, side="right"))
    first = ends[file] - examples[names[file]]
    return f"{names[file]}:{position - first + 1}"


def _reader(
    index: tfrecord_index.Index, split: str, class_names: Sequence[str]
) -> sources.Read:
    """Makes `Source.read` of serialized examples."""
    values, names = zip(*index.labels[split], strict=True)
    is_text = isinstance(values[0], str)
    values = tf.constant(values, tf.string if is_text else tf.int64)
    label_of = {name: label for label, name in enumerate(class_names)}
    classes = tf.constant([label_of[name] for name in names])
    image, label, _ = index.features
    parse = tfrecord_index.parser((image, tf.string), (label, values.dtype))

    def read(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        contents, labels = parse(record)
        is_value = values == labels[:, tf.newaxis]  # [labels, values]
        if index.is_multi_label:
            hot = tf.one_hot(classes, len(class_names), dtype=tf.int32)
            counts = tf.cast(is_value, tf.int32) @ hot  # [labels, classes]
            return contents[0], tf.cast(tf.reduce_any(counts > 0, 0), tf.uint8)
        value = tf.argmax(tf.cast(is_value[0], tf.int32))
        return contents[0], tf.gather(classes, value)

    return read


def _weight_reader(mean: float) -> Callable[[tf.Tensor], tf.Tensor]:
    """Makes `Source.read_weight`; weights are scaled to a mean of 1."""
    parse = tfrecord_index.parser((tfrecord_index.WEIGHT, tf.float32))
    return lambda record: parse(record)[0][0] / tf.constant(mean, tf.float32)
