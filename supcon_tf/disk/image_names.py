"""Image files by their names, and lists of folders, equal for every tool.

A client of a server needs this module and no TensorFlow.
"""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png")
# Suffixes of pictures that are neither JPEG nor PNG, and are not read.
_UNREAD_SUFFIXES = tuple(".webp .gif .bmp .tif .tiff .heic .heif .avif".split())
# Folders that operating systems create beside the files of users.
_SYSTEM_FOLDERS = ("__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found")


class Listing(NamedTuple):
    """The content of a folder, without hidden files and folders.

    Attributes:
      folders: names of the folders in it.
      images: names of the files that are images by their names.
      others: names of the other files.
      special: the images that are no regular files: pipes and devices, which
        may never end, links to them, and broken links.
    """

    folders: list[str]
    images: list[str]
    others: list[str]
    special: list[str]


def list_folder(path: str | os.PathLike[str]) -> Listing:
    """Lists a folder; links are followed; names are sorted."""
    listing = Listing([], [], [], [])
    with os.scandir(path) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                listing.folders.append(entry.name)
            elif is_image(entry.name):
                listing.images.append(entry.name)
                if not entry.is_file():  # known from the scan
                    listing.special.append(entry.name)
            else:
                listing.others.append(entry.name)
    for names in listing:
        names.sort()
    return listing


def list_tree(root: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """The images and the other files of a folder and of all below it.

    A folder that several links lead to is listed once.

    Returns:
      Paths of images, and of other files, sorted; each begins with `root`.
    """
    images, others, entered = [], [], set()
    pending = [os.fspath(root)]
    while pending:
        folder = pending.pop()
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in entered:
            continue
        entered.add((status.st_dev, status.st_ino))
        listing = list_folder(folder)
        for paths, names in (
            (pending, listing.folders),
            (images, listing.images),
            (others, listing.others),
        ):
            paths.extend(os.path.join(folder, name) for name in names)
    return sorted(images), sorted(others)


def is_image(name: str) -> bool:
    """Whether a name has a suffix of JPEG or PNG, in any case."""
    return name.endswith(SUFFIXES) or name.lower().endswith(SUFFIXES)


def is_picture(name: str) -> bool:
    """Whether a name has a suffix of a picture of any format."""
    return is_image(name) or name.lower().endswith(_UNREAD_SUFFIXES)


def is_hidden(name: str) -> bool:
    """Whether a file is hidden, or created by the operating system."""
    return name.startswith(".") or name in _SYSTEM_FOLDERS


def readable(name: str) -> str:
    r"""A name as text: bytes that are no UTF-8 are written as \xNN.

    Python's own text of such a name can neither be printed nor saved. Letters
    with accents, which systems spell in two ways, become one character.
    """
    if name.isascii():
        return name
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", text)
