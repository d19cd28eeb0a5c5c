"""Paths of a client: image files, files of texts, and exports."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Iterable

from etils import epath

from supcon_tf import exceptions, run_files
from supcon_tf.disk import files, image_names, rows

# The file in which an export lists its files.
_RECORD = run_files.EXPORT_RECORD


def find_images(paths: Iterable[str | os.PathLike[str]]) -> list[pathlib.Path]:
    """Image files: the files among the paths, and those in the folders.

    Pictures that a model will not read, such as .webp, are among them: each
    picture of a folder gets an answer, or the reason why it has none.

    Args:
      paths: files of any name, and folders, which are searched for names of
        pictures, with all their sub-folders but hidden ones.

    Returns:
      The files in the order of `paths`, in a folder sorted, each once.

    Raises:
      ValueError: `paths` is empty, or a folder has no images.
      FileNotFoundError: a path does not exist.
    """
    images = {}
    for path in map(pathlib.Path, paths):
        path_files = [path]
        if path.is_dir():
            tree = image_names.list_tree(path)
            pictures = filter(image_names.is_picture, sum(tree, []))
            path_files = [pathlib.Path(file) for file in sorted(pictures)]
            if not path_files:
                raise exceptions.InvalidValue(
                    "`images` must be files or folders of images, got "
                    f"{path}, which has no {', '.join(image_names.SUFFIXES)}"
                )
        elif not path.exists():
            raise exceptions.NotFound(f"no image or folder {path}")
        images |= {os.path.normpath(file): file for file in path_files}
    exceptions.require(images, "`images` must be files or folders", "none")
    return list(images.values())


class Text(str):
    """A text of a request, which is read as a file is."""

    def read_bytes(self) -> bytes:
        """The text in UTF-8."""
        return self.encode()


def find_texts(
    texts: Iterable[str], text_files: Iterable[str | os.PathLike[str]]
) -> list[Text]:
    """The texts, and the lines of the files, without empty ones.

    Raises:
      ValueError: there is no text, a file is a table, whose header and labels
        would be texts too, or a file is not UTF-8; names the line.
      FileNotFoundError: there is no such file.
    """
    all_texts = [Text(text) for text in texts if text.strip()]
    for file in map(epath.Path, text_files):
        if not file.exists():
            raise exceptions.NotFound(f"no file {file}")
        exceptions.require(
            files.is_regular(file),
            "--text_files must be regular files",
            f"{file}, a folder, a pipe or a device",
        )
        exceptions.require(
            file.suffix.lower() not in rows.SUFFIXES,
            "--text_files must have a text per line, and neither header nor "
            "labels: write the texts of a table into a .txt",
            file,
        )
        all_texts += [Text(line) for _, line in files.read_lines(file)]
    exceptions.require(all_texts, "--text must not be empty", "none")
    return all_texts


def find_export(
    directory: str | os.PathLike[str], version: int | None = None
) -> epath.Path:
    """Finds a SavedModel.

    Args:
      directory: the SavedModel itself, or the directory of its versions; local
        or gs://.
      version: its number; None takes the newest, or `directory` itself.

    Raises:
      ValueError: there is none.
    """
    directory = epath.Path(directory)
    if version is None and (directory / "saved_model.pb").exists():
        return directory
    versions = {
        number: path
        for number, path in files.numbered(directory).items()
        if (path / "saved_model.pb").exists()
    }
    chosen = max(versions, default=None) if version is None else version
    if chosen not in versions:
        noun = "an export" if version is None else f"version {version}"
        raise exceptions.InvalidValue(
            f"{directory} must hold {noun} of tools/export.py, but has "
            f"{', '.join(map(str, sorted(versions))) or 'none'}"
        )
    return versions[chosen]


def check_files(directory: epath.PathLike) -> None:
    """Checks the files of an export against the digests of its record.

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
        digests = dict(json.loads((directory / _RECORD).read_bytes())["files"])
        listed = {str(name): digest for name, digest in digests.items()}
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{_RECORD} lists no files"
    for name, digest in listed.items():
        # The record of somebody else may list a device that never ends.
        if not files.is_regular(directory / name):
            return f"{name} is missing"
        if files.digest(directory / name) != digest:
            return f"{name} differs"
    return None


def print_outdated(sentence: str) -> None:
    """Prints a note of a sentence on an outdated export, unless it is ""."""
    if sentence:
        note = f"{'note':<12} {sentence}; tools/export.py exports it"
        print(note, file=sys.stderr)
