"""Image folders: one sub-folder of JPEG and PNG files per class."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.data import image_bytes, images, sources

EXTENSIONS = (".jpg", ".jpeg", ".png")
_TEST_FOLDERS = ("test", "val")  # The first with classes is the test split.
_SHOWN_PATHS = 5  # How many bad paths a message lists.


def load_folder(
    data_dir: str | None,
    split: str,
    test_fraction: float,
    split_seed: int,
    check_images: bool,
    skip_bad_images: bool,
) -> sources.Source:
    """Loads one split of an image folder; for the arguments see `loading.load`.

    Returns:
      The source. Its `read` returns encoded images, its `ids` are the paths
      relative to `data_dir`, sorted by class and name.

    Raises:
      ValueError: the folder, a class or a file is not as described there.
    """
    exceptions.require(
        data_dir is not None,
        "`data_dir` must be given for the dataset `folder`",
        None,
    )
    exceptions.require(
        check_images or not skip_bad_images,
        "`check_images` must be True for `skip_bad_images` to find the bad "
        "images",
        check_images,
    )
    exceptions.require(
        os.path.isdir(data_dir), "`data_dir` must be a folder", data_dir
    )
    class_names, ids, labels, ignored = _list_split(
        data_dir, split, test_fraction, split_seed
    )
    is_good, image_size = np.ones(len(ids), bool), None
    if check_images:
        is_good, image_size = _check_images(data_dir, ids)
    bad, ids, labels = ids[~is_good].tolist(), ids[is_good], labels[is_good]
    if not skip_bad_images:
        _refuse_bad_images(data_dir, bad, len(is_good))
    _check_classes(data_dir, split, class_names, labels)
    return sources.Source(
        name="folder",
        split=split,
        class_names=tuple(class_names),
        image_size=image_size,
        skipped=tuple(bad),
        ignored=ignored,
        ids=tuple(ids.tolist()),
        **sources.by_index(_paths(data_dir, ids), labels, tf.io.read_file),
    )


def _list_split(
    data_dir: str, split: str, test_fraction: float, split_seed: int
) -> tuple[list[str], np.ndarray, np.ndarray, tuple[str, ...]]:
    """The classes of a folder, and what `_list_files` says of a split."""
    class_names = _folders(data_dir)
    splits = {
        name: _folders(os.path.join(data_dir, name))
        for name in class_names
        if name in ("train", *_TEST_FOLDERS)
    }
    # A lone class may be called `train`. Two such names are splits even if they
    # hold files only: as classes, they would train a model to tell them apart.
    if len(splits) > 1 or any(splits.values()):
        class_names, folder = _given_split(data_dir, split, splits)
        return class_names, *_list_files(data_dir, folder, class_names)
    exceptions.require(
        class_names,
        "`data_dir` must hold one sub-folder per class, or `train` and `test` "
        "with such sub-folders",
        f"no folder in {data_dir}",
    )
    ids, labels, ignored = _list_files(data_dir, "", class_names)
    is_own = _is_test(ids, test_fraction, split_seed) == (split == "test")
    return class_names, ids[is_own], labels[is_own], ignored


def _paths(data_dir: str, ids: np.ndarray) -> tf.Tensor:
    """The files of examples, [examples] string."""
    paths = [os.path.join(data_dir, name) for name in ids]
    return tf.constant(paths, tf.string)


def _refuse_bad_images(data_dir: str, bad: list[str], total: int) -> None:
    """Says which files are not images and what to do."""
    shown = ", ".join(bad[:_SHOWN_PATHS])
    more = ", ..." if len(bad) > _SHOWN_PATHS else ""
    exceptions.require(
        not bad,
        f"`data_dir` must hold only readable {' '.join(EXTENSIONS)} images",
        f"{len(bad)} bad files of {total} in {data_dir}: {shown}{more}. Remove "
        "them, or leave them out with `skip_bad_images`",
    )


def _check_classes(
    data_dir: str, split: str, class_names: list[str], labels: np.ndarray
) -> None:
    """Raises ValueError for classes, or a split, that have no images left."""
    hint = "; without train/ and test/, another `split_seed` splits otherwise"
    counts = np.bincount(labels, minlength=len(class_names))
    for class_name, count in zip(class_names, counts, strict=True):
        exceptions.require(
            count > 0 or split == "test",
            f"class folder `{class_name}` must hold at least one readable "
            "image for training",
            f"none in {data_dir}{hint}",
        )
    exceptions.require(
        len(labels) > 0, f"the {split} split must hold images", f"0{hint}"
    )


def _given_split(
    data_dir: str, split: str, classes: dict[str, list[str]]
) -> tuple[list[str], str]:
    """The classes, and the folder of a split, of train/ and test/ or val/.

    `classes` are the sub-folders of each of these that there is.
    """
    test_folder = next((n for n in _TEST_FOLDERS if classes.get(n)), "")
    counts = {name: len(names) for name, names in classes.items()}
    exceptions.require(
        classes.get("train") and test_folder,
        "`data_dir` must hold `train` and `test` (or `val`), each with one "
        "sub-folder per class",
        f"{counts} classes in {data_dir}",
    )
    train_names, test_names = classes["train"], classes[test_folder]
    marked = [f"- {name}" for name in train_names if name not in test_names]
    marked += [f"+ {name}" for name in test_names if name not in train_names]
    exceptions.require(
        not marked,
        f"`train` and `{test_folder}` must hold the same classes",
        f"a difference (- only in train, + only in {test_folder}): "
        + ", ".join(marked),
    )
    return train_names, {"train": "train", "test": test_folder}[split]


def _is_test(ids: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which images are in the test split, by their own file names alone.

    Not by their class: an image that is moved to its right class stays in its
    split, and classes whose files are named alike are split alike.
    """
    exceptions.require(
        0 < fraction < 1, "`test_fraction` must be in (0, 1)", fraction
    )

    def share(path: str) -> float:
        text = f"{seed}/{os.path.basename(path)}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape"))
        return int.from_bytes(digest.digest()[:8], "big") / 2**64

    return np.array([share(path) < fraction for path in ids])


