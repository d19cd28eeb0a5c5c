"""Small fonts, and a system without other fonts."""

import contextlib
import pathlib
from collections.abc import Iterator
from unittest import mock

import matplotlib
from fontTools import ttLib
from matplotlib import font_manager

from supcon_tf.display import fonts

_DEFAULT_FONT = (
    pathlib.Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
)


def make_font(path: pathlib.Path, name: str, characters: str) -> str:
    """DejaVu Sans by another name, whose A is each of the characters too."""
    font = ttLib.TTFont(_DEFAULT_FONT)
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap |= {ord(character): "A" for character in characters}
    for record in font["name"].names:
        if record.nameID in (1, 4, 16):  # family, full name, family again
            record.string = name
    font.save(path)
    return str(path)


@contextlib.contextmanager
def only_fonts(*files: str) -> Iterator[None]:
    """A system with the default font of matplotlib and fonts of files."""
    manager = font_manager.fontManager
    default_fonts = [
        font for font in manager.ttflist if font.fname == str(_DEFAULT_FONT)
    ]
    with (
        mock.patch.object(manager, "ttflist", default_fonts),
        mock.patch.object(font_manager, "findSystemFonts", lambda: files),
    ):
        _forget()
        yield
    _forget()


def _forget() -> None:
    """Clears the caches of fonts."""
    fonts._installed.cache_clear()
    font_manager.fontManager._findfont_cached.cache_clear()
