"""TFRecord files of encoded images, read in file order.

What a directory holds stands in its tfrecords.json, so that a training reads
nothing else first. `tfrecord_writer` leaves one; of other files one is made by
a look at every record, and kept where it can be written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, files
from supcon_tf.data import sources

# Of the image, of its labels, and of their names: those of the Model Garden.
FEATURES = "image/encoded", "image/class/label", "image/class/text"
_INDEX = "tfrecords.json"
_BUFFER = 2**23  # bytes read at once
_TEST_SPLITS = ("test", "validation", "val")  # The first with files is taken.


@dataclasses.dataclass(frozen=True)
class Index:
    """What the files of a directory hold.

    Attributes:
      features: names of the features of the image, its labels and their names.
      values: labels as they are written, sorted.
      class_names: what these are called.
      is_multi_label: whether an image may have several, or none.
      image_size: as of `Source`.
      examples: of each file, by split and name.
    """

    features: Sequence[str]
    values: Sequence[int | str]
    class_names: Sequence[str]
    is_multi_label: bool
    image_size: int | None
    examples: dict[str, dict[str, int]]

    def write(self, directory: epath.Path) -> None:
        """Writes tfrecords.json."""
        content = dataclasses.asdict(self)
        files.write_json(directory / _INDEX, content, ensure_ascii=False)


def load_tfrecords(
    data_dir: str | None,
    split: str,
    features: Sequence[str] = FEATURES,
    shard: tuple[int, int] | None = None,
) -> sources.Source:
    """Loads one split of a directory of TFRecord files.

    Their names have "-of-" and the split: train, and test, validation or val,
    as in train-00000-of-00008. Examples are read in file order, through a
    buffer (`sources.in_file_order`).

    Args:
      data_dir: the directory, local or gs://.
      split: "train" or "test".
      features: names of those of the encoded image; of its labels, integers or
        texts; and of the names of integers, which need not be there.
      shard: (index, count) to read only every count-th file; None for all.

    Raises:
      ValueError: there are no such files or features, only the test split has
        a label, or there are fewer files than `shard` parts.
    """
    exceptions.require(
        data_dir is not None and len(features) == 3,
        "`data_dir` and three `features` must be given for tfrecord",
        f"{data_dir} and {features}",
    )
    directory = epath.Path(data_dir)
    index = _read_index(directory, tuple(features))
    names, (place, count) = sorted(index.examples[split]), shard or (0, 1)
    exceptions.require(
        0 <= place < count <= len(names),
        "`shard` must be (index, count), 0 <= index < count, of at most the "
        f"{len(names)} files of {directory} ({split})",
        f"{shard}; sharing by element has no such limit",
    )
    num_examples = sum(index.examples[split].values())
    dataset = _records(directory, names[place::count])
    return sources.Source(
        name="tfrecord",
        split=split,
        class_names=tuple(index.class_names),
        num_examples=num_examples,
        image_size=index.image_size,
        records=functools.partial(sources.in_file_order, dataset, num_examples),
        read=_reader(index),
        shard=shard,
        is_multi_label=index.is_multi_label,
    )


def _records(directory: epath.Path, names: Sequence[str]) -> tf.data.Dataset:
    paths = [str(directory / name) for name in names]
    return tf.data.TFRecordDataset(paths, buffer_size=_BUFFER)


def _reader(index: Index) -> sources.Read:
    """Makes `Source.read` of serialized examples."""
    image, label, _ = index.features
    is_text = isinstance(index.values[0], str)
    values = tf.constant(index.values, tf.string if is_text else tf.int64)
    parse = _parser((image, label), values.dtype)

    def read(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        contents, labels = parse(record)
        has = tf.reduce_any(
            values == labels[:, tf.newaxis], axis=0
        )  # [classes]
        if index.is_multi_label:
            return contents[0], tf.cast(has, tf.uint8)
        number = tf.argmax(tf.cast(has, tf.int32), output_type=tf.int32)
        return contents[0], number

    return read


def _parser(
    names: Sequence[str], kind: tf.DType
) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """From a serialized example to features [any number], bytes first."""
    specs = {names[1]: tf.io.RaggedFeature(kind)}
    specs |= {x: tf.io.RaggedFeature(tf.string) for x in (names[0], *names[2:])}

    def parse(record: tf.Tensor) -> list[tf.Tensor]:
        parsed = tf.io.parse_single_example(record, specs)
        return [parsed[name] for name in names]

    return parse


def _read_index(directory: epath.Path, features: tuple[str, ...]) -> Index:
    """What the directory holds, by its tfrecords.json or by a look."""
    found = _split_files(directory)
    known = files.read_json(directory / _INDEX, None)
    if known is not None:
        index = Index(**known)
        names = {split: [*sorted(x)] for split, x in index.examples.items()}
        if names == found and tuple(index.features) == features:
            return index
    index = _look(directory, found, features)
    with contextlib.suppress(OSError):
        index.write(directory)
    return index


def _split_files(directory: epath.Path) -> dict[str, list[str]]:
    """Names of the files of "train" and "test", sorted."""
    exceptions.require(
        directory.is_dir(), "`data_dir` must be a folder", directory
    )
    names = sorted(x.name for x in directory.iterdir() if "-of-" in x.name)
    names = [name for name in names if not name.startswith(".")]
    train = [name for name in names if "train" in name]
    others = [name for name in names if "train" not in name]
    of_words = [[x for x in others if word in x] for word in _TEST_SPLITS]
    found = {"train": train, "test": next(filter(None, of_words), [])}
    exceptions.require(
        all(found.values()),
        "`data_dir` must hold TFRecord files with -of- and train, and with "
        "-of- and test, validation or val in their names",
        f"{len(names)} with -of- in {directory}",
    )
    return found


def _look(
    directory: epath.Path, found: dict[str, list[str]], features: Sequence[str]
) -> Index:
    """Reads the labels of all records."""
    kind = _kind_of_labels(directory / found["train"][0], features)
    parse = _parser(features, kind)
    examples: dict[str, dict[str, int]] = {"train": {}, "test": {}}
    called: dict[str, dict[int | str, str]] = {"train": {}, "test": {}}
    numbers: set[int] = set()
    for split, names in found.items():
        for name in names:
            place, count = directory / name, 0
            parsed = _records(directory, [name]).map(
                lambda record: parse(record)[1:],
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            try:
                for labels, texts in parsed.as_numpy_iterator():
                    count += 1
                    numbers.add(len(labels))
                    values = [_decoded(label) for label in labels]
                    shown = map(_decoded, texts)
                    if len(texts) != len(values):
                        shown = map(str, values)
                    called[split].update(zip(values, shown, strict=True))
            except tf.errors.OpError as error:
                raise exceptions.InvalidValue(
                    f"{place}:{count + 1} must be an example of a TFRecord "
                    f"file, got {exceptions.one_line(error)}"
                ) from error
            examples[split][name] = count
    missing = sorted(called["test"].keys() - called["train"].keys())
    exceptions.require(
        not missing,
        f"{directory} must have training images of every label",
        f"{len(missing)} that only the test split has, such as {missing[:3]}",
    )
    values = sorted(called["train"])
    names = [called["train"][value] for value in values]
    return Index(features, values, names, numbers != {1}, None, examples)


def _kind_of_labels(path: epath.Path, features: Sequence[str]) -> tf.DType:
    """Whether labels are integers or texts, by the first example of a file."""
    image, label, _ = features
    record = next(_records(path.parent, [path.name]).as_numpy_iterator(), b"")
    known = tf.train.Example.FromString(record).features.feature
    exceptions.require(
        image in known and label in known,
        f"{path} must have the features {image} and {label}; "
        "--tfrecord_features names others",
        ", ".join(sorted(known)) or "no example",
    )
    is_text = known[label].HasField("bytes_list")
    return tf.string if is_text else tf.int64


def _decoded(value: np.int64 | bytes) -> int | str:
    return value.decode() if isinstance(value, bytes) else int(value)
