"""What a client finds: images, texts, and exports as they were written."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable

from etils import epath

from supcon_tf import exceptions, files, image_names

# In which an export lists its files.
_RECORD = "assets.extra/metadata.json"


def find_images(places: Iterable[str | os.PathLike[str]]) -> list[pathlib.Path]:
    """Image files: those that are named, and those in named folders.

    Pictures that a model will not read, such as .webp, are among them: whoever
    asks about a folder gets an answer, or a reason, for each.

    Args:
      places: files, whatever their names, and folders, which are searched with
        all folders below, hidden ones left out, for the names of pictures.

    Returns:
      The files in the order of the places, in a folder by their paths, each
      once.

    Raises:
      ValueError: there is no place, or a folder has no images.
      FileNotFoundError: a place does not exist.
    """
    images = {}
    for place in map(pathlib.Path, places):
        named = [place]
        if place.is_dir():
            files_there = image_names.list_tree(place)
            pictures = filter(image_names.is_picture, sum(files_there, []))
            named = [pathlib.Path(file) for file in sorted(pictures)]
            if not named:
                raise exceptions.InvalidValue(
                    "`images` must be files or folders of images, got "
                    f"{place}, which has no {', '.join(image_names.SUFFIXES)}"
                )
        elif not place.exists():
            raise exceptions.NotFound(f"no image or folder {place}")
        images |= {os.path.normpath(file): file for file in named}
    exceptions.require(images, "`images` must be files or folders", "none")
    return list(images.values())


class Text(str):
    """A text that is asked about, as a file may be."""

    def read_bytes(self) -> bytes:
        """What is sent."""
        return self.encode()


def find_texts(
    texts: Iterable[str], places: Iterable[str | os.PathLike[str]]
) -> list[Text]:
    """Texts: those that are given, and the lines of files that are not empty.

    Raises:
      ValueError: there is none, or a file is not UTF-8; it names the line.
      FileNotFoundError: there is no such file.
    """
    found = [Text(text) for text in texts if text.strip()]
    for place in map(epath.Path, places):
        if not place.exists():
            raise exceptions.NotFound(f"no file {place}")
        exceptions.require(
            files.is_regular(place),
            "--text_files must be regular files",
            f"{place}, a folder, a pipe or a device",
        )
        found += [Text(line) for _, line in files.read_lines(place)]
    exceptions.require(found, "--text must not be empty", "none")
    return found


def find_export(
    directory: str | os.PathLike[str], version: int | None = None
) -> epath.Path:
    """Finds a SavedModel.

    Args:
      directory: the SavedModel itself, or the directory of its versions; local
        or gs://.
      version: which of them; None takes the newest, or `directory` itself.

    Raises:
      ValueError: there is none.
    """
    directory = epath.Path(directory)
    if version is None and (directory / "saved_model.pb").exists():
        return directory
    versions = {
        int(path.name): path
        for path in files.children(directory)
        if path.name.isdecimal() and (path / "saved_model.pb").exists()
    }
    wanted = max(versions, default=None) if version is None else version
    if wanted not in versions:
        asked = "an export" if version is None else f"version {version}"
        raise exceptions.InvalidValue(
            f"{directory} must hold {asked} of tools/export.py, but has "
            f"{', '.join(map(str, sorted(versions))) or 'none'}"
        )
    return versions[wanted]


def check_files(directory: epath.PathLike) -> None:
    """Checks that the files of an export are as they were written.

    A SavedModel without assets.extra/metadata.json has nothing to check.

    Raises:
      ValueError: a file is missing or differs; the message names the first.
    """
    directory = epath.Path(directory)
    damage = (directory / _RECORD).exists() and _damage(directory)
    if damage:
        raise exceptions.InvalidValue(
            f"{directory} must be as it was exported, but {damage}"
        )


def _damage(directory: epath.Path) -> str | None:
    try:
        listed = dict(json.loads((directory / _RECORD).read_bytes())["files"])
    except (ValueError, TypeError, KeyError):
        return f"{_RECORD} lists no files"
    for name, digest in listed.items():
        if not (directory / name).exists():
            return f"{name} is missing"
        if files.digest(directory / name) != digest:
            return f"{name} differs"
    return None
