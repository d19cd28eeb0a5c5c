"""A gallery on disk: representations of examples, with labels and ids.

A gallery is a directory of versions, as exports are, of which the newest
counts: a change writes a new version, and then removes the earlier ones. A
version is written whole or not at all:

  gallery.json         classes, the checkpoint, the sizes of the other files
  representations.npy  [N, dim] float32, float16 or int8, memory-mapped
  labels.npy           [N] int32, -1 for an example without a label
  digests.npy          [N] int64, hashes of the contents of the examples
  ids.json             N texts, such as the paths of the images
  rows.faiss           of a gallery with an index, see `approximate`

Letters in the shapes: N rows of the gallery, Q queries, k neighbours of each.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from etils import epath

from supcon_tf import exceptions, measures, run_files
from supcon_tf.disk import files, leftovers, locks, origins
from supcon_tf.gallery import approximate

NO_LABEL = -1
SCORES = "neighbors", "mahalanobis"

_RECORD = run_files.GALLERY_RECORD
_FORMAT = 2
_ARRAYS = "representations", "labels", "digests"
_IDS = "ids.json"
_INDEX = "rows.faiss"
_LARGEST_INT8 = 127
_ANEW = "tools/index.py --data_dir=DIR --overwrite"
_REMEDY = f"Make the gallery again with {_ANEW}"


@dataclasses.dataclass(frozen=True)
class Threshold:
    """The least score of belonging that makes a query known.

    Example:
      >>> from supcon_tf import gallery
      >>> gallery.Threshold(0.8, known_rate=0.95).minimum
      0.8

    Attributes:
      minimum: the threshold.
      known_rate: share of the known examples that reach it.
      known_data: path of these examples; None for the rows themselves, each
        beside the others.
      score: "neighbors", the cosine to the nearest row, or "mahalanobis", minus
        the distance to the nearest class mean.
      aurocs: of each score, by which it was chosen; {} for no choice.
    """

    minimum: float
    known_rate: float
    known_data: str | None = None
    score: str = "neighbors"
    aurocs: dict[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
    """Representations of examples, to be searched and to grow.

    Attributes:
      representations: [N, dim] float32, float16 or int8; their directions
        count, not their lengths.
      labels: [N] int32, of `class_names`; `NO_LABEL` for none.
      class_names: one per label.
      ids: N different texts, such as the paths of images.
      digests: [N] int64, hashes of the contents.
      made_of: the checkpoint of the encoder.
      threshold: between queries of the classes and others; None for none.
      version: number of the version on the disk that it was read from; 0 for a
        new gallery.
      is_approximate: whether `save` builds an index for approximate search.
      index: that index, of a gallery as it is on disk; None for none.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import gallery
      >>> shelf = gallery.Gallery(
      ...     np.eye(3, dtype=np.float32), np.array([0, 1, -1], np.int32),
      ...     ("cup", "pen"), ("a.png", "b.png", "c.png"), np.arange(3), {},
      ... )
      >>> similarities, rows = shelf.search([[0.6, 0.8, 0.0]], k=2)
      >>> [shelf.ids[row] for row in rows[0]]
      ['b.png', 'a.png']
    """

    representations: npt.NDArray[np.number]
    labels: npt.NDArray[np.int32]
    class_names: tuple[str, ...]
    ids: tuple[str, ...]
    digests: npt.NDArray[np.int64]
    made_of: origins.Identity
    threshold: Threshold | None = None
    version: int = 0
    is_approximate: bool = False
    index: approximate.Index | None = None

    def __post_init__(self):
        counts = [len(self.labels), len(self.ids), len(self.digests)]
        exceptions.require(
            counts == [len(self.representations)] * 3,
            f"`labels`, `ids` and `digests` must be of the "
            f"{len(self.representations)} representations",
            counts,
        )
        exceptions.require(
            len(set(self.ids)) == len(self.ids),
            "`ids` must be different",
            first_duplicate(self.ids),
        )
        lowest = self.labels.min(initial=NO_LABEL)
        highest = self.labels.max(initial=NO_LABEL)
        exceptions.require(
            lowest >= NO_LABEL and highest < len(self.class_names),
            f"`labels` must be {NO_LABEL}, or below {len(self.class_names)}",
            f"{lowest} to {highest}",
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def dim(self) -> int:
        """The dimension of the representations."""
        return self.representations.shape[1]

    def search(
        self, queries: npt.ArrayLike, k: int = 10
    ) -> measures.neighbors.Neighbors:
        """The k most similar rows of each query; see `measures`.

        The search is exact but for a gallery with an index, which may miss
        rows: `index.recall` says how many.

        Args:
          queries: [Q, dim] real, finite.
          k: positive int; all rows where the gallery has fewer.

        Returns:
          Cosine similarities [Q, k] float32, and rows [Q, k] int32.

        Raises:
          ValueError: the gallery is empty, or the queries do not fit.
        """
        exceptions.require(
            len(self) > 0, "the gallery must have rows to be searched", 0
        )
        measures.neighbors.check_counts(k=k)
        if self.index is not None:
            return self.index.search(queries, self.representations, k)
        return measures.nearest_neighbors(queries, self.representations, k)

    def is_known(
        self,
        queries: npt.NDArray[np.float32],
        similarities: npt.NDArray[np.float32],
    ) -> npt.NDArray[np.bool_] | None:
        """Whether queries [Q, dim] reach the threshold; None without one.

        `similarities` [Q, k] are those of `search`.
        """
        if self.threshold is None:
            return None
        scores = similarities[:, 0]
        if self.threshold.score == "mahalanobis":
            scores = self.mahalanobis.scores(queries)
        return scores >= self.threshold.minimum

    @functools.cached_property
    def mahalanobis(self) -> measures.Mahalanobis:
        """The Mahalanobis score of the rows that have a class.

        ValueError where all rows of each class are equal.
        """
        rows, labels = self.representations, self.labels
        if not (is_labelled := labels != NO_LABEL).all():
            rows, labels = rows[is_labelled], labels[is_labelled]
        try:
            return measures.Mahalanobis.fit(rows, labels)
        except exceptions.InvalidValue as error:
            raise exceptions.InvalidValue(
                "the gallery must have a class of different rows for its "
                "threshold, a Mahalanobis distance, got none: add rows, or "
                "save it with another `threshold`, such as None"
            ) from error

    @property
    def can_be_scored(self) -> bool:
        """Whether the rows suffice for the score of the threshold."""
        if self.threshold is None or self.threshold.score != "mahalanobis":
            return True
        try:
            return self.mahalanobis is not None
        except exceptions.InvalidValue:
            return False

    @functools.cached_property
    def class_means(self) -> npt.NDArray[np.float32]:
        """The mean direction of each class, [classes, dim], of unit length."""
        count = len(self.class_names)
        is_labelled = self.labels != NO_LABEL
        means, _ = measures.class_prototypes(
            self.representations,
            np.where(is_labelled, self.labels, count),  # one class more
            num_classes=count + 1,
        )
        return means[:-1]

    def class_counts(self) -> dict[str, int]:
        """The number of rows of each class, by name."""
        labels = self.labels[self.labels != NO_LABEL]
        counts = np.bincount(labels, minlength=len(self.class_names))
        return dict(zip(self.class_names, counts.tolist(), strict=True))

    def part(self, is_selected: npt.NDArray[np.bool_]) -> Gallery:
        """The rows of a mask [N]; classes without rows are dropped."""
        rows = np.flatnonzero(is_selected)
        labels = self.labels[rows]
        present = np.unique(labels[labels != NO_LABEL])
        # The last entry is that of NO_LABEL.
        new_labels = np.full(len(self.class_names) + 1, NO_LABEL, np.int32)
        new_labels[present] = np.arange(len(present))
        return dataclasses.replace(
            self,
            representations=self.representations[rows],
            labels=new_labels[labels],
            class_names=tuple(self.class_names[label] for label in present),
            ids=tuple(self.ids[row] for row in rows),
            digests=self.digests[rows],
            index=None,
        )

    def remove(
        self, ids: Collection[str] = (), class_names: Collection[str] = ()
    ) -> Gallery:
        """The gallery without some rows.

        Args:
          ids: of rows.
          class_names: of classes, whose rows all go.

        Raises:
          ValueError: an id or a class is not in the gallery.
        """
        for argument, names, present in (
            ("ids", ids, self.ids),
            ("class_names", class_names, self.class_names),
        ):
            missing = sorted({*names} - {*present})
            exceptions.require(
                not missing,
                f"`{argument}` must be in the gallery to be removed, which has "
                f"{exceptions.listed(present, 3) or 'none'}",
                exceptions.listed(missing),
            )
        ids = {*ids}
        is_removed = np.array([name in ids for name in self.ids], bool)
        labels = labels_by_name(self.class_names)
        removed_labels = [labels[name] for name in class_names]
        is_removed |= np.isin(self.labels, removed_labels)
        return self.part(~is_removed)

    def missing(self, examples: Gallery) -> npt.NDArray[np.bool_]:
        """Which examples [n] the gallery lacks.

        An example is there if its content is, under the same class, in a row
        that stays: the row of an example's id with another content or class is
        to be replaced, and what it has is then no longer there.
        """
        contents = dict(zip(self.ids, self._contents(), strict=True))
        new = [*zip(examples.ids, examples._contents(), strict=True)]
        replaced = {
            name
            for name, content in new
            if contents.get(name, content) != content
        }
        remaining = {
            content
            for name, content in contents.items()
            if name not in replaced
        }
        return np.array(
            [
                name in replaced or content not in remaining
                for name, content in new
            ],
            bool,
        )

    def _contents(self) -> list[tuple[int, str | None]]:
        """The digest and the class of each row."""
        names = map(self.class_name, self.labels)
        return [*zip(self.digests.tolist(), names, strict=True)]

    def class_name(self, label: int) -> str | None:
        """The class of a label; None for `NO_LABEL`."""
        return None if label == NO_LABEL else self.class_names[label]

    def add(self, other: Gallery) -> Gallery:
        """The gallery with the rows of another, which replace equal ids.

        Raises:
          ValueError: `other` is of another checkpoint or dimension.
        """
        check_made_of("`other`", other.made_of, self.made_of)
        exceptions.require(
            other.dim == self.dim,
            f"`other` must have the dimension of the gallery, {self.dim}",
            other.dim,
        )
        replaced = {*other.ids}
        is_selected = np.array(
            [name not in replaced for name in self.ids], bool
        )
        remaining = self if is_selected.all() else self.part(is_selected)
        labels = labels_by_name([*remaining.class_names, *other.class_names])
        new_labels = np.array(
            [*map(labels.get, other.class_names), NO_LABEL], np.int32
        )
        dtype = self.representations.dtype.name
        return dataclasses.replace(
            remaining,
            representations=np.concatenate(
                [
                    remaining.representations,
                    quantized(other.representations, dtype),
                ]
            ),
            labels=np.concatenate([remaining.labels, new_labels[other.labels]]),
            class_names=tuple(labels),
            ids=remaining.ids + other.ids,
            digests=np.concatenate([remaining.digests, other.digests]),
            index=None,
        )

    def save(self, path: epath.PathLike, overwrite: bool = False) -> Gallery:
        """Writes the gallery as the newest version in a directory.

        Earlier versions are removed then.

        Args:
          path: of the directory.
          overwrite: whether the directory may have another gallery than the
            version that this gallery was read from.

        Returns:
          The gallery with its new version and index.

        Raises:
          ValueError: the directory has another gallery or a later version, and
            `overwrite` is False; or another process writes the gallery.
        """
        path = epath.Path(files.expanded(path, "path"))
        with locks.held(path, "gallery"):
            newest = max(run_files.gallery_versions(path), default=0)
            exceptions.require(
                overwrite or newest in (0, self.version),
                f"`path` must have no gallery, or version {self.version}, "
                "which was read: open it again, and change it then",
                f"version {newest} in {path}",
            )
            earlier = files.numbered(path)  # also what is left of a removal
            newest = max(earlier, default=0) + 1
            with files.make_atomically(path / str(newest)) as partial:
                index = self._write(partial)
            for version in earlier.values():
                version.rmtree()
        if index:
            file = os.fspath(path / str(newest) / _INDEX)
            index = dataclasses.replace(index, path=file)
        return dataclasses.replace(self, version=newest, index=index)

    def _write(self, directory: epath.Path) -> approximate.Index | None:
        """Writes the files of a version; returns its index, if it has one."""
        for name in _ARRAYS:
            with (directory / f"{name}.npy").open("wb") as file:
                np.save(file, getattr(self, name))
        (directory / _IDS).write_text(json.dumps(self.ids))
        names = [*(f"{name}.npy" for name in _ARRAYS), _IDS]
        index = None
        if self.is_approximate and len(self):
            index = approximate.build(directory / _INDEX, self.representations)
            names.append(_INDEX)
        threshold = self.threshold and dataclasses.asdict(self.threshold)
        record = {
            "format": _FORMAT,
            "class_names": self.class_names,
            "made_of": self.made_of,
            "threshold": threshold,
            "index": self._index_record(index),
            "files": {name: files.digest(directory / name) for name in names},
        }
        files.write_json(directory / _RECORD, record, ensure_ascii=False)
        return index

    def _index_record(
        self, index: approximate.Index | None
    ) -> dict[str, object] | None:
        """The fields of the index; {} for one that rows to come will have."""
        if index is None:
            return {} if self.is_approximate else None
        return {"kind": index.kind, "recall": index.recall}


def exists(path: epath.PathLike) -> bool:
    """Whether a directory has a gallery."""
    return bool(run_files.gallery_versions(path))


def open_gallery(path: epath.PathLike, check_digests: bool = False) -> Gallery:
    """Opens a gallery; its representations are read as they are needed.

    Args:
      path: of the directory.
      check_digests: whether all files are read, to be as they were written.

    Example:
      >>> from supcon_tf import config, gallery
      >>> settings = config.IndexSettings(
      ...     "runs/mine", data_dir="photos/train", overwrite=True
      ... )
      >>> _ = gallery.index(settings)
      >>> shelf = gallery.open_gallery("runs/mine/galleries/gallery")
      >>> shelf.class_counts()
      {'bright': 16, 'dark': 16, 'mid': 16}

    Raises:
      ValueError: there is no gallery, or a file of it is missing or cut, or
        differs from its digest.
    """
    folder = epath.Path(files.expanded(path, "path"))
    while True:
        versions = run_files.gallery_versions(folder)
        exceptions.require(
            versions, "`path` must be a gallery of tools/index.py", folder
        )
        newest = max(versions)
        try:
            opened = _open_version(versions[newest], newest)
            if check_digests:
                _check_digests(versions[newest])
            return opened
        except (exceptions.InvalidValue, FileNotFoundError):
            # A process that writes the next version removes this one.
            if max(run_files.gallery_versions(folder), default=None) == newest:
                raise


def _open_version(path: epath.Path, version: int) -> Gallery:
    """Opens a version of a gallery, as `open_gallery`."""
    record = files.read_json(path / _RECORD, {}, _REMEDY)
    with files.readable(path / _RECORD, _REMEDY):
        exceptions.require(
            record["format"] == _FORMAT,
            f"{path} must be a gallery of format {_FORMAT}. {_REMEDY}",
            record["format"],
        )
        for name, digest in dict(record["files"]).items():
            _check_size(path / name, digest["bytes"])
        ids = tuple(files.read_json(path / _IDS, [], _REMEDY))
        with files.readable(path, _REMEDY):
            arrays = {
                name: _read_array(path, name, len(ids)) for name in _ARRAYS
            }
        index = record.get("index")
        fields = dict(
            **arrays,
            class_names=tuple(record["class_names"]),
            ids=ids,
            made_of=dict(record["made_of"]),
            threshold=record["threshold"] and Threshold(**record["threshold"]),
            version=version,
            is_approximate=index is not None,
            index=approximate.Index(os.fspath(path / _INDEX), **index)
            if index
            else None,
        )
    try:
        return Gallery(**fields)
    except exceptions.InvalidValue as error:
        raise _damaged(path, error) from error


def _read_array(
    directory: epath.Path, name: str, num_rows: int
) -> npt.NDArray[np.number]:
    """Reads an array of a version; local representations stay on the disk."""
    path = directory / f"{name}.npy"
    # NumPy cannot map an array of no rows.
    if name == "representations" and num_rows and leftovers.is_local(path):
        return np.load(path, mmap_mode="r")
    with path.open("rb") as file:
        return np.load(file)


def open_named(
    folder: epath.Path, name: str, check_digests: bool = False
) -> Gallery:
    """Opens a gallery of a folder, `galleries` of a run, by its name.

    Args:
      folder: of the galleries.
      name: of the gallery.
      check_digests: as of `open_gallery`.

    Raises:
      ValueError: there is none of this name, or as `open_gallery`.
    """
    names = [path.name for path in files.children(folder) if exists(path)]
    exceptions.require(
        name in names,
        f"the gallery must be one of {folder.parent}, which has "
        f"{', '.join(names) or 'none'}",
        name,
    )
    return open_gallery(folder / name, check_digests)


def _check_digests(version: epath.Path) -> None:
    """Raises ValueError where a file of a version is not as it was written.

    FileNotFoundError where the version was removed meanwhile.
    """
    record = files.read_json(version / _RECORD, {}, _REMEDY)
    with files.readable(version / _RECORD, _REMEDY):
        digests = dict(record["files"])
    for name, digest in digests.items():
        if files.digest(version / name) != digest:
            raise _damaged(version / name, "it differs")


def check_made_of(
    gallery: str,
    made_of: origins.Identity,
    checkpoint: origins.Identity,
    remedy: str = f"{_ANEW} encodes the examples anew",
) -> None:
    """Raises ValueError where a gallery is of another checkpoint."""
    if made_of != checkpoint:
        raise exceptions.InvalidValue(
            f"{gallery} must be of "
            f"{origins.describe(checkpoint, made_of)}, the checkpoint of the "
            f"model, got that of {origins.describe(made_of, checkpoint)}: "
            f"{remedy}"
        )


def quantized(
    representations: npt.NDArray[np.number], dtype: str
) -> npt.NDArray[np.number]:
    """Representations [N, dim] in another dtype; int8 keeps the direction.

    Each row of int8 has its own scale, which a cosine does not need: its
    largest number is 127 or -127.
    """
    if representations.dtype == dtype:
        return representations
    quantized_rows = np.empty(representations.shape, dtype)
    for part in measures.neighbors.chunks(len(representations)):
        rows = representations[part].astype(np.float32)
        if dtype == "int8":
            largest = np.abs(rows).max(axis=1, keepdims=True)
            scales = _LARGEST_INT8 / np.where(largest > 0, largest, 1)
            rows = np.rint(rows * scales)
        quantized_rows[part] = rows
    return quantized_rows


def _check_size(path: epath.Path, size: int) -> None:
    length = files.state(path)[0] if path.exists() else None
    if length != size:
        damage = "it is missing"
        if length is not None:
            damage = f"it has {length:,} of {size:,} bytes"
        raise _damaged(path, damage)


def _damaged(path: epath.Path, damage: object) -> exceptions.InvalidValue:
    return exceptions.InvalidValue(
        f"{path} must be as it was written, but {damage}. {_REMEDY}"
    )


def labels_by_name(names: Iterable[str]) -> dict[str, int]:
    """The labels of classes, numbered in the order of the names."""
    distinct = dict.fromkeys(names)
    return {name: label for label, name in enumerate(distinct)}


def first_duplicate(names: Sequence[str]) -> str | None:
    """The first name that repeats an earlier name; None for no such name."""
    counted = set()
    return next((n for n in names if n in counted or counted.add(n)), None)
