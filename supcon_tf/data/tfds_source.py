"""Sets of TensorFlow Datasets (TFDS), read as encoded images."""

from __future__ import annotations

import functools
import importlib.metadata
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import sources

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_TEST_SPLITS = ("test", "validation")  # The first with labels is taken.


def load_tfds(
    name: str,
    split: str,
    data_dir: str | None,
    shard: tuple[int, int] | None = None,
    channels: int = 3,
    tfds_split: str | None = None,
) -> sources.Source:
    """Loads one split of a TFDS set; see `loading.load`.

    A set of up to 50,000 examples is permuted as a whole. A larger one is
    read in file order through a buffer of 50,000 encoded images, so an
    example comes up to 50,000 places early; TFDS mixes the classes when it
    writes its files, so batches are mixed either way. A set of which an image
    has a sequence of labels, such as voc/2007, is one of several labels.

    Args:
      name: name for `tfds.builder`, such as "cifar10" or "imagenet2012:5.*.*".
      split: "train" or "test"; "test" is the first of the splits test and
        validation that has labels (the test split of imagenet2012 has none).
      data_dir: where TFDS keeps its sets; None is TFDS's own default.
      shard: (index, count) to read only every count-th file; None for all.
      channels: 3, or 1 for a set of one channel, as it is.
      tfds_split: what `split` is, in TFDS's syntax; None for the above.

    Raises:
      ImportError: `tensorflow_datasets` does not import.
      RuntimeError: the set could not be downloaded and prepared.
      ValueError: there is no such set, it lacks images, class labels or the
        split, or the split has fewer files than `shard` parts.
    """
    tfds = import_tfds()
    builder = prepared_builder(tfds, name, data_dir)
    keys = _feature_keys(tfds, name, builder)
    image_key, label_key = keys
    names = {"train": ("train",), "test": _TEST_SPLITS}[split]
    if tfds_split is not None:
        names = (tfds_split,)
    split_name, dataset = _read_split(tfds, builder, names, keys, shard)
    num_examples = builder.info.splits[split_name].num_examples
    height, width = builder.info.features[image_key].shape[:2]

    labels = builder.info.features[label_key]
    is_multi_label = isinstance(labels, tfds.features.Sequence)
    class_names = (labels.feature if is_multi_label else labels).names
    if is_multi_label:
        dataset = _as_hot(dataset, label_key, len(class_names))
    own = builder.info.features[image_key].shape[2]
    exceptions.require(
        channels == 3 or own == channels,
        f"`channels` must be 3, or those of tfds:{name}, {own}",
        channels,
    )

    def read(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        image = record[image_key]
        if channels == 1:
            image = tf.io.decode_image(image, 1, expand_animations=False)
            image = tf.ensure_shape(image, [height, width, 1])
        kind = tf.uint8 if is_multi_label else tf.int32
        return image, tf.cast(record[label_key], kind)

    return sources.Source(
        name=f"tfds:{name}",
        split=split,
        class_names=tuple(class_names),
        num_examples=num_examples,
        image_size=height if height == width else None,
        records=functools.partial(sources.in_file_order, dataset, num_examples),
        read=read,
        shard=shard,
        channels=channels,
        is_multi_label=is_multi_label,
    )


def _as_hot(
    dataset: tf.data.Dataset, label_key: str, num_classes: int
) -> tf.data.Dataset:
    """Labels as 0 or 1 for each class: batches want as many of each record."""

    def to_hot(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        hot = tf.one_hot(record[label_key], num_classes)
        return record | {label_key: tf.reduce_max(hot, axis=0)}

    return dataset.map(to_hot)


def import_tfds() -> types.ModuleType:
    """Imports TFDS, which takes seconds, and only when a set of it is used."""
    remedy = (
        "TensorFlow Datasets must import: pip install 'tensorflow-metadata"
        "<=1.15.0' beside a protobuf before 5, else a newer one (protobuf is "
        f"{importlib.metadata.version('protobuf')})"
    )
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise exceptions.MissingPackage(f"{remedy}, got: {error}") from error
    # A broken tensorflow-metadata can leave a module without its contents.
    if not hasattr(tfds, "builder"):
        raise exceptions.MissingPackage(
            f"{remedy}, got a module without `builder`"
        )
    return tfds


def prepared_builder(
    tfds: types.ModuleType, name: str, data_dir: str | None
) -> tfds.core.DatasetBuilder:
    """Finds the set and downloads it if it is not there."""
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise exceptions.InvalidValue(
            f"`dataset` must name a TFDS set, got tfds:{name}: {error}"
        ) from error
    if builder.is_prepared():
        return builder
    try:
        builder.download_and_prepare()
    except Exception as error:  # Whatever it is, the user needs the hint.
        root = str(builder.data_dir).removesuffix(builder.info.full_name)
        raise exceptions.Failed(
            f"TFDS could not prepare {name}: {error}\nA set that must be "
            "downloaded by hand (imagenet2012: ILSVRC2012_img_train.tar and "
            f"ILSVRC2012_img_val.tar) belongs in {root}downloads/manual; "
            "a folder of images needs no TFDS: --dataset=folder"
        ) from error
    return builder


def _feature_keys(
    tfds: types.ModuleType, name: str, builder: tfds.core.DatasetBuilder
) -> tuple[str, str]:
    """Returns the keys of the image and the label, `supervised_keys` first."""
    features = builder.info.features
    preferred = [k for k in builder.info.supervised_keys or () if k in features]
    names = (*preferred, *features)

    def find(is_wanted: Callable[[object], bool]) -> list[str]:
        return [name for name in names if is_wanted(features[name])]

    def is_label(feature: object) -> bool:
        return isinstance(feature, tfds.features.ClassLabel)

    images = find(lambda x: isinstance(x, tfds.features.Image))
    labels = find(is_label) or find(
        lambda x: isinstance(x, tfds.features.Sequence) and is_label(x.feature)
    )
    exceptions.require(
        images and labels,
        "`dataset` must have an Image and a ClassLabel, or a sequence of these",
        f"tfds:{name} with {dict(features)}",
    )
    return images[0], labels[0]


def _read_split(
    tfds: types.ModuleType,
    builder: tfds.core.DatasetBuilder,
    candidates: tuple[str, ...],
    keys: tuple[str, str],
    shard: tuple[int, int] | None,
) -> tuple[str, tf.data.Dataset]:
    """Returns the split's TFDS name and its encoded examples."""
    image_key, label_key = keys
    for candidate in candidates:
        try:
            builder.info.splits[candidate]
        except (KeyError, ValueError):  # whole ones, and parts of them
            continue
        dataset = builder.as_dataset(
            split=candidate,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(
                dict.fromkeys(keys, True),
                decoders={image_key: tfds.decode.SkipDecoding()},
            ),
            read_config=tfds.ReadConfig(
                try_autocache=False,
                input_context=_input_context(builder, candidate, shard),
            ),
        )
        # TFDS writes label -1 where the publisher keeps the labels.
        labels = next(iter(dataset))[label_key].numpy()
        if labels.min(initial=0) >= 0:
            return candidate, dataset
    raise exceptions.InvalidValue(
        f"`dataset` must have a labelled split {' or '.join(candidates)}, got "
        f"{list(builder.info.splits)}"
    )


def _input_context(
    builder: tfds.core.DatasetBuilder,
    split_name: str,
    shard: tuple[int, int] | None,
) -> tf.distribute.InputContext | None:
    """Returns which files to read, as TFDS wants it; None for all."""
    if shard is None:
        return None
    index, count = shard
    num_files = builder.info.splits[split_name].num_shards
    exceptions.require(
        0 <= index < count <= num_files,
        "`shard` must be (index, count), 0 <= index < count, of at most the "
        f"{num_files} files of {builder.info.full_name} ({split_name})",
        f"{shard}; sharing by element has no such limit",
    )
    return tf.distribute.InputContext(count, index, count)
