"""Sets of TensorFlow Datasets (TFDS), read as encoded images."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import cache, file_order, sources
from supcon_tf.disk import files
from supcon_tf.host import trust

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

# From a worker's share of the files, None for all, to their encoded examples.
_ReadFiles = Callable[["tf.distribute.InputContext | None"], tf.data.Dataset]
# NAMESPACE:SET; a number follows the colon in SET:VERSION.
_NAMESPACE = re.compile(r"[^:/]+:[a-zA-Z_]")
_TEST_SPLITS = ("test", "validation")  # the first with labels is the test split


def load_tfds(
    dataset: str,
    split: str,
    data_dir: str | None,
    shard: tuple[int, int] | None,
    channels: int,
    tfds_split: str | None,
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of a TFDS set; see `loading.load`.

    A set of up to 50,000 examples is permuted as a whole. A larger set is read
    in file order through a buffer of 50,000 encoded images, so that an example
    comes up to 50,000 positions early; TFDS mixes the classes when it writes
    its files, so batches are mixed either way. A set whose images have
    sequences of labels, such as voc/2007, is one of several labels.

    Args:
      dataset: "tfds:" and a name for `tfds.builder`, such as "tfds:cifar10" or
        "tfds:imagenet2012:5.*.*".
      split: "train" or "test"; "test" is the first of the splits test and
        validation that has labels (the test split of imagenet2012 has none).
      data_dir: directory of TFDS's sets; None is TFDS's default.
      shard: (index, count) to read only every count-th file; None for all.
      channels: 3, or 1 for a set of one channel.
      tfds_split: the split in TFDS's syntax; None for the above.
      check_images: decode every image first.
      skip_bad_images: leave images out that cannot be decoded.

    Raises:
      ImportError: `tensorflow_datasets` does not import.
      RuntimeError: the set could not be downloaded and prepared.
      ValueError: there is no such set, the set lacks images of bytes, class
        labels or the split, an image cannot be decoded, or the split has fewer
        files than workers in `shard`.
    """
    tfds, name = import_tfds(), dataset.removeprefix("tfds:")
    builder = prepared_builder(tfds, name, data_dir)
    keys = _feature_keys(tfds, name, builder)
    image_key, label_key = keys
    names = {"train": ("train",), "test": _TEST_SPLITS}[split]
    if tfds_split is not None:
        names = (tfds_split,)
    image_feature = builder.info.features[image_key]
    height, width, set_channels = image_feature.shape
    exceptions.require(
        image_feature.dtype in (tf.uint8, tf.uint16),
        f"`dataset` must have images of bytes, tfds:{name}",
        image_feature.dtype,
    )
    exceptions.require(
        channels == 3 or set_channels == channels,
        f"`channels` must be 3, or those of tfds:{name}, {set_channels}",
        channels,
    )
    labels = builder.info.features[label_key]
    is_multi_label = isinstance(labels, tfds.features.Sequence)
    class_names = (labels.feature if is_multi_label else labels).names
    split_name, read_files = _open_split(tfds, builder, names, keys)
    if is_multi_label:
        read_files = _with_multi_hot(read_files, label_key, len(class_names))
    split_info = builder.info.splits[split_name]
    fields, _ = file_order.fields(
        read_files(None),
        read_files(_input_context(builder, split_name, shard)),
        lambda record: record[image_key],
        lambda: _example_keys(builder, split_info),
        set_name=f"tfds:{name} ({split_name})",
        example_name=str,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
    )
    if height is not None:
        fields["image_size"] = height if height == width else None

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
        read=read,
        shard=shard,
        channels=channels,
        is_multi_label=is_multi_label,
        **{"image_size": None} | fields,
    )


def _example_keys(
    builder: tfds.core.DatasetBuilder, split_info: tfds.core.SplitInfo
) -> np.ndarray:
    """Keys of the split and the position of each example, [examples] uint64."""
    states = []
    for file in split_info.file_instructions:
        with contextlib.suppress(OSError):
            states += files.state(file.filename)
    # "in order" tells the keys from those of earlier versions, whose order was
    # another.
    first = np.uint64(
        cache.key("in order", builder.info.full_name, split_info.name, *states)
    )
    return first + np.arange(split_info.num_examples, dtype=np.uint64)


