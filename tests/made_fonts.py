"""Fonts made here, and a system that has no others."""

import contextlib
import pathlib
from collections.abc import Iterator
from unittest import mock

import matplotlib
from fontTools import ttLib
from matplotlib import font_manager

from supcon_tf import fonts

_OWN = pathlib.Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"


def make_font(path: pathlib.Path, name: str, characters: str) -> str:
    """DejaVu Sans by another name, whose A is each of the characters too."""
    made = ttLib.TTFont(_OWN)
    for table in made["cmap"].tables:
        if table.isUnicode():
            table.cmap |= {ord(x): "A" for x in characters}
    for record in made["name"].names:
        if record.nameID in (1, 4, 16):  # family, full name, family again
            record.string = name
    made.save(path)
    return str(path)


@contextlib.contextmanager
def only_fonts(*files: str) -> Iterator[None]:
    """A system with matplotlib's own font, and those of some files."""
    manager = font_manager.fontManager
    own = [font for font in manager.ttflist if font.fname == str(_OWN)]
    with (
        mock.patch.object(manager, "ttflist", own),
        mock.patch.object(font_manager, "findSystemFonts", lambda: files),
    ):
        _forget()
        yield
    _forget()


def _forget() -> None:
    """What was found among other fonts."""
    fonts._installed.cache_clear()
    font_manager.fontManager._findfont_cached.cache_clear()
