"""What a directory of TFRecord files holds, as its tfrecords.json says.

A training so reads nothing else first. `tfrecord_writer` leaves one; of other
files, and of files that have changed since, one is made by a look at every
record, and kept where it can be written.
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

from supcon_tf import exceptions, files, rows
from supcon_tf.data import partition, progress

WEIGHT = "image/weight"
_INDEX = "tfrecords.json"
_BUFFER = 2**23  # bytes read at once
_COMPRESSIONS = ("", "GZIP", "ZLIB")


@dataclasses.dataclass(frozen=True)
class Index:
    """What the files of a directory hold.

    Attributes:
      features: names of the features of the image, its labels and their names.
      compression: of the files, as TensorFlow names it; "" for none.
      is_multi_label: whether an image may have several labels, or none.
      image_size: as of `Source`.
      labels: of each split, pairs of a label as it is written and its name.
      examples: of each file, by split and name.
      weights: of each split that has any, those of its examples.
      states: of each file, by name, its size and the time it was changed.
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

    def class_names(self, split: str, place: object) -> list[str]:
        """The classes of a split; raises ValueError as `partition` does."""
        used = ([name for _, name in self.labels[x]] for x in ("train", "test"))
        return partition.class_names(*used, split, str(place))


def read_index(directory: epath.Path, features: tuple[str, ...]) -> Index:
    """What the directory holds, by its tfrecords.json or by a look."""
    names = _split_files(directory)
    states = {
        name: files.state(directory / name)
        for several in names.values()
        for name in several
    }
    former = None
    with contextlib.suppress(ValueError, TypeError):  # damaged, or of old
        former = Index(**files.read_json(directory / _INDEX, {}))
        if former.states == states and tuple(former.features) == features:
            return former
    index = _look(directory, names, features, states)
    if former is not None and _may_be_copied(former, index):
        index = dataclasses.replace(former, states=states)
    with contextlib.suppress(OSError):
        index.write(directory)
    return index


def records(
    directory: epath.Path, compression: str, names: Sequence[str]
) -> tf.data.Dataset:
    """The serialized examples of files, in their order."""
    paths = [str(directory / name) for name in names]
    return tf.data.TFRecordDataset(paths, compression, buffer_size=_BUFFER)


def parser(
    kinds: dict[str, tf.DType],
) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """From a serialized example to features, each of any number of values."""
    specs = {name: tf.io.RaggedFeature(kind) for name, kind in kinds.items()}

    def parse(record: tf.Tensor) -> list[tf.Tensor]:
        parsed = tf.io.parse_single_example(record, specs)
        return [parsed[name] for name in kinds]

    return parse


def _may_be_copied(former: Index, index: Index) -> bool:
    """Whether files differ from earlier ones in their times alone.

    The earlier index knows more of them: classes that have no image, and that
    an image might have several labels.
    """
    return (
        former.examples == index.examples
        and all(
            former.states.get(name, [None])[0] == size
            for name, (size, _) in index.states.items()
        )
        and all(
            {*map(tuple, index.labels[split])}
            <= {*map(tuple, former.labels[split])}
            for split in index.labels
        )
    )


def _split_files(directory: epath.Path) -> dict[str, list[str]]:
    """Names of the files of "train" and "test", sorted."""
    exceptions.require(
        directory.is_dir(), "`data_dir` must be a folder", directory
    )
    names = sorted(x.name for x in directory.iterdir() if "-of-" in x.name)
    names = [name for name in names if not name.startswith(".")]
    for name in names if "://" not in str(directory) else ():
        exceptions.require(
            files.is_regular(directory / name),
            f"{directory} must hold regular files",
            f"{name}, a folder, a pipe, a device or a broken link",
        )
    of_splits = collections.defaultdict(list)
    for name in names:
        of_splits[partition.split_of_file(name)].append(name)
    train, test = of_splits["train"], of_splits["test"] or of_splits["val"]
    exceptions.require(
        train and test,
        "`data_dir` must hold TFRecord files with -of- and the word train, and "
        "with -of- and the word test, validation or val in their names",
        f"{len(names)} with -of- in {directory}",
    )
    return {"train": train, "test": test}


