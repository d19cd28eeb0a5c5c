"""Fonts of figures for names from data: matplotlib's own has no Chinese.

Matplotlib draws each character with the first family of a list that has it.
"""

from __future__ import annotations

import contextlib
import functools

import matplotlib
from matplotlib import font_manager

# Fonts of Linux (Debian's fonts-noto-cjk and fonts-noto-core), macOS and
# Windows, for scripts that DejaVu Sans lacks.
_FALLBACKS = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC"),
    *(
        f"Noto Sans {script}"
        for script in ("Thai", "Devanagari", "Bengali", "Tamil")
    ),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI"),
    "Arial Unicode MS",
)


def families() -> list[str]:
    """Font families for names of any script, for `family` of a text.

    Example:
      >>> from supcon_tf.display import fonts
      >>> fonts.families()[0]
      'sans-serif'
    """
    return [*matplotlib.rcParams["font.family"], *_installed()]


@functools.cache
def _installed() -> list[str]:
    """The fallbacks that are installed."""
    manager = font_manager.fontManager
    # Matplotlib caches its list in a file, without fonts installed later.
    registered = {font.fname for font in manager.ttflist}
    for path in sorted({*font_manager.findSystemFonts()} - registered):
        with contextlib.suppress(OSError, RuntimeError):  # no readable font
            manager.addfont(path)
    names = {font.name for font in manager.ttflist}
    return [name for name in _FALLBACKS if name in names]
