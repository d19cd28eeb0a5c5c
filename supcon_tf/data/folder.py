"""Image folders: one sub-folder of JPEG and PNG files per class."""

from __future__ import annotations

import os

import numpy as np

from supcon_tf import exceptions
from supcon_tf.data import image_files, sources

_TEST_FOLDERS = ("test", "val")  # The first with classes is the test split.
_HINT = "; without train/ and test/, another `split_seed` splits otherwise"


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
        os.path.isdir(data_dir), "`data_dir` must be a folder", data_dir
    )
    class_names, ids, labels, ignored = _list_split(
        data_dir, split, test_fraction, split_seed
    )
    return image_files.make_source(
        "folder",
        split,
        class_names,
        data_dir,
        ids.tolist(),
        labels,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        ignored=ignored,
        hint=_HINT,
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
    is_own = image_files.is_test(ids, test_fraction, split_seed) == (
        split == "test"
    )
    return class_names, ids[is_own], labels[is_own], ignored


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
        files = [n for n in names if n.lower().endswith(image_files.EXTENSIONS)]
        others = [n for n in names if n not in set(files)]
        if not files:
            raise exceptions.InvalidValue(
                f"class folder `{class_folder}` must hold at least one "
                f"{' '.join(image_files.EXTENSIONS)} image, got none in {path}"
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
