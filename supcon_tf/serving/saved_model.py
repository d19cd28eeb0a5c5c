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
import pathlib
import tempfile
from collections.abc import Callable, Sequence

import numpy.typing as npt
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, files, models
from supcon_tf.serving import model, requests


def export_saved_model(
    encoder: models.Encoder,
    directory: str | os.PathLike[str],
    *,
    image_size: int,
    class_names: Sequence[str] = (),
    classifier: Callable[[tf.Tensor], tf.Tensor] | None = None,
    prototypes: npt.ArrayLike | None = None,
    top_k: int = 5,
    max_pixels: int = 2**26,
    max_batch_size: int = 0,
    batch_timeout: float = 0.002,
    finish: Callable[[epath.Path], None] | None = None,
) -> None:
    """Writes a SavedModel; the directory appears only when it is complete.

    The module says what its signatures take and return.

    Args:
      encoder: built encoder.
      directory: must not exist; TF Serving wants a number as its name.
      image_size: side of the encoder's images in pixels.
      class_names: one per logit and per prototype.
      classifier: from representations [N, dim] to logits [N, classes] float32;
        a Keras layer or `tf.Module`.
      prototypes: [classes, dim] real, unit length; a row of zeros is a class
        without one, which is never predicted.
      top_k: classes in `top_classes`, at most all.
      max_pixels: a file of more, by its header, is refused before it is
        decoded.
      max_batch_size: images of several requests that the encoder takes at
        once, after each request has decoded its own; 0 for none.
      batch_timeout: how long a batch waits to be filled, seconds.
      finish: adds files to the directory before it appears.

    Raises:
      ValueError: `directory` exists, the class names do not fit, or
        `max_pixels` refuses ordinary photographs.
    """
    directory = epath.Path(directory)
    if directory.exists():
        raise exceptions.InvalidValue(
            f"`directory` must not exist, got {directory}"
        )
    _check_names(class_names, encoder, classifier, prototypes)
    check_max_pixels(max_pixels, image_size)
    # TF Serving polls for numbers, so that it does not see a hidden name.
    with (
        files.make_atomically(directory) as partial,
        tempfile.TemporaryDirectory() as scratch,
    ):
        # TensorFlow makes the asset from it.
        names_file = pathlib.Path(scratch) / "class_names.txt"
        lines = "".join(f"{name}\n" for name in class_names)
        names_file.write_text(lines, "utf-8")
        served = model.ServedModel(
            encoder,
            image_size,
            max_pixels,
            classifier=classifier,
            prototypes=prototypes,
            class_names_file=str(names_file),
            num_classes=len(class_names),
            top_k=top_k,
            max_batch_size=max_batch_size,
            batch_timeout=batch_timeout,
        )
        tf.saved_model.save(
            served, str(partial), signatures=served.signatures()
        )
        requests.write_requests(partial, image_size)
        if finish is not None:
            finish(partial)
    files.remove_unfinished(directory)


def check_max_pixels(max_pixels: int, image_size: int) -> None:
    """Raises ValueError for a bound that refuses ordinary photographs.

    The requests of the warm-up are such, and would keep TF Serving from loading
    the model.
    """
    least = requests.photograph(image_size)[..., 0].size
    if max_pixels < least:
        raise exceptions.InvalidValue(
            f"`max_pixels` must be at least {least}, an ordinary photograph "
            f"for images of {image_size} px, got {max_pixels}"
        )


def _check_names(
    class_names: Sequence[str],
    encoder: models.Encoder,
    classifier: Callable[[tf.Tensor], tf.Tensor] | None,
    prototypes: npt.ArrayLike | None,
) -> None:
    counts = set()
    if classifier is not None:
        example = tf.zeros([1, encoder.representation_dim])
        counts.add(int(classifier(example).shape[1]))
    if prototypes is not None:
        counts.add(len(prototypes))
    counts = counts or {0}
    if counts != {len(class_names)}:
        raise exceptions.InvalidValue(
            f"`class_names` must be {max(counts)} names, got {len(class_names)}"
        )
    for name in class_names:
        encodable = name.encode("utf-8", "ignore").decode("utf-8")
        if encodable.splitlines() != [name]:
            raise exceptions.InvalidValue(
                f"`class_names` must be a line of text each, got {name!r}"
            )
