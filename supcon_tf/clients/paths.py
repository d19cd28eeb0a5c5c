"""What a client finds on disk: images, and exports."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable

from etils import epath

from supcon_tf import exceptions

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


def find_images(
    places: Iterable[str | os.PathLike[str]],
) -> list[pathlib.Path]:
    """Image files: those that are named, and those in named folders.

    Args:
      places: files, whatever their names, and folders, which are searched with
        all folders below for names that end in one of IMAGE_SUFFIXES.

    Returns:
      The files in the order of the places, in a folder by their paths, each
      once.

    Raises:
      ValueError: there is no place, or a folder has no images.
      FileNotFoundError: a place does not exist.
    """
    found = {}
    for place in map(pathlib.Path, places):
        if place.is_dir():
            files = _images_in(place)
        elif place.exists():
            files = [place]
        else:
            raise exceptions.NotFound(f"no image or folder {place}")
        found |= {os.path.normpath(file): file for file in files}
    if not found:
        raise exceptions.InvalidValue(
            "`images` must be files or folders, got none"
        )
    return list(found.values())


def _images_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The image files in a folder and below it."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file()
    )
    if not files:
        raise exceptions.InvalidValue(
            f"`images` must be files or folders of images, got {folder}, "
            f"which has no {', '.join(IMAGE_SUFFIXES)}"
        )
    return files


def find_export(
    directory: str | os.PathLike[str], version: int | None = None
) -> epath.Path:
    """A SavedModel.

    Args:
      directory: the SavedModel, or of versions of it; local or gs://.
      version: which of them; None takes the newest, or the SavedModel.

    Raises:
      ValueError: there is none.
    """
    directory = epath.Path(directory)
    if version is None and _is_saved_model(directory):
        return directory
    versions = {
        int(child.name): child
        for child in (directory.iterdir() if directory.is_dir() else ())
        if child.name.isdecimal() and _is_saved_model(child)
    }
    if version is None and versions:
        version = max(versions)
    if version not in versions:
        asked = "an export" if version is None else f"version {version}"
        raise exceptions.InvalidValue(
            f"{directory} must hold {asked} of tools/export.py, but has "
            f"{', '.join(map(str, sorted(versions))) or 'none'}"
        )
    return versions[version]


def _is_saved_model(directory: epath.Path) -> bool:
    """Whether TF Serving would load the directory."""
    return (directory / "saved_model.pb").exists()
