"""Image folders: one sub-folder of JPEG and PNG files per class."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from supcon_tf import exceptions
from supcon_tf.data import image_files, partition, progress, sources
from supcon_tf.disk import flagfiles, image_names

_HINT = "; of a class of one image, that one is for training"

# The folders of each class: several where systems spell its name in two ways.
_Folders = dict[str, list[str]]


def load_folder(
    data_dir: str,
    split: str,
    test_fraction: float,
    split_seed: int,
    split_by: str,
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
        os.path.isdir(data_dir), "`data_dir` must be a folder", data_dir
    )
    splits, folder = _split_folders(data_dir), ""
    exceptions.require(
        split != "validation" or _has_validation(data_dir, splits),
        "`data_dir` must hold classes of train, test and val for the split "
        "validation",
        f"{', '.join(splits.values()) or 'none of them'} in {data_dir}",
    )
    exceptions.require(
        not splits or split_by == "image",
        "`split_by` must be image for a folder that has splits",
        f"{split_by} for {', '.join(splits.values())} in {data_dir}",
    )
    if splits:
        folder, class_names = _split_classes(data_dir, split, splits)
    else:
        class_names = list(_class_folders(data_dir, ""))
        exceptions.require(
            class_names,
            "`data_dir` must hold one sub-folder per class, or "
            f"{partition.NAMES} with such sub-folders",
            f"no folder in {data_dir}",
        )
    if split_by == "class":
        is_test_class = partition.is_test_class(
            class_names, test_fraction, split_seed, data_dir
        )
        chosen = np.flatnonzero(is_test_class == (split == "test"))
        class_names = [class_names[label] for label in chosen]
    may_be_empty = bool(splits) and split != "train"
    paths, labels, ignored = _list_files(
        data_dir, folder, class_names, may_be_empty, check_images
    )
    # Images without a class would be missed in silence.
    loose = image_names.list_folder(os.path.join(data_dir, folder)).images
    ignored = [os.path.join(folder, name) for name in loose] + ignored
    note = ""
    if not splits and split_by == "image":
        rows, note = _rows_by_hash(
            paths, labels, split, test_fraction, split_seed
        )
        paths, labels = [paths[row] for row in rows], labels[rows]
    return image_files.make_source(
        "folder",
        split,
        class_names,
        data_dir,
        paths,
        labels,
        check_images=check_images,
        skip_bad_images=skip_bad_images,
        ignored=ignored,
        hint="" if splits else _HINT,
        note=note,
    )


def _rows_by_hash(
    paths: list[str],
    labels: np.ndarray,
    split: str,
    test_fraction: float,
    split_seed: int,
) -> tuple[np.ndarray, str]:
    """The rows of a split that the hashes of the names decide, and a note."""
    is_test = partition.is_test(paths, labels, test_fraction, split_seed)
    note = partition.describe_uneven(
        paths, is_test, test_fraction, "sort them into train/ and test/"
    )
    return np.flatnonzero(is_test == (split == "test")), note


def load_all_images(
    data_dir: str, skip_bad_images: bool = False
) -> sources.Source:
    """Loads every image of a folder, also those without a class.

    A sub-folder is a class, of one image or more. Images beside the sub-folders
    have no class, and the label -1.

    Returns:
      The source, like that of `load_folder`; images without a class are last.

    Raises:
      ValueError: the folder, a class or a file is not as described there, the
        folder has splits, or no image.
    """
    exceptions.require(
        os.path.isdir(data_dir), "`data_dir` must be a folder", data_dir
    )
    splits = sorted(_split_folders(data_dir).values())
    exceptions.require(
        not splits,
        "`data_dir` must be a folder of classes, not of splits: name one of "
        "its folders",
        f"{', '.join(splits)} in {data_dir}",
    )
    class_names = list(_class_folders(data_dir, ""))
    paths, labels, ignored = _list_files(data_dir, "", class_names, True, True)
    listing = image_names.list_folder(data_dir)
    exceptions.require(
        paths or listing.images,
        "`data_dir` must hold images, or one sub-folder of images per class",
        f"none in {data_dir}",
    )
    paths += listing.images
    labels = np.append(labels, np.full(len(listing.images), -1))
    return image_files.make_source(
        "folder",
        "test",  # unlike training images, a class may have none
        class_names,
        data_dir,
        paths,
        labels,
        check_images=True,
        skip_bad_images=skip_bad_images,
        ignored=ignored,
    )


def has_splits(data_dir: str) -> bool:
    """Whether there are folders of splits above the classes."""
    return bool(_split_folders(data_dir))


def has_validation(data_dir: str) -> bool:
    """Whether there is a folder val that is not the test split."""
    return os.path.isdir(data_dir) and _has_validation(
        data_dir, _split_folders(data_dir)
    )


def _has_validation(data_dir: str, splits: dict[str, str]) -> bool:
    # The test images of a competition have no classes.
    are_there = {"train", "test", "val"} <= {*splits}
    return are_there and bool(_class_folders(data_dir, splits["test"]))


def _split_folders(data_dir: str) -> dict[str, str]:
    """The folders of the splits train, test and val, by split; {} for none.

    A single folder `train` without sub-folders is a class. Two such folders are
    splits even if they hold files only: as classes, they would train a model to
    tell them apart.
    """
    folders: dict[str, str] = {}
    for name in image_names.list_folder(data_dir).folders:
        if (split := partition.split_of(name)) is None:
            continue
        exceptions.require(
            split not in folders,
            f"`data_dir` must hold one folder of the split {split}",
            f"{folders.get(split)} and {name} in {data_dir}",
        )
        folders[split] = name
    has_classes = any(
        image_names.list_folder(os.path.join(data_dir, name)).folders
        for name in folders.values()
    )
    return folders if len(folders) > 1 or has_classes else {}


def _split_classes(
    data_dir: str, split: str, folders: dict[str, str]
) -> tuple[str, list[str]]:
    """The folder of a split, and its class names.

    Where there are no classes of test, val is the test split.
    """
    classes = {
        name: _class_folders(data_dir, folder)
        for name, folder in folders.items()
    }
    test_name = "test" if classes.get("test") else "val"
    if split == "validation":
        test_name = "val"
    counts = {folders[name]: len(classes[name]) for name in folders}
    exceptions.require(
        classes.get("train") and classes.get(test_name),
        f"`data_dir` must hold {partition.NAMES}, each with one sub-folder per "
        "class",
        f"{counts} classes in {data_dir}",
    )
    class_names = partition.class_names(
        list(classes["train"]),
        _with_images(data_dir, classes[test_name]),
        split,
        data_dir,
    )
    return folders["train" if split == "train" else test_name], class_names


def _with_images(data_dir: str, classes: _Folders) -> list[str]:
    """The classes with images: the test split of a rare class may be empty."""
    return [
        name
        for name, folders in classes.items()
        if any(
            image_names.list_folder(os.path.join(data_dir, folder)).images
            for folder in folders
        )
    ]


def _class_folders(data_dir: str, folder: str) -> _Folders:
    """The classes below a folder, sorted, and their folders."""
    classes: _Folders = {}
    names = image_names.list_folder(os.path.join(data_dir, folder)).folders
    for name in names:
        if _holds_runs(os.path.join(data_dir, folder, name)):
            continue
        class_name = image_names.readable(name)
        classes.setdefault(class_name, []).append(os.path.join(folder, name))
    return dict(sorted(classes.items()))


def _holds_runs(path: str) -> bool:
    """Whether a folder is a run directory, or has run directories, no images.

    A training in the folder of the images puts runs beside the classes.
    """
    if os.path.exists(os.path.join(path, flagfiles.RECORD)):
        return True
    listing = image_names.list_folder(path)
    return not listing.images and any(
        os.path.exists(os.path.join(path, name, flagfiles.RECORD))
        for name in listing.folders
    )


def _list_files(
    data_dir: str,
    folder: str,
    class_names: Sequence[str],
    may_be_empty: bool,
    check_images: bool,
) -> tuple[list[str], np.ndarray, list[str]]:
    """Lists the images of classes in the folder of a split.

    Returns:
      Paths relative to `data_dir`, sorted by class and name, their labels, and
      the paths of the files that are no images by their names.
    """
    folders = _class_folders(data_dir, folder)
    paths, labels, ignored = [], [], []
    for label, class_name in progress.track(
        enumerate(class_names), len(class_names), "listing classes"
    ):
        start, others = len(paths), []
        for class_folder in folders.get(class_name, ()):
            path = os.path.join(data_dir, class_folder)
            listing = image_names.list_folder(path)
            exceptions.require(
                not listing.folders,
                f"class folder `{image_names.readable(class_folder)}` must "
                "hold image files only, not folders of classes or of other "
                f"splits than {partition.NAMES}",
                f"the folder `{(listing.folders or [''])[0]}` in {path}",
            )
            # Nobody may open pipes and devices; the inspection finds them.
            exceptions.require(
                check_images or not listing.special,
                "`data_dir` must hold only regular files",
                f"{exceptions.listed(listing.special)} in {path}",
            )
            prefix = os.path.join(class_folder, "")
            paths += [prefix + name for name in listing.images]
            others += [prefix + name for name in listing.others]
        labels += [label] * (len(paths) - start)
        ignored += others
        if len(paths) > start or may_be_empty:
            continue
        name = image_names.readable(os.path.join(folder, class_name))
        raise exceptions.InvalidValue(
            f"class folder `{name}` must hold at least one "
            f"{' '.join(image_names.SUFFIXES)} image, got none in {data_dir}"
            + (f" but {os.path.basename(others[0])}" if others else "")
        )
    return paths, np.array(labels, np.int64), ignored
