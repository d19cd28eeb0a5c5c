"""Lists of image files with their labels: .csv, .tsv or .jsonl."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import image_files, label_fields, partition, sources
from supcon_tf.disk import rows

_MAX_LISTED = 3  # bad rows or labels in a message


@dataclasses.dataclass(frozen=True)
class _Table:
    """The rows of a manifest, in order.

    Attributes:
      paths: as in the file.
      splits: [rows] train, test or val; "" where the file has none.
      texts: the different label fields.
      fields: [rows] indices in `texts`.
      weights: [rows] float64, 1 where the file has none.
      is_multi_label: whether a field may hold several labels.
    """

    paths: list[str]
    splits: np.ndarray
    texts: list[str]
    fields: np.ndarray
    weights: np.ndarray
    is_multi_label: bool


def load_manifest(
    data_dir: str,
    split: str,
    test_fraction: float,
    split_seed: int,
    split_by: str,
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of a manifest; for the arguments see `loading.load`.

    Columns, or fields of JSON lines, are `path`, relative to the file or whole,
    such as gs://; `label`, or `labels` with `|` between them or as a JSON list;
    optional are `split` (train, test or val, and other names of `partition`)
    and `weight`, not negative, scaled to a mean of 1. Others are ignored.

    Returns:
      The source, its examples in the order of the file. With a column `labels`,
      its `labels` are [examples, classes] uint8.

    Raises:
      ValueError: a line, named by file and number, breaks a rule, or names a
        file twice or a missing file; or the test split has seen and unseen
        labels.
    """
    table = _read(data_dir)
    is_train, is_test = _train_and_test(
        data_dir, table, test_fraction, split_seed, split_by
    )
    if split == "validation":
        is_test = _validation(data_dir, table)
    train_names, test_names = (
        _names(table, table.fields[mask]) for mask in (is_train, is_test)
    )
    class_names = partition.class_names(
        train_names, test_names, split, data_dir
    )
    chosen = np.flatnonzero(is_train if split == "train" else is_test)
    exceptions.require(
        split == "train" or test_names or not len(chosen),
        f"{data_dir} must have a label of some {split} image: without any, no "
        "score can be measured",
        f"{len(chosen)} images without",
    )
    note = ""
    if split_by == "image" and (table.splits == "").any():
        note = partition.describe_uneven(
            table.paths, is_test, test_fraction, "give the list a column split"
        )
    return _make_source(
        data_dir,
        table,
        chosen,
        split,
        class_names,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        note=note,
    )


def load_all_images(
    data_dir: str, skip_bad_images: bool = False
) -> sources.Source:
    """Loads every row of a manifest, of whatever split.

    Returns:
      The source, like that of `load_manifest`.

    Raises:
      ValueError: as `load_manifest`.
    """
    table = _read(data_dir)
    return _make_source(
        data_dir,
        table,
        np.arange(len(table.paths)),
        "test",  # unlike training images, a class may have none
        _names(table, table.fields),
        check_images=True,
        skip_bad_images=skip_bad_images,
    )


def _label_lists(table: _Table) -> list[list[str]]:
    """The labels of each of the texts of a table."""
    return [
        label_fields.split(text, table.is_multi_label) for text in table.texts
    ]


def _names(table: _Table, fields: np.ndarray) -> list[str]:
    """The sorted labels of some label fields of a table."""
    label_lists = _label_lists(table)
    return sorted(
        {name for field in np.unique(fields) for name in label_lists[field]}
    )


def _make_source(
    path: str,
    table: _Table,
    chosen: np.ndarray,
    split: str,
    class_names: Sequence[str],
    *,
    check_images: bool,
    skip_bad_images: bool,
    note: str = "",
) -> sources.Source:
    """The source of the chosen rows of a table."""
    label_lists = _label_lists(table)
    class_ids = {name: label for label, name in enumerate(class_names)}
    labels = table.fields[chosen]
    if table.is_multi_label:
        labels = label_fields.multi_hot(label_lists, class_ids)[labels]
    else:
        text_ids = [class_ids.get(name, -1) for (name,) in label_lists]
        labels = np.array(text_ids, np.int64)[labels]
    root = os.path.join(os.path.dirname(path), "")
    paths = [table.paths[row] for row in chosen]
    paths = _stored_paths(path, root, paths, skip_bad_images)
    return image_files.make_source(
        "manifest",
        split,
        class_names,
        root,
        paths,
        labels,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        weights=_scale_weights(path, table.weights[chosen]),
        note=note,
    )


def _read(path: str) -> _Table:
    paths: list[str] = []
    earlier: set[str] = set()  # the paths, each in one spelling
    texts: dict[str, int] = {}
    splits, field_ids, weights = [], [], []
    is_multi_label = False
    columns = "label", "labels", "split", "weight"
    for line, fields in rows.read_rows(path, ["path"], columns, "labels"):
        name, label, labels, split, weight = fields
        spelling = _one_spelling(name)
        _check_path(line, name, spelling in earlier)
        if labels is None and not (label or "").strip():
            received = repr(label)
            if label is None:
                received = (
                    "neither: name a column so; several labels of an image are "
                    f"in one column labels, separated by {rows.SEPARATOR}"
                )
            raise exceptions.InvalidValue(
                f"{line} must have a label or labels, got {received}"
            )
        if label is not None and labels is not None:
            raise exceptions.InvalidValue(
                f"{line} must have a label or labels, got both, {label!r} and "
                f"{labels!r}: rename the column that is not to be learnt"
            )
        if split is not None and partition.split_of(split) is None:
            raise exceptions.InvalidValue(
                f"{line} must have a split of {partition.NAMES}, got {split!r}"
            )
        is_multi_label |= labels is not None
        text = (label if labels is None else labels).strip()
        text = unicodedata.normalize("NFC", text)
        paths.append(name)
        earlier.add(spelling)
        splits.append(partition.split_of(split or "") or "")
        field_ids.append(texts.setdefault(text, len(texts)))
        weights.append(1.0 if weight is None else _weight(line, weight))
    label_fields.check(path, list(texts), is_multi_label)
    return _Table(
        paths,
        np.array(splits, str),
        list(texts),
        np.array(field_ids, np.int64),
        np.array(weights, np.float64),
        is_multi_label,
    )


