"""Images of a report: PNG data URIs with their words."""

from __future__ import annotations

import base64
import io

import numpy as np
from matplotlib import image

from supcon_tf.reports import markup

# Larger images are photographs: enlarged smoothly, not pixel by pixel.
_PHOTO = 64  # pixels


def data_uri(pixels: np.ndarray) -> str:
    """[height, width, 3] uint8 as a `data:` address of a PNG."""
    buffer = io.BytesIO()
    image.imsave(buffer, np.ascontiguousarray(pixels), format="png")
    return "data:image/png;base64," + base64.b64encode(
        buffer.getvalue()
    ).decode("ascii")


def pictured(
    pixels: np.ndarray, alternative: str, words: str = "", key: str = ""
) -> str:
    """An image with words under it.

    Args:
      pixels: [height, width, 3] uint8.
      alternative: what the image is, plain text.
      words: the caption, HTML; "" for none.
      key: further class names, such as "wrong".
    """
    height, width = pixels.shape[:2]
    if max(height, width) > _PHOTO:
        key += " photo"
    caption = f"<figcaption>{words}</figcaption>" if words else ""
    return (
        f'<figure class="pictured {key}"><img src="{data_uri(pixels)}" '
        f'width="{width}" height="{height}" '
        f'alt="{markup.escape(alternative)}">{caption}</figure>'
    )
