"""Which files are images by their names: the same for every tool.

Without TensorFlow, which a client of a server does not need.
"""

from __future__ import annotations

import os
import unicodedata
from typing import NamedTuple

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png")
# Of pictures that are neither JPEG nor PNG, and so are not read.
_UNREAD = (".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif")
# Folders that systems put beside the files of people.
_OF_SYSTEMS = ("__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found")


class Listing(NamedTuple):
    """What a folder holds, hidden files and folders left out.

    Attributes:
      folders: names of the folders in it.
      images: names of the files that are images by their names.
      others: names of the other files.
      special: the images that are no regular files, which may be read without
        end: pipes, devices, links to them, and to nothing.
    """

    folders: list[str]
    images: list[str]
    others: list[str]
    special: list[str]


def list_folder(path: str | os.PathLike[str]) -> Listing:
    """Lists a folder once; links are what they lead to; names are sorted."""
    listing = Listing([], [], [], [])
    with os.scandir(path) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                listing.folders.append(entry.name)
            elif is_image(entry.name):
                listing.images.append(entry.name)
                if not entry.is_file():  # what a scan knows already
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
    """Whether a name ends as those of JPEG and PNG files do, in any case."""
    return name.endswith(SUFFIXES) or name.lower().endswith(SUFFIXES)


def is_picture(name: str) -> bool:
    """Whether a name ends as those of pictures do, of any format."""
    return is_image(name) or name.lower().endswith(_UNREAD)


def is_hidden(name: str) -> bool:
    """Whether people do not see a file, or did not put it there."""
    return name.startswith(".") or name in _OF_SYSTEMS


def readable(name: str) -> str:
    r"""A name as text: bytes that are no UTF-8 are written as \xNN.

    Python's own text of such a name can neither be printed nor saved. Letters
    with accents, which systems spell in two ways, become one character.
    """
    if name.isascii():
        return name
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return unicodedata.normalize("NFC", text)
