"""SavedModels that take image files and need nothing else to run.

Signatures, of N >= 1 images:

  serving_default: `image_bytes` [N] string, the bytes of JPEG or PNG
    files (not base64), to `probabilities` [N, classes] float32,
    `class_names` [N, classes] string in the same order, `predicted_class`
    [N] string, `top_classes` [N, k] string, most probable first, and
    `top_probabilities` [N, k] float32.
  predict_images, predict_images_float: `images` [N, height, width, 3]
    uint8, or float32 in 0..255, rounded to nearest, to the same.
  represent, represent_images, represent_images_float: the same inputs to
    `representation` [N, dim] float32 of unit length.
  classify_by_neighbours: `image_bytes` to `similarities` [N, classes]
    float32, cosines to the prototypes, `class_names`, `predicted_class`,
    `top_classes` and `top_similarities`.

The first three need a classifier, the last prototypes. Decoding, crop
(`data.decode_central_view`) and normalisation are inside, and are those of
evaluation. What cannot be decoded fails its request with INVALID_ARGUMENT.
Class names are the asset `class_names.txt`, a line each. In assets.extra/
lie requests that warm the server up and an example request; see `requests`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from etils import epath

from supcon_tf import exceptions, files, models
from supcon_tf.serving import model, requests


def export_saved_model(
    encoder: models.Encoder,
    directory: str | os.PathLike[str],
    *,
    finish: Callable[[epath.Path], None] | None = None,
    **options: object,
) -> None:
    """Writes a SavedModel; the directory appears only when it is complete.

    The module says what its signatures take and return.

    Args:
      encoder: built encoder.
      directory: must not exist; TF Serving wants a number as its name.
      finish: adds files to the directory before it appears.
      **options: `image_size` and all else that `model.ServedModel` takes.

    Raises:
      ValueError: `directory` exists, the class names do not fit, or
        `max_pixels` refuses ordinary photographs.
    """
    directory = epath.Path(directory)
    exceptions.require(
        not directory.exists(), "`directory` must not exist", directory
    )
    served = model.ServedModel(encoder, **options)
    # TF Serving polls for numbers, so that it does not see a hidden name.
    with files.make_atomically(directory) as partial:
        served.save(partial)
        requests.write_requests(partial, served.image_size)
        if finish is not None:
            finish(partial)
    files.remove_unfinished(directory)
