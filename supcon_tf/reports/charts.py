"""Figures and images as the page has them: inline SVG, PNG in an address."""

from __future__ import annotations

import base64
import contextlib
import io
import re
from collections.abc import Iterator

import markupsafe
import matplotlib
import numpy as np
from matplotlib import axes, figure, image

# Pixels of the narrowest page, a phone of 390 less its margins: there a figure
# is drawn as it is, elsewhere it is enlarged.
WIDTH = 340
HEIGHT = 195
INK = "#3c434b"
SOFT = "#8a929c"
_STYLE = {
    "svg.fonttype": "none",  # the browser's fonts, which know all scripts
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e7eaee",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
}


@contextlib.contextmanager
def drawing(
    height: int = HEIGHT, **subplots: object
) -> Iterator[tuple[figure.Figure, axes.Axes]]:
    """A figure of WIDTH x `height` pixels and its axes, in the page's style.

    An SVG has 72 dots per inch, so a point is a pixel of the page. `subplots`
    are those of `Figure.subplots`, which then gives an array of axes.
    """
    size = WIDTH / 72, height / 72
    with matplotlib.rc_context(_STYLE):
        drawn = figure.Figure(figsize=size, layout="constrained")
        yield drawn, drawn.subplots(**subplots)


def to_svg(drawn: figure.Figure, label: str) -> markupsafe.Markup:
    """An <svg> element without fonts, metadata, or ids that nothing uses.

    Args:
      drawn: a figure of `drawing`, still inside it.
      label: what a reader who does not see it is told, plain text.
    """
    buffer = io.StringIO()
    # Ids of their own, and the same for the same page: hashes with this salt.
    matplotlib.rcParams["svg.hashsalt"] = label
    drawn.savefig(buffer, format="svg", transparent=True)
    text = buffer.getvalue()
    content = text[text.index(">", text.index("<svg")) + 1 :]
    for part in ("<metadata>.*?</metadata>", "<style.*?</style>", "<!--.*?-->"):
        content = re.sub(part, "", content, flags=re.S)
    # A font shorthand or a family of matplotlib's would overrule the page's.
    content = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", content)
    content = re.sub(r"font-family: [^;\"]*;?", "", content)
    # Hundredths of a pixel; what stands between the tags is text.
    content = re.sub(
        "<[^>]*>", lambda x: re.sub(r"(\d+\.\d\d)\d+", r"\1", x[0]), content
    )
    content = content.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', content))
    content = re.sub(
        r' id="([^"]*)"', lambda x: x[0] if x[1] in used else "", content
    )
    content = re.sub(r">\s+<", "><", content).strip()
    width, height = drawn.get_size_inches() * 72
    # The only text that is HTML without being of a template.
    return markupsafe.Markup(
        f'<svg class="figure" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-label="{markupsafe.escape(label)}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
        f"{content}"
    )


def data_uri(pixels: np.ndarray) -> str:
    """[height, width, 3] uint8 as a `data:` address of a PNG."""
    buffer = io.BytesIO()
    image.imsave(buffer, np.ascontiguousarray(pixels), format="png")
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/png;base64,{encoded}"
