"""Fonts of figures for names from data: matplotlib's own has no Chinese."""

from __future__ import annotations

import contextlib
import functools
import sys
import unicodedata
import warnings
from collections.abc import Iterable

import matplotlib
from matplotlib import font_manager, ft2font

_SHOWN = 20  # characters in the line on those that no font has
_said: set[str] = set()  # those that were in such a line


def families(texts: Iterable[str]) -> list[str]:
    """Font families that draw `texts`: matplotlib's, then others for the rest.

    The others are as few of the installed ones as have the characters. Those
    that none has are boxes; one line on stderr says so once, and which package
    of Debian has them.

    Returns:
      The `family` of `matplotlib.font_manager.FontProperties`.
    """
    own = list(matplotlib.rcParams["font.family"])
    missing = frozenset(x for x in "".join(texts) if x.isprintable())
    for family in own:
        properties = font_manager.FontProperties(family=[family])
        path = font_manager.fontManager.findfont(properties)
        missing -= _drawn(path, missing)
    return [*own, *_others(missing)] if missing else own


@functools.cache
def _others(missing: frozenset[str]) -> list[str]:
    """The fewest installed families for `missing`; says what none has."""
    manager = font_manager.fontManager
    # Matplotlib keeps its list in a file: fonts installed later are not in it.
    known = {font.fname for font in manager.ttflist}
    for path in sorted({*font_manager.findSystemFonts()} - known):
        with contextlib.suppress(OSError, RuntimeError):  # not for matplotlib
            manager.addfont(path)
    drawn = {
        font.name: _drawn(font.fname, missing)
        for font in sorted(manager.ttflist, key=lambda font: font.name)
        if font.style == "normal" and "LastResort" not in font.fname
    }
    chosen = []
    while drawn and missing:
        best = max(drawn, key=lambda name: len(drawn[name] & missing))
        if not drawn[best] & missing:
            break
        chosen.append(best)
        missing -= drawn[best]
    if missing - _said:
        _say_missing(missing - _said)
    return chosen


def _drawn(path: str, characters: frozenset[str]) -> frozenset[str]:
    """Those of the characters that a font file has."""
    try:
        has = ft2font.FT2Font(path).get_charmap()
    except (OSError, RuntimeError):  # removed since, or not for matplotlib
        return frozenset()
    return frozenset(x for x in characters if ord(x) in has)


def _say_missing(characters: frozenset[str]) -> None:
    """One line for all of them, instead of a warning for each."""
    warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
    _said.update(characters)
    shown = "".join(sorted(characters)[:_SHOWN])
    if len(characters) > _SHOWN:
        shown += f"... ({len(characters)} characters)"
    wide = {x for x in characters if unicodedata.east_asian_width(x) in "FW"}
    emoji = {x for x in wide if unicodedata.category(x) == "So"}
    packages = {
        "fonts-noto-cjk" if x in wide - emoji else "fonts-noto-core"
        for x in characters
    }
    print(
        f"fonts        no installed font has {shown}: boxes in figures; "
        f"apt-get install {' '.join(sorted(packages))}",
        file=sys.stderr,
        flush=True,
    )
