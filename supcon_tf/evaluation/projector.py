"""Representations for TensorBoard's projector."""

from __future__ import annotations

import io
import math

import numpy as np
import tensorflow as tf

from supcon_tf import run_files
from supcon_tf.disk import files
from supcon_tf.evaluation import splits
from supcon_tf.training import tensorboard

_SIDE = 64  # pixels, of an image in the sprite
_SPRITE_SIDE = 8192  # pixels; browsers take no larger texture
# A tab would start another column and a line break another row.
_ESCAPES = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})
_CONFIG = """\
embeddings {{
  tensor_name: "representations"
  tensor_path: "tensors.tsv"
  metadata_path: "metadata.tsv"
{sprite}}}
"""
_SPRITE = """\
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {side}
    single_image_dim: {side}
  }}
"""


def write_projector(
    into: run_files.RunDirectory,
    test: splits.EncodedSplit,
    positions: np.ndarray,
) -> None:
    """Writes tensorboard/projector/ of an evaluation, whole or not at all.

    Of the test images at `positions`, [E] integers, rising: tensors.tsv holds
    their representations, metadata.tsv the name of the class, label, with a
    classifier the predicted class and whether it is correct, and id, and
    sprite.png the images; of texts there is no sprite, but a column text. The
    projector looks into directories with TensorBoard events: hence a file of
    events that holds none.

    An earlier directory is replaced. TensorBoard finds the projector with
    --logdir of the stage, of its tensorboard/, of the run or of a directory of
    runs.
    """
    # As text: TensorBoard tries to read text first, and takes one file of raw
    # floats in some hundred for text.
    tensors = io.BytesIO()
    np.savetxt(
        tensors, test.representations[positions], fmt="%.6g", delimiter="\t"
    )
    contents = {
        "tensors.tsv": tensors.getvalue(),
        "metadata.tsv": _metadata(test, positions).encode(),
    }
    sprite_config = ""
    if test.source.texts is None:
        contents["sprite.png"], side = _sprite(test, positions)
        sprite_config = _SPRITE.format(side=side)
    config = _CONFIG.format(sprite=sprite_config).encode()
    contents["projector_config.pbtxt"] = config
    with files.make_atomically(into.projector, overwrite=True) as partial:
        for name, content in contents.items():
            (partial / name).write_bytes(content)
        tf.summary.create_file_writer(str(partial)).close()


def _metadata(test: splits.EncodedSplit, positions: np.ndarray) -> str:
    """A line with names of columns, and one per point."""
    labels, predicted = test.labels[positions], test.predicted[positions]
    names = np.array(test.source.class_names)
    columns = {"class": names[labels], "label": labels}
    if test.predictions is not None:
        columns["predicted"] = names[predicted]
        columns["correct"] = np.where(predicted == labels, "yes", "no")
    columns["id"] = test.names(positions)
    if test.source.texts is not None:
        columns["text"] = test.to_display(positions, _SIDE)
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    lines = (
        "\t".join(str(cell).translate(_ESCAPES) for cell in row) for row in rows
    )
    return "\n".join(lines) + "\n"


def _sprite(
    test: splits.EncodedSplit, positions: np.ndarray
) -> tuple[bytes, int]:
    """The images row by row in a square, as PNG, and the side of each."""
    columns = math.isqrt(len(positions) - 1) + 1
    side = min(_SIDE, _SPRITE_SIDE // columns)
    images = test.to_display(positions, side)  # [E, S, S, 3]
    rows = [images[i : i + columns] for i in range(0, columns**2, columns)]
    sprite = tensorboard.mosaic(rows)
    return tf.io.encode_png(sprite).numpy(), images.shape[1]
