"""The index of a directory of TFRecord files, tfrecords.json.

With an index, a training need not read all records first. `tfrecord_writer`
writes the index. For files of other programs, and for files that have changed,
`read_index` makes a new index from all records, and writes the index if the
directory is writable.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from etils import epath
from google.protobuf import message

from supcon_tf import exceptions
from supcon_tf.data import partition, progress
from supcon_tf.disk import files, leftovers, rows

WEIGHT = "image/weight"
_INDEX = "tfrecords.json"
_BUFFER = 2**23  # bytes read at once
_COMPRESSIONS = ("", "GZIP", "ZLIB")


@dataclasses.dataclass(frozen=True)
class Index:
    """The labels and examples of the files of a directory.

    Attributes:
      features: names of the features of the image, its labels and their names.
      compression: of the files, as TensorFlow names it; "" for none.
      is_multi_label: whether an image may have several labels, or none.
      image_size: as of `Source`.
      labels: of each split, pairs of a label in the records and its name.
      examples: the number of each file, by split and name.
      weights: of the examples of each split that has weights.
      states: size and time of each file, by name.
    """

    features: Sequence[str]
    compression: str
    is_multi_label: bool
    image_size: int | None
    labels: dict[str, Sequence[tuple[int | str, str]]]
    examples: dict[str, dict[str, int]]
    weights: dict[str, Sequence[float]]
    states: dict[str, Sequence[int]]

    def write(self, directory: epath.Path) -> None:
        """Writes tfrecords.json."""
        content = dataclasses.asdict(self)
        files.write_json(directory / _INDEX, content, ensure_ascii=False)

    def class_names(self, split: str, directory: object) -> list[str]:
        """The classes of a split; raises ValueError as `partition` does."""
        names = (
            [name for _, name in self.labels[split_name]]
            for split_name in ("train", "test")
        )
        return partition.class_names(*names, split, str(directory))


def read_index(
    directory: epath.Path,
    features: tuple[str, ...],
    may_lack_labels: bool = False,
) -> Index:
    """The index of the directory, from its tfrecords.json or its records.

    `may_lack_labels` allows examples without a label where none has several.

    Raises:
      ValueError: there are no such files, or an example breaks a rule.
    """
    names = _split_files(directory)
    states = {
        name: files.state(directory / name)
        for file_names in names.values()
        for name in file_names
    }
    earlier = None
    with contextlib.suppress(ValueError, TypeError):  # damaged, or outdated
        earlier = Index(**files.read_json(directory / _INDEX, {}))
        if earlier.states == states and tuple(earlier.features) == features:
            return earlier
    index, unlabelled = _read_records(directory, names, features, states)
    if earlier is not None and _may_be_copied(earlier, index):
        # Weights have one size in bytes, whatever they are.
        index = dataclasses.replace(
            earlier, states=states, weights=index.weights
        )
    elif unlabelled and not may_lack_labels:
        # It would make all images those of several labels.
        raise exceptions.InvalidValue(
            f"{unlabelled} must have a label, a value of the feature "
            f"{features[1]}, as no example has several, got none: leave such "
            "examples out, or, if images may have several labels, or none, "
            "write the files from a list with a column labels, by tools/"
            "make_tfrecords.py"
        )
    # The directory may be read-only, also where it is remote.
    with contextlib.suppress(OSError, tf.errors.OpError):
        index.write(directory)
    return index


def records(
    directory: epath.Path, compression: str, names: Sequence[str]
) -> tf.data.Dataset:
    """The serialized examples of files, in their order."""
    paths = [str(directory / name) for name in names]
    return tf.data.TFRecordDataset(paths, compression, buffer_size=_BUFFER)


def parser(
    *kinds: tuple[str, tf.DType],
) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """From a serialized example to features, each of any number of values."""
    specs = {name: tf.io.RaggedFeature(kind) for name, kind in kinds}

    def parse(record: tf.Tensor) -> list[tf.Tensor]:
        parsed = tf.io.parse_single_example(record, specs)
        return [parsed[name] for name, _ in kinds]

    return parse


def _may_be_copied(earlier: Index, index: Index) -> bool:
    """Whether the files differ from the earlier ones in time and weights alone.

    The earlier index has more than the files: classes without an image, and
    whether an image may have several labels. Other features may have the same
    labels, but of other images.
    """
    return (
        tuple(earlier.features) == tuple(index.features)
        and earlier.examples == index.examples
        and all(
            earlier.states.get(name, [None])[0] == size
            for name, (size, _) in index.states.items()
        )
        and all(
            {*map(tuple, index.labels[split])}
            <= {*map(tuple, earlier.labels[split])}
            for split in index.labels
        )
    )


def _split_files(directory: epath.Path) -> dict[str, list[str]]:
    """Names of the files of "train" and "test", sorted."""
    exceptions.require(
        directory.is_dir(), "`data_dir` must be a folder", directory
    )
    names = sorted(
        path.name for path in directory.iterdir() if "-of-" in path.name
    )
    names = [name for name in names if not name.startswith(".")]
    for name in names if leftovers.is_local(directory) else ():
        exceptions.require(
            files.is_regular(directory / name),
            f"{directory} must hold regular files",
            f"{name}, a folder, a pipe, a device or a broken link",
        )
    by_split = collections.defaultdict(list)
    for name in names:
        by_split[partition.split_of_file(name)].append(name)
    train, test = by_split["train"], by_split["test"] or by_split["val"]
    exceptions.require(
        train and test,
        "`data_dir` must hold TFRecord files with -of- and the word train, and "
        "with -of- and the word test, validation or val in their names",
        f"{len(names)} with -of- in {directory}",
    )
    return {"train": train, "test": test}


@dataclasses.dataclass
class _Split:
    """The labels of the records of a split, while they are read.

    Attributes:
      labels: the name of each label.
      weights: of the examples that have a weight.
      examples: the number of each file, by name.
      label_counts: the numbers of labels of an example.
      unlabelled: FILE:NUMBER of the first example without a label; "" where
        every example has a label.
      repetitive: FILE:NUMBER of the first example that repeats a label, or "".
    """

    labels: dict[int | str, str] = dataclasses.field(default_factory=dict)
    weights: list[float] = dataclasses.field(default_factory=list)
    examples: dict[str, int] = dataclasses.field(default_factory=dict)
    label_counts: set[int] = dataclasses.field(default_factory=set)
    unlabelled: str = ""
    repetitive: str = ""

    def add(
        self,
        values: np.ndarray,
        texts: np.ndarray,
        weight: np.ndarray,
        position: str,
    ) -> None:
        """Adds the features of an example at FILE:NUMBER."""
        self.label_counts.add(len(values))
        if not len(values):
            self.unlabelled = self.unlabelled or position
        if len({*values.tolist()}) < len(values):
            self.repetitive = self.repetitive or position
        for value, name in _label_names(values, texts):
            _check_name(value, self.labels.setdefault(value, name), name)
        self.weights.extend(weight[:1].tolist())


def _read_records(
    directory: epath.Path,
    names: dict[str, list[str]],
    features: Sequence[str],
    states: dict[str, Sequence[int]],
) -> tuple[Index, str]:
    """Reads the labels of all records.

    Returns:
      The index, and FILE:NUMBER of the first example without a label; "" where
      there is none, or where examples have several.
    """
    compression, kind = _format(
        [directory / name for name in names["train"]], features
    )
    splits = {
        split: _read_split(directory, file_names, features, compression, kind)
        for split, file_names in names.items()
    }
    train, test = splits["train"], splits["test"]
    label_counts = train.label_counts | test.label_counts
    repetitive = train.repetitive or test.repetitive
    # Boxes in an image may have one label too, but differ in number.
    has_flags = len(label_counts) == 1 and repetitive
    exceptions.require(
        not has_flags or not {*train.labels, *test.labels} <= {0, 1},
        f"{repetitive} must have the numbers of its labels in the feature "
        f"{features[1]}, not 0 or 1 for every class",
        "0 or 1 several times",
    )
    examples = {name: split.examples for name, split in splits.items()}
    weights = {name: split.weights for name, split in splits.items()}
    index = Index(
        features,
        compression,
        label_counts != {1},
        None,
        _distinct({name: split.labels for name, split in splits.items()}),
        examples,
        _check_weights(directory, weights, examples),
        states,
    )
    unlabelled = train.unlabelled or test.unlabelled
    return index, unlabelled if label_counts <= {0, 1} else ""


def _read_split(
    directory: epath.Path,
    names: Sequence[str],
    features: Sequence[str],
    compression: str,
    kind: tf.DType,
) -> _Split:
    """Reads the labels, of one type, in the files of a split."""
    _, label, text = features
    # Texts may be labels and names at once.
    text_kind = kind if text == label else tf.string
    parse = parser((label, kind), (text, text_kind), (WEIGHT, tf.float32))
    split = _Split()
    for name in progress.track(names, len(names), "reading labels"):
        parsed = records(directory, compression, [name]).map(
            parse, num_parallel_calls=tf.data.AUTOTUNE
        )
        path, count = directory / name, 0
        try:
            for example in parsed.as_numpy_iterator():
                count += 1
                split.add(*example, f"{path}:{count}")
        except tf.errors.OpError as error:
            raise exceptions.InvalidValue(
                f"{path}:{count + 1} must be an example of a TFRecord file, "
                f"got {exceptions.reason(error.message)}"
            ) from error
        split.examples[name] = count
    return split


def _format(
    paths: Sequence[epath.Path], features: Sequence[str]
) -> tuple[str, tf.DType]:
    """The compression of files, and the type of their labels: int64 or string.

    The first example decides; files before it are empty.
    """
    for path in paths:
        compression, record = _first_record(path)
        if record:
            break
    image, label, _ = features
    try:
        stored = tf.train.Example.FromString(record).features.feature
    except message.DecodeError:
        stored = {}
    exceptions.require(
        image in stored and label in stored,
        f"{path} must have the features {image} and {label}; "
        "`tfrecord_features` names others",
        ", ".join(sorted(stored)) or "no example",
    )
    is_text = stored[label].HasField("bytes_list")
    return compression, tf.string if is_text else tf.int64


def _first_record(path: epath.Path) -> tuple[str, bytes]:
    """The compression of a file, and its first example; b"" for none."""
    for compression in _COMPRESSIONS:
        dataset = records(path.parent, compression, [path.name])
        with contextlib.suppress(tf.errors.OpError):
            return compression, next(dataset.as_numpy_iterator(), b"")
    raise exceptions.InvalidValue(
        f"{path} must be a TFRecord file, plain or compressed by GZIP or "
        "ZLIB, got other bytes"
    )


def _label_names(
    values: np.ndarray, texts: np.ndarray
) -> Iterator[tuple[int | str, str]]:
    """Labels of an example with their names, which default to the labels."""
    decoded = [_decode(value) for value in values]
    names = [str(_decode(text)) for text in texts]
    if len(names) != len(decoded):
        names = map(str, decoded)
    return zip(decoded, names, strict=True)


def _distinct(
    labels: dict[str, dict[int | str, str]],
) -> dict[str, list[tuple[int | str, str]]]:
    """Pairs of a label and its name; repeated names are numbered.

    ImageNet has two classes called crane.
    """
    names: dict[int | str, str] = {}
    for label_names in labels.values():
        for value, name in label_names.items():
            _check_name(value, names.setdefault(value, name), name)
    values = sorted(names)
    distinct = rows.distinct([names[value] for value in values])
    name_of = dict(zip(values, distinct, strict=True))
    return {
        split: [(value, name_of[value]) for value in sorted(label_names)]
        for split, label_names in labels.items()
    }


def _check_name(value: int | str, first_name: str, name: str) -> None:
    """Raises ValueError for a second name of a label."""
    exceptions.require(
        first_name == name,
        f"label {value} must have one name in all records",
        f"{first_name} and {name}",
    )


def _check_weights(
    directory: epath.Path,
    weights: dict[str, list[float]],
    examples: dict[str, dict[str, int]],
) -> dict[str, list[float]]:
    """The weights by split; ValueError where some examples have none."""
    for split, values in weights.items():
        count = sum(examples[split].values())
        exceptions.require(
            len(values) in (0, count),
            f"{directory} must have a feature {WEIGHT} in every example of a "
            "split, or in none",
            f"{len(values)} of {count} ({split})",
        )
        are_weights = all(0 <= value < math.inf for value in values)
        exceptions.require(
            not values or (are_weights and any(values)),
            f"{directory} must have weights of 0 or more, some above 0",
            f"{np.min(values or 0)} to {np.max(values or 0)} ({split})",
        )
    return {split: values for split, values in weights.items() if values}


def _decode(value: np.int64 | bytes) -> int | str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return int(value)
