"""Lists of image files with their labels: .csv, .tsv or .jsonl."""

from __future__ import annotations

import array
import dataclasses
import math
import os
import unicodedata
from collections.abc import Collection, Sequence

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, rows
from supcon_tf.data import image_files, label_fields, partition, sources

_SHOWN = 3  # How many bad rows or labels a message lists.


@dataclasses.dataclass(frozen=True)
class _Rows:
    """The rows of a split, in order; a million of them in little memory.

    Attributes:
      paths: as written.
      labels: numbers of the texts of their labels.
      weights: 1 where none is written.
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
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of a manifest; for the arguments see `loading.load`.

    Columns, or fields of JSON lines, are `path`, relative to the file or whole,
    as gs:// is; `label`, or `labels` with `|` between them or as a JSON list;
    and, where they are wanted, `split` (train, test or val, and other names of
    `partition`) and `weight`, not negative, which are scaled to a mean of 1.
    Others are left alone.

    Returns:
      The source, its examples in the order of the file. Where there are
      `labels`, its `labels` are [examples, classes] uint8.

    Raises:
      ValueError: a line, named by file and number, breaks one of these rules,
        names a file twice or one that is not there; or the test split has
        labels of training images and others.
    """
    exceptions.require(
        data_dir is not None,
        "`data_dir` must be the file for the dataset `manifest`",
        None,
    )
    table = _read(data_dir)
    train, test = _train_and_test(data_dir, table, test_fraction, split_seed)
    if split == "validation":
        test = _validation(data_dir, table)
    labels_of = [
        label_fields.split(text, table.is_multi_label) for text in table.texts
    ]
    used = (
        sorted({name for text in {*part.labels} for name in labels_of[text]})
        for part in (train, test)
    )
    class_names = partition.class_names(*used, split, data_dir)
    number = {name: label for label, name in enumerate(class_names)}
    part = train if split == "train" else test
    labels = np.array(part.labels)
    if table.is_multi_label:
        labels = label_fields.hot(labels_of, number)[labels]
    else:
        of_text = [number.get(name, -1) for (name,) in labels_of]
        labels = np.array(of_text, np.int64)[labels]
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
        weights=_scaled(data_dir, np.array(part.weights)),
    )


@dataclasses.dataclass(frozen=True)
class _Table:
    """All rows of a manifest.

    Attributes:
      splits: the rows of each, "" for those that name none.
      texts: the different fields of labels, by their numbers.
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
    for place, fields in rows.read_rows(path, ["path"], columns):
        name, label, labels, split, weight = fields
        _check_path(place, name, seen)
        if labels is None and not (label or "").strip():
            exceptions.require(
                False, f"{place} must have a label or labels", repr(label)
            )
        if split is not None and partition.split_of(split) is None:
            rule = f"{place} must have a split of {partition.NAMES}"
            exceptions.require(False, rule, repr(split))
        seen.add(name)
        is_multi_label |= labels is not None
        text = (label if labels is None else labels).strip()
        text = unicodedata.normalize("NFC", text)
        part = splits[partition.split_of(split or "") or ""]
        part.paths.append(name)
        part.labels.append(texts.setdefault(text, len(texts)))
        part.weights.append(1.0 if weight is None else _weight(place, weight))
    label_fields.check_separator(path, list(texts), is_multi_label)
    return _Table(splits, list(texts), is_multi_label)


def _check_path(place: str, name: str, seen: set[str]) -> None:
    """Raises ValueError for a path that cannot be that of a new image."""
    if not name or name in seen:
        rule = "a path" if not name else "another path than those before"
        exceptions.require(False, f"{place} must have {rule}", repr(name))
    scheme, is_address, _ = name.partition("://")
    if is_address and scheme not in tf.io.gfile.get_registered_schemes():
        raise exceptions.InvalidValue(
            f"{place} must have the path of a file, or an address that "
            f"TensorFlow reads, such as gs://, got {name}: download the images "
            "of web addresses first"
        )


def _weight(place: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    exceptions.require(
        0 <= weight < math.inf, f"{place} must have a weight of 0 or more", text
    )
    return weight


def _scaled(path: str, weights: np.ndarray) -> np.ndarray | None:
    """Weights with a mean of 1; None where all are 1."""
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
    """How many rows each split has."""
    names = "train", "test", "val"
    return {name: len(table.splits[name].paths) for name in names}


def _validation(path: str, table: _Table) -> _Rows:
    """The rows of val, where there are others to test on."""
    counts = _counts(table)
    exceptions.require(
        counts["val"] and counts["test"],
        f"{path} must have rows of train, test and val for the split "
        "validation",
        f"{counts['val']} of val and {counts['test']} of test",
    )
    return table.splits["val"]


def _train_and_test(
    path: str, table: _Table, test_fraction: float, split_seed: int
) -> tuple[_Rows, _Rows]:
    """The training rows, and those of test, else of val, else by a hash."""
    splits, unsplit = table.splits, table.splits[""]
    if not unsplit.paths:
        test = splits["test"] if splits["test"].paths else splits["val"]
        return splits["train"], test
    exceptions.require(
        sum(len(part.paths) for part in splits.values()) == len(unsplit.paths),
        f"{path} must give all rows a split, or none",
        f"{len(unsplit.paths)} without, such as {unsplit.paths[0]}",
    )
    labels = np.array(unsplit.labels)
    if table.is_multi_label:
        labels_of = [label_fields.split(text, True) for text in table.texts]
        names = dict.fromkeys(name for held in labels_of for name in held)
        number = {name: label for label, name in enumerate(names)}
        labels = label_fields.hot(labels_of, number)[labels]
    is_test = partition.is_test(
        unsplit.paths, labels, test_fraction, split_seed
    )
    return unsplit.part(~is_test), unsplit.part(is_test)


def _stored_paths(
    manifest: str, root: str, paths: Sequence[str], skip_bad_images: bool
) -> list[str]:
    """The paths as they are on disk, where systems write them in other ways.

    Raises:
      ValueError: local files are not there, by their lines; unless they are to
        be left out.
    """
    stored, missing = [], set()
    for path in paths:
        there = next(filter(lambda x: _exists(root, x), _forms(path)), None)
        if there is None:
            missing.add(path)
        stored.append(path if there is None else there)
    if missing and not skip_bad_images:
        _refuse_missing(manifest, missing)
    return stored


def _forms(path: str) -> tuple[str, ...]:
    """A path, and the ways in which other systems write it."""
    return (
        path,
        unicodedata.normalize("NFC", path),
        unicodedata.normalize("NFD", path),
        path.replace("\\", "/"),
    )


def _exists(root: str, path: str) -> bool:
    location = image_files.full_path(root, path)
    return "://" in location or os.path.isfile(location)  # no pipe, no device


def _refuse_missing(manifest: str, missing: Collection[str]) -> None:
    named = [
        f"{name} ({place})"
        for place, (name,) in rows.read_rows(manifest, ["path"])
        if name in missing
    ]
    raise exceptions.InvalidValue(
        f"{manifest} must name files that are there, got {len(missing)} "
        f"that are not: {exceptions.listed(named, _SHOWN)}; leave them out "
        "with `skip_bad_images`"
    )
