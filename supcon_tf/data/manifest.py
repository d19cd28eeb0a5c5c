"""Lists of image files with their labels: .csv, .tsv or .jsonl."""

from __future__ import annotations

import array
import dataclasses
import itertools
import math
import os
import unicodedata
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import image_files, label_fields, partition, sources
from supcon_tf.disk import rows

_MAX_LISTED = 3  # bad rows or labels in a message


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of a split, in order; a million of them in little memory.

    Attributes:
      paths: as in the file.
      labels: indices of the label fields, of `_Table.texts`.
      weights: 1 where the file has none.
    """

    paths: list[str] = dataclasses.field(default_factory=list)
    labels: array.array = dataclasses.field(
        default_factory=lambda: array.array("q")
    )
    weights: array.array = dataclasses.field(
        default_factory=lambda: array.array("f")
    )

    def part(self, is_chosen: np.ndarray) -> _Rows:
        """Some of the rows, by a mask."""
        chosen = np.flatnonzero(is_chosen)
        return _Rows(
            [self.paths[row] for row in chosen],
            array.array("q", np.array(self.labels)[chosen].tobytes()),
            array.array("f", np.array(self.weights)[chosen].tobytes()),
        )


def load_manifest(
    data_dir: str | None,
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
    exceptions.require(
        data_dir is not None,
        "`data_dir` must be the file for the dataset `manifest`",
        None,
    )
    table = _read(data_dir)
    train, test = _train_and_test(
        data_dir, table, test_fraction, split_seed, split_by
    )
    if split == "validation":
        test = _validation(data_dir, table)
    label_lists = [
        label_fields.split(text, table.is_multi_label) for text in table.texts
    ]
    split_names = (
        sorted({name for text in {*part.labels} for name in label_lists[text]})
        for part in (train, test)
    )
    class_names = partition.class_names(*split_names, split, data_dir)
    class_ids = {name: label for label, name in enumerate(class_names)}
    part = train if split == "train" else test
    labels = np.array(part.labels)
    if table.is_multi_label:
        labels = label_fields.multi_hot(label_lists, class_ids)[labels]
    else:
        text_ids = [class_ids.get(name, -1) for (name,) in label_lists]
        labels = np.array(text_ids, np.int64)[labels]
    root = os.path.join(os.path.dirname(data_dir), "")
    paths = _stored_paths(data_dir, root, part.paths, skip_bad_images)
    return image_files.make_source(
        "manifest",
        split,
        class_names,
        root,
        paths,
        labels,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        weights=_scale_weights(data_dir, np.array(part.weights)),
    )


@dataclasses.dataclass(frozen=True)
class _Table:
    """All rows of a manifest.

    Attributes:
      splits: the rows of each split, "" for rows without a split.
      texts: the different label fields.
      is_multi_label: whether a field may hold several labels.
    """

    splits: dict[str, _Rows]
    texts: list[str]
    is_multi_label: bool


def _read(path: str) -> _Table:
    splits = {name: _Rows() for name in ("", "train", "test", "val")}
    texts: dict[str, int] = {}
    seen: set[str] = set()
    is_multi_label = False
    columns = "label", "labels", "split", "weight"
    for line, fields in rows.read_rows(path, ["path"], columns):
        name, label, labels, split, weight = fields
        _check_path(line, name, seen)
        if labels is None and not (label or "").strip():
            exceptions.require(
                False, f"{line} must have a label or labels", repr(label)
            )
        if split is not None and partition.split_of(split) is None:
            rule = f"{line} must have a split of {partition.NAMES}"
            exceptions.require(False, rule, repr(split))
        seen.add(name)
        is_multi_label |= labels is not None
        text = (label if labels is None else labels).strip()
        text = unicodedata.normalize("NFC", text)
        part = splits[partition.split_of(split or "") or ""]
        part.paths.append(name)
        part.labels.append(texts.setdefault(text, len(texts)))
        part.weights.append(1.0 if weight is None else _weight(line, weight))
    label_fields.check_separator(path, list(texts), is_multi_label)
    return _Table(splits, list(texts), is_multi_label)


def _check_path(line: str, name: str, seen: set[str]) -> None:
    """Raises ValueError for an empty, repeated or unreadable path."""
    if not name or name in seen:
        rule = "a path" if not name else "another path than those before"
        exceptions.require(False, f"{line} must have {rule}", repr(name))
    scheme, is_address, _ = name.partition("://")
    if is_address and scheme not in tf.io.gfile.get_registered_schemes():
        raise exceptions.InvalidValue(
            f"{line} must have the path of a file, or an address that "
            f"TensorFlow reads, such as gs://, got {name}: download the images "
            "of web addresses first"
        )


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
    return weights / weights.mean()


def has_validation(path: str) -> bool:
    """Whether there are rows of train, test and val."""
    return all(_counts(_read(path)).values())


def _counts(table: _Table) -> dict[str, int]:
    """The number of rows of each split."""
    names = "train", "test", "val"
    return {name: len(table.splits[name].paths) for name in names}


def _validation(path: str, table: _Table) -> _Rows:
    """The rows of val, if there are rows of test too."""
    counts = _counts(table)
    exceptions.require(
        counts["val"] and counts["test"],
        f"{path} must have rows of train, test and val for the split "
        "validation",
        f"{counts['val']} of val and {counts['test']} of test",
    )
    return table.splits["val"]


def _train_and_test(
    path: str,
    table: _Table,
    test_fraction: float,
    split_seed: int,
    split_by: str,
) -> tuple[_Rows, _Rows]:
    """The training rows, and the test rows: of test, of val, or by a hash."""
    splits, unsplit = table.splits, table.splits[""]
    if split_by == "class":
        exceptions.require(
            unsplit.paths and not table.is_multi_label,
            f"{path} must have one label per image, and no splits, for "
            "`split_by` class",
            "several labels" if table.is_multi_label else "splits",
        )
    if not unsplit.paths:
        test = splits["test"] if splits["test"].paths else splits["val"]
        return splits["train"], test
    exceptions.require(
        sum(len(part.paths) for part in splits.values()) == len(unsplit.paths),
        f"{path} must give all rows a split, or none",
        f"{len(unsplit.paths)} without, such as {unsplit.paths[0]}",
    )
    labels = np.array(unsplit.labels)
    if split_by == "class":
        is_test = partition.is_test_class(
            table.texts, test_fraction, split_seed, path
        )[labels]
        return unsplit.part(~is_test), unsplit.part(is_test)
    if table.is_multi_label:
        label_lists = [label_fields.split(text, True) for text in table.texts]
        names = dict.fromkeys(itertools.chain.from_iterable(label_lists))
        class_ids = {name: label for label, name in enumerate(names)}
        labels = label_fields.multi_hot(label_lists, class_ids)[labels]
    is_test = partition.is_test(
        unsplit.paths, labels, test_fraction, split_seed
    )
    return unsplit.part(~is_test), unsplit.part(is_test)


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
        stored_path = next((f for f in _forms(path) if _exists(root, f)), None)
        if stored_path is None:
            missing.add(path)
        stored.append(path if stored_path is None else stored_path)
    if missing and not skip_bad_images:
        _refuse_missing(manifest, missing)
    return stored


def _forms(path: str) -> tuple[str, ...]:
    """A path, and its forms on other systems."""
    return (
        path,
        unicodedata.normalize("NFC", path),
        unicodedata.normalize("NFD", path),
        path.replace("\\", "/"),
    )


def _exists(root: str, path: str) -> bool:
    location = image_files.full_path(root, path)
    return "://" in location or os.path.isfile(location)  # a regular file


def _refuse_missing(manifest: str, missing: Collection[str]) -> None:
    missing_lines = [
        f"{name} ({line})"
        for line, (name,) in rows.read_rows(manifest, ["path"])
        if name in missing
    ]
    raise exceptions.InvalidValue(
        f"{manifest} must name files that are there, got {len(missing)} "
        f"that are not: {exceptions.listed(missing_lines, _MAX_LISTED)}; leave "
        "them out with `skip_bad_images`"
    )