def _check_path(line: str, name: str, is_repeated: bool) -> None:
    """Raises ValueError for an empty, repeated or unreadable path."""
    if not name or is_repeated:
        rule = "a path" if not name else "another path than those before"
        raise exceptions.InvalidValue(f"{line} must have {rule}, got {name!r}")
    scheme, is_address, _ = name.partition("://")
    if is_address and scheme not in tf.io.gfile.get_registered_schemes():
        raise exceptions.InvalidValue(
            f"{line} must have the path of a file, or an address that "
            f"TensorFlow reads, such as gs://, got {name}: download the images "
            "of web addresses first"
        )


def _one_spelling(path: str) -> str:
    """The path as text that is equal for all spellings that name one file.

    `./a.jpg` and `a.jpg` are one file, as are both forms of an accent.
    """
    if not path.isascii():
        path = unicodedata.normalize("NFC", path)
    return path if "://" in path else os.path.normpath(path)


def _weight(line: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    exceptions.require(
        0 <= weight < math.inf, f"{line} must have a weight of 0 or more", text
    )
    return weight


def _scale_weights(path: str, weights: np.ndarray) -> np.ndarray | None:
    """Scales weights to a mean of 1; None where all are 1."""
    if (weights == 1).all():
        return None
    exceptions.require(
        weights.any(), f"{path} must have a weight above 0 in each split", "0"
    )
    weights = weights / weights.max()  # or their sum could be infinite
    return (weights / weights.mean()).astype(np.float32)


def has_splits(path: str) -> bool:
    """Whether the rows have splits."""
    return bool((_read(path).splits != "").any())


def has_validation(path: str) -> bool:
    """Whether there are rows of train, test and val."""
    return {"train", "test", "val"} <= {*_read(path).splits}


def _validation(path: str, table: _Table) -> np.ndarray:
    """The mask of the rows of val, if there are rows of test too."""
    is_validation = table.splits == "val"
    counts = is_validation.sum(), (table.splits == "test").sum()
    exceptions.require(
        all(counts),
        f"{path} must have rows of train, test and val for the split "
        "validation",
        f"{counts[0]} of val and {counts[1]} of test",
    )
    return is_validation


def _train_and_test(
    path: str,
    table: _Table,
    test_fraction: float,
    split_seed: int,
    split_by: str,
) -> tuple[np.ndarray, np.ndarray]:
    """The masks of the training and the test rows.

    The test rows are those of test, of val where there are none, or by a hash.
    """
    is_unsplit = table.splits == ""
    if split_by == "class":
        exceptions.require(
            is_unsplit.any() and not table.is_multi_label,
            f"{path} must have one label per image, and no splits, for "
            "`split_by` class",
            "several labels" if table.is_multi_label else "splits",
        )
    if not is_unsplit.any():
        is_test = table.splits == "test"
        if not is_test.any():
            is_test = table.splits == "val"
        return table.splits == "train", is_test
    exceptions.require(
        is_unsplit.all(),
        f"{path} must give all rows a split, or none",
        f"{is_unsplit.sum()} without, such as "
        f"{table.paths[is_unsplit.argmax()]}",
    )
    if split_by == "class":
        is_test = partition.is_test_class(
            table.texts, test_fraction, split_seed, path
        )[table.fields]
        return ~is_test, is_test
    labels = table.fields
    if table.is_multi_label:
        label_lists = _label_lists(table)
        names = dict.fromkeys(itertools.chain.from_iterable(label_lists))
        class_ids = {name: label for label, name in enumerate(names)}
        labels = label_fields.multi_hot(label_lists, class_ids)[labels]
    is_test = partition.is_test(table.paths, labels, test_fraction, split_seed)
    return ~is_test, is_test


def _stored_paths(
    manifest: str, root: str, paths: Sequence[str], skip_bad_images: bool
) -> list[str]:
    """The paths in the form that exists on disk: systems write them in several.

    Raises:
      ValueError: local files do not exist, unless bad images are skipped; the
        message has their lines.
    """
    stored, missing = [], set()
    for path in paths:
        forms = (
            path,
            unicodedata.normalize("NFC", path),
            unicodedata.normalize("NFD", path),
            path.replace("\\", "/"),
        )
        stored_path = next((f for f in forms if _exists(root, f)), None)
        if stored_path is None:
            missing.add(path)
        stored.append(path if stored_path is None else stored_path)
    if missing and not skip_bad_images:
        missing_lines = [
            f"{name} ({line})"
            for line, (name,) in rows.read_rows(manifest, ["path"])
            if name in missing
        ]
        raise exceptions.InvalidValue(
            f"{manifest} must name files that are there, got {len(missing)} "
            "that are not: "
            f"{exceptions.listed(missing_lines, _MAX_LISTED)}; leave them out "
            "with `skip_bad_images`"
        )
    return stored


def _exists(root: str, path: str) -> bool:
    location = image_files.full_path(root, path)
    return "://" in location or os.path.isfile(location)  # a regular file
