"""Writes TFRecord files of encoded images, of any source."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, tracing
from supcon_tf.data import partition, sources, tfrecord_index
from supcon_tf.defaults import TFRECORD_FEATURES
from supcon_tf.disk import files

_PLAN = ".plan.json"  # by which a call goes on with one that was stopped


def write_tfrecords(
    splits: dict[str, sources.Source],
    directory: epath.PathLike,
    shard_examples: int = 1024,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Writes every split as TFRecord files, and tfrecords.json.

    Image files are copied as they are, pixels become PNG. The order is
    shuffled, since training reads in file order. A file appears when it is
    whole, and an existing file is not written again: the same call goes on
    after an interruption.

    Args:
      splits: "train" and "test".
      directory: of the files, local or gs://; created if missing.
      shard_examples: examples per file, at least 1.
      seed: of the order.
      tell: is called with a line for every file that is written.

    Example:
      >>> import os
      >>> from supcon_tf import data
      >>> names = "train", "test"
      >>> splits = {name: data.load("folder", name, "photos") for name in names}
      >>> data.write_tfrecords(splits, "records", shard_examples=24)
      >>> sorted(name for name in os.listdir("records") if "train" in name)
      ['train-00000-of-00002', 'train-00001-of-00002']

    Raises:
      ValueError: the splits have different classes, pixels are no bytes, or the
        directory has files of another call.
    """
    directory = epath.Path(files.expanded(directory, "directory"))
    directory.mkdir(parents=True, exist_ok=True)
    train = splits["train"]
    exceptions.require(
        shard_examples >= 1,
        "`shard_examples` must be at least 1",
        shard_examples,
    )
    sizes = {}
    for split, source in splits.items():
        exceptions.require(
            source.dtype == tf.uint8 and source.channels == 3,
            "`dataset` must have RGB images of bytes",
            f"{source.channels} channels of {source.dtype.name}",
        )
        sizes[split] = _sizes(split, source.num_examples, shard_examples)
    classes = [splits[name].class_names for name in ("train", "test")]
    partition.class_names(*classes, "train", "`splits`")
    # The labels of a test split of other classes follow those of training.
    first = {"train": 0, "test": 0}
    if classes[0] != classes[1]:
        first["test"] = len(classes[0])
    _check_same(directory, splits, sizes, seed)
    for split, source in splits.items():
        _write_split(directory, sizes[split], source, first[split], seed, tell)
    index = tfrecord_index.read_index(
        directory, TFRECORD_FEATURES, train.is_multi_label
    )
    # Facts that the records lack, such as classes without an image.
    dataclasses.replace(
        index,
        is_multi_label=train.is_multi_label,
        image_size=train.image_size,
        labels={
            split: [*enumerate(source.class_names, first[split])]
            for split, source in splits.items()
        },
    ).write(directory)


def _sizes(split: str, num_examples: int, max_examples: int) -> dict[str, int]:
    """The number of examples of each file, by name, as equal as possible."""
    count = -(-num_examples // max_examples)
    parts = np.array_split(np.arange(num_examples), count)
    return {
        f"{split}-{index:05d}-of-{count:05d}": len(part)
        for index, part in enumerate(parts)
    }


def _check_same(
    directory: epath.Path,
    splits: dict[str, sources.Source],
    sizes: dict[str, dict[str, int]],
    seed: int,
) -> None:
    """Raises ValueError if the directory has files of another call."""
    digest = hashlib.sha256()
    for source in splits.values():
        names = source.class_names, source.ids, source.fingerprint()
        digest.update(repr(names).encode())
        if source.labels is not None:
            digest.update(np.array(source.labels, np.int64).tobytes())
        if source.weights is not None:
            digest.update(np.array(source.weights, np.float32).tobytes())
    plan = {"sizes": sizes, "seed": seed, "data": digest.hexdigest()}
    recorded = files.read_json(directory / _PLAN, None)
    is_empty = recorded is None and not files.children(directory, "*-of-*")
    exceptions.require(
        is_empty or recorded == plan,
        f"{directory} must be empty, or hold files of the same call",
        "others",
    )
    files.write_json(directory / _PLAN, plan)


def _write_split(
    directory: epath.Path,
    sizes: dict[str, int],
    source: sources.Source,
    first_label: int,
    seed: int,
    tell: Callable[[str], None],
) -> None:
    """Writes the files from the first missing file on.

    Labels are counted from `first_label` on.
    """
    exists = [(directory / name).exists() for name in sizes]
    remaining = dict([*sizes.items()][[*exists, False].index(False) :])
    num_written = source.num_examples - sum(remaining.values())
    read = tracing.rewritten(source.read)

    def encode(record: sources.Record) -> tuple[tf.Tensor, ...]:
        image, label = read(record)
        if image.dtype != tf.string:
            image = tf.io.encode_png(image)
        if source.weights is None:
            return image, label
        return image, label, source.read_weight(record)

    encoded = iter(
        source.records(tf.constant([seed, 0], tf.int32))
        .skip(num_written)
        .map(encode, num_parallel_calls=tf.data.AUTOTUNE)
        .as_numpy_iterator()
    )
    for name, size in remaining.items():
        with (
            files.replaced(directory / name) as partial,
            tf.io.TFRecordWriter(str(partial)) as writer,
        ):
            for parts in itertools.islice(encoded, size):
                writer.write(_example(source.class_names, first_label, *parts))
        num_written += size
        tell(f"{name}  {num_written} of {source.num_examples} images")


def _example(
    class_names: Sequence[str],
    first_label: int,
    contents: bytes,
    label: np.ndarray,
    weight: float | None = None,
) -> bytes:
    """A serialized example of an image, its label, or labels, and weight."""
    labels = np.flatnonzero(label) if np.ndim(label) else np.array([label])
    names = [class_names[number].encode() for number in labels]
    labels = labels + first_label
    values = (
        tf.train.Feature(bytes_list=tf.train.BytesList(value=[contents])),
        tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
        tf.train.Feature(bytes_list=tf.train.BytesList(value=names)),
    )
    feature = dict(zip(TFRECORD_FEATURES, values, strict=True))
    if weight is not None:
        numbers = tf.train.FloatList(value=[weight])
        feature[tfrecord_index.WEIGHT] = tf.train.Feature(float_list=numbers)
    return tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString(deterministic=True)
