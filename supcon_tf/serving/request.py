"""request.json: a request that works with curl as it is."""

from __future__ import annotations

import base64
import json

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from etils import epath

from supcon_tf import files
from supcon_tf.serving import metadata

FILE = f"{metadata.EXTRAS}/request.json"
_PHOTOGRAPH = (375, 500)  # height, width: the usual one of ImageNet
_REFERENCE_SIZE = 224  # the views of such photographs, pixels


def write_request(directory: epath.PathLike, image_size: int) -> None:
    """Writes assets.extra/request.json, the body of a REST request.

      curl -d @request.json http://localhost:8501/v1/models/NAME:predict

    One small JPEG file in the row format of TF Serving's REST interface, for
    `serving_default` or, without a classifier, `represent`.

    Args:
      directory: a SavedModel.
      image_size: side of the encoder's images in pixels.

    Raises:
      ValueError: `directory` is no SavedModel.
    """
    directory = epath.Path(directory)
    known = metadata.read_signatures(directory)
    name = next(n for n in ("serving_default", "represent") if n in known)
    contents = tf.io.encode_jpeg(photograph(image_size), quality=75).numpy()
    encoded = base64.b64encode(contents).decode()
    body = {
        "signature_name": name,
        "instances": [{"image_bytes": {"b64": encoded}}],
    }
    (directory / metadata.EXTRAS).mkdir(parents=True, exist_ok=True)
    files.write_atomically(directory / FILE, json.dumps(body) + "\n")


def photograph(image_size: int) -> npt.NDArray[np.uint8]:
    """An image to send: colours that run into each other, always the same.

    As large beside the encoder's images as photographs are: 375 x 500 pixels
    for 224.

    Args:
      image_size: side of the encoder's images in pixels.

    Returns:
      [height, width, 3] uint8.
    """
    height, width = photograph_size(image_size)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = (np.sin(9 * x + 4 * y), np.sin(5 * y - 7 * x), np.cos(8 * x * y))
    return np.rint(127.5 + 127.5 * np.stack(waves, axis=-1)).astype(np.uint8)


def photograph_size(image_size: int) -> tuple[int, int]:
    """Height and width of `photograph`, in pixels."""
    height, width = (
        -(-side * image_size // _REFERENCE_SIZE) for side in _PHOTOGRAPH
    )
    return height, width