def _look(
    directory: epath.Path,
    names: dict[str, list[str]],
    features: Sequence[str],
    states: dict[str, Sequence[int]],
) -> Index:
    """Reads the labels of all records."""
    compression, kind = _kinds(directory / names["train"][0], features)
    _, label, text = features
    parse = parser({label: kind, text: tf.string, WEIGHT: tf.float32})
    labels: dict[str, dict[int | str, str]] = {"train": {}, "test": {}}
    examples: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    weights: dict[str, list[float]] = {"train": [], "test": []}
    label_counts: set[int] = set()
    for split, several in names.items():
        for name in progress.shown(several, len(several), "reading labels"):
            parsed = records(directory, compression, [name]).map(
                parse, num_parallel_calls=tf.data.AUTOTUNE
            )
            count = 0
            try:
                for values, shown, weight in parsed.as_numpy_iterator():
                    count += 1
                    label_counts.add(len(values))
                    for value, called in _named(values, shown):
                        known = labels[split].setdefault(value, called)
                        _check_name(value, known, called)
                    weights[split].extend(weight[:1].tolist())
            except tf.errors.OpError as error:
                raise exceptions.InvalidValue(
                    f"{directory / name}:{count + 1} must be an example of a "
                    f"TFRecord file, got {exceptions.reason(error.message)}"
                ) from error
            examples[split][name] = count
    return Index(
        features,
        compression,
        label_counts != {1},
        None,
        _distinct(labels),
        examples,
        _whole_weights(directory, weights, examples),
        states,
    )


def _kinds(path: epath.Path, features: Sequence[str]) -> tuple[str, tf.DType]:
    """How a file is compressed, and whether labels are integers or texts.

    By its first example.
    """
    for compression in _COMPRESSIONS:
        dataset = records(path.parent, compression, [path.name])
        with contextlib.suppress(tf.errors.OpError):
            record = next(dataset.as_numpy_iterator(), b"")
            break
    else:
        raise exceptions.InvalidValue(
            f"{path} must be a TFRecord file, plain or compressed by GZIP or "
            "ZLIB, got other bytes"
        )
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


def _named(
    values: np.ndarray, texts: np.ndarray
) -> Iterator[tuple[int | str, str]]:
    """Labels of an example, and their names: the labels, if it has no other."""
    decoded = [_decoded(value) for value in values]
    names = [_decoded(text) for text in texts]
    if len(names) != len(decoded):
        names = map(str, decoded)
    return zip(decoded, names, strict=True)


def _distinct(
    labels: dict[str, dict[int | str, str]],
) -> dict[str, list[tuple[int | str, str]]]:
    """Pairs of a label and its name, two labels of one name kept apart.

    ImageNet has two classes called crane.
    """
    names: dict[int | str, str] = {}
    for named in labels.values():
        for value, name in named.items():
            _check_name(value, names.setdefault(value, name), name)
    values = sorted(names)
    distinct = rows.distinct([names[value] for value in values])
    name_of = dict(zip(values, distinct, strict=True))
    return {
        split: [(value, name_of[value]) for value in sorted(named)]
        for split, named in labels.items()
    }


def _check_name(value: int | str, known: str, name: str) -> None:
    """Raises ValueError for a second name of a label."""
    exceptions.require(
        known == name,
        f"label {value} must have one name in all records",
        f"{known} and {name}",
    )


def _whole_weights(
    directory: epath.Path,
    weights: dict[str, list[float]],
    examples: dict[str, dict[str, int]],
) -> dict[str, list[float]]:
    """The weights of the splits that have any; raises ValueError for some."""
    for split, values in weights.items():
        count = sum(examples[split].values())
        exceptions.require(
            len(values) in (0, count),
            f"{directory} must have a feature {WEIGHT} in every example of a "
            "split, or in none",
            f"{len(values)} of {count} ({split})",
        )
        exceptions.require(
            not values or (min(values) >= 0 < max(values) < math.inf),
            f"{directory} must have weights of 0 or more, some above 0",
            f"{min(values, default=0)} to {max(values, default=0)} ({split})",
        )
    return {split: values for split, values in weights.items() if values}


def _decoded(value: np.int64 | bytes) -> int | str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return int(value)