def _list_files(
    data_dir: str, folder: str, class_names: list[str]
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Lists the images: paths relative to data_dir, sorted, and labels.

    And what is no image by its name, hidden files left out.
    """
    ids, labels, ignored = [], [], []
    for label, class_name in enumerate(class_names):
        class_folder = os.path.join(folder, class_name)
        path = os.path.join(data_dir, class_folder)
        nested = _folders(path)
        if nested:
            raise exceptions.InvalidValue(
                f"class folder `{class_folder}` must hold image files only, "
                f"got the folder `{nested[0]}` in {path}"
            )
        names = sorted(n for n in os.listdir(path) if not n.startswith("."))
        files = [n for n in names if n.lower().endswith(EXTENSIONS)]
        others = [n for n in names if n not in set(files)]
        if not files:
            raise exceptions.InvalidValue(
                f"class folder `{class_folder}` must hold at least one "
                f"{' '.join(EXTENSIONS)} image, got none in {path}"
                + (f" but {others[0]}" if others else "")
            )
        ids.extend(os.path.join(class_folder, name) for name in files)
        labels.extend([label] * len(files))
        ignored.extend(os.path.join(class_folder, name) for name in others)
    return np.array(ids), np.array(labels), tuple(ignored)


def _folders(path: str) -> list[str]:
    """Returns the sorted names of the sub-folders that are not hidden."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir() and not entry.name.startswith(".")
        )


def _check_images(
    data_dir: str, ids: np.ndarray
) -> tuple[np.ndarray, int | None]:
    """Returns which files are images, and their side if all have the same."""
    checked = (
        tf.data.Dataset.from_tensor_slices(_paths(data_dir, ids))
        .enumerate()
        .map(_probe, num_parallel_calls=tf.data.AUTOTUNE)
        .ignore_errors()
        .batch(1024)
    )
    good = np.zeros(len(ids), bool)
    sides: set[int] = set()
    for indices, shapes in checked.as_numpy_iterator():
        good[indices] = True
        sides.update(np.unique(shapes[:, :2]).tolist())
    return good, sides.pop() if len(sides) == 1 else None


def _probe(index: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes one file; what is neither JPEG nor PNG is an error."""
    contents = tf.io.read_file(path)
    # `decode_trusted` takes what evaluation would refuse, whatever its name.
    contents = image_bytes.require(
        image_bytes.find_format(contents) < 2, contents, "neither"
    )
    return index, tf.shape(images.decode_trusted(contents))