def _with_multi_hot(
    read_files: _ReadFiles, label_key: str, num_classes: int
) -> _ReadFiles:
    """Makes labels 0 or 1 for each class, so that records can be batched."""

    def to_hot(record: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        hot = tf.one_hot(record[label_key], num_classes)
        return record | {label_key: tf.reduce_max(hot, axis=0)}

    return lambda context: read_files(context).map(to_hot)


def import_tfds() -> types.ModuleType:
    """Imports TFDS, which takes seconds, once a set of TFDS is used."""
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
    """Finds a set; downloads and prepares a set that is not prepared.

    TFDS imports the classes that the files of a set name, and would download
    the code of a set of a namespace.
    """
    exceptions.require(
        _NAMESPACE.match(name) is None,
        "`dataset` must name a set that comes with TFDS: the code of others "
        "would be downloaded and run",
        f"tfds:{name}",
    )
    try:
        with trust.only_installed(data_dir):
            builder = tfds.builder(name, data_dir=data_dir)
            builder.info.features  # noqa: B018 - what it imports
    except exceptions.InvalidValue:
        raise
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise exceptions.InvalidValue(
            f"`dataset` must name a TFDS set, got tfds:{name}: {error}"
        ) from error
    if builder.is_prepared():
        return builder
    try:
        builder.download_and_prepare()
    except Exception as error:  # the user needs the hint in any case
        root = str(builder.data_dir).removesuffix(builder.info.full_name)
        raise exceptions.Failed(
            f"TFDS could not prepare {name}: {error}\nA set that must be "
            "downloaded by hand (imagenet2012: ILSVRC2012_img_train.tar and "
            f"ILSVRC2012_img_val.tar) belongs in {root}downloads/manual; "
            "a folder of images needs no TFDS"
        ) from error
    return builder


def _feature_keys(
    tfds: types.ModuleType, name: str, builder: tfds.core.DatasetBuilder
) -> tuple[str, str]:
    """Returns the keys of the image and the label, `supervised_keys` first."""
    features = builder.info.features
    preferred = [
        key for key in builder.info.supervised_keys or () if key in features
    ]
    names = (*preferred, *features)

    def find(is_wanted: Callable[[object], bool]) -> list[str]:
        return [name for name in names if is_wanted(features[name])]

    def is_label(feature: object) -> bool:
        return isinstance(feature, tfds.features.ClassLabel)

    images = find(lambda feature: isinstance(feature, tfds.features.Image))
    labels = find(is_label) or find(
        lambda feature: isinstance(feature, tfds.features.Sequence)
        and is_label(feature.feature)
    )
    exceptions.require(
        images and labels,
        "`dataset` must have an Image and a ClassLabel, or a sequence of these",
        f"tfds:{name} with {dict(features)}",
    )
    return images[0], labels[0]


def _open_split(
    tfds: types.ModuleType,
    builder: tfds.core.DatasetBuilder,
    candidates: tuple[str, ...],
    keys: tuple[str, str],
) -> tuple[str, _ReadFiles]:
    """The split's TFDS name, and the function that reads its examples."""
    image_key, label_key = keys

    def read_files(
        candidate: str, context: tf.distribute.InputContext | None
    ) -> tf.data.Dataset:
        return builder.as_dataset(
            split=candidate,
            shuffle_files=False,
            decoders=tfds.decode.PartialDecoding(
                dict.fromkeys(keys, True),
                decoders={image_key: tfds.decode.SkipDecoding()},
            ),
            read_config=tfds.ReadConfig(
                try_autocache=False, input_context=context
            ),
        )

    for candidate in candidates:
        try:
            builder.info.splits[candidate]
        except (KeyError, ValueError):  # no such split, or part of a split
            continue
        # TFDS writes label -1 where the publisher keeps the labels.
        labels = next(iter(read_files(candidate, None)))[label_key].numpy()
        if labels.min(initial=0) >= 0:
            return candidate, functools.partial(read_files, candidate)
    raise exceptions.InvalidValue(
        f"`dataset` must have a labelled split {' or '.join(candidates)}, got "
        f"{list(builder.info.splits)}; `tfds_split` names a part of another, "
        "such as train[80%:]"
    )


def _input_context(
    builder: tfds.core.DatasetBuilder,
    split_name: str,
    shard: tuple[int, int] | None,
) -> tf.distribute.InputContext | None:
    """The files of a worker as TFDS's context; None for all files."""
    if shard is None:
        return None
    index, count = shard
    num_files = builder.info.splits[split_name].num_shards
    set_name = f"{builder.info.full_name} ({split_name})"
    file_order.check_shard(shard, num_files, set_name)
    return tf.distribute.InputContext(count, index, count)
