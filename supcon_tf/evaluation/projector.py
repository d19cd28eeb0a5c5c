"""Representations for TensorBoard's projector."""

from __future__ import annotations

import io
import math

import numpy as np
import tensorflow as tf

from supcon_tf import config
from supcon_tf.evaluation import samples, splits
from supcon_tf.training import runs

_SIDE = 64  # pixels, of an image in the sprite
_SPRITE_SIDE = 8192  # pixels; browsers take no larger texture
# A tab would start another column and a line break another row.
_ESCAPES = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})
_CONFIG = """\
embeddings {{
  tensor_name: "representations"
  tensor_path: "tensors.tsv"
  metadata_path: "metadata.tsv"
  sprite {{
    image_path: "sprite.png"
    single_image_dim: {side}
    single_image_dim: {side}
  }}
}}
"""


def write_projector(
    run: runs.Run,
    chosen: config.EvaluateSettings,
    test: splits.EncodedSplit,
    probabilities: np.ndarray | None,
) -> None:
    """Writes tensorboard/projector/ of a run, whole or not at all.

    The plotted test images, those of representations.npz: tensors.tsv holds
    their representations, metadata.tsv the name of the class, label, with a
    classifier the predicted class and whether it is correct, and id, and
    sprite.png the images. The projector looks into directories with TensorBoard
    events: hence a file of events that holds none.

    Where the settings want no image plotted, an earlier one is removed.

    Args:
      run: where it is written; TensorBoard finds it with --logdir of the run,
        of its tensorboard/ or of a directory of runs.
      chosen: how many images.
      test: the split that images are chosen from.
      probabilities: [test examples, classes] float of the linear classifier;
        None without one.
    """
    run.files.projector.rmtree(missing_ok=True)
    if not chosen.plotted_images:
        return
    positions = samples.plotted_positions(chosen, test)
    sprite, side = _sprite(test, positions, run.settings.image_size)
    contents = {
        # As text: TensorBoard tries to read text first, and takes one file of
        # raw floats in some hundred for it.
        "tensors.tsv": _tensors(test.representations[positions]),
        "metadata.tsv": _metadata(test, positions, probabilities).encode(),
        "sprite.png": sprite,
        "projector_config.pbtxt": _CONFIG.format(side=side).encode(),
    }
    partial = run.files.tensorboard / ".projector.partial"
    partial.rmtree(missing_ok=True)
    partial.mkdir(parents=True)
    for name, content in contents.items():
        (partial / name).write_bytes(content)
    tf.summary.create_file_writer(str(partial)).close()
    partial.rename(run.files.projector)


def _tensors(points: np.ndarray) -> bytes:
    """A line per point, values separated by tabs."""
    buffer = io.BytesIO()
    np.savetxt(buffer, points, fmt="%.6g", delimiter="\t")
    return buffer.getvalue()


def _metadata(
    test: splits.EncodedSplit,
    positions: np.ndarray,
    probabilities: np.ndarray | None,
) -> str:
    """A line with names of columns, and one per point."""
    labels = test.labels[positions]
    names = np.array(test.source.class_names)
    columns = {"class": names[labels], "label": labels}
    if probabilities is not None:
        predicted = samples.predicted_labels(test, probabilities)[positions]
        columns["predicted"] = names[predicted]
        columns["correct"] = np.where(predicted == labels, "yes", "no")
    columns["id"] = samples.plotted_ids(positions, test.source)
    rows = [tuple(columns), *zip(*columns.values(), strict=True)]
    lines = ["\t".join(str(x).translate(_ESCAPES) for x in row) for row in rows]
    return "\n".join(lines) + "\n"


def _sprite(
    test: splits.EncodedSplit, positions: np.ndarray, size: int
) -> tuple[bytes, int]:
    """The images row by row in a square, as PNG, and the side of each."""
    columns = math.isqrt(len(positions) - 1) + 1
    side = min(_SIDE, _SPRITE_SIDE // columns)
    images = samples.thumbnails(test.source, positions, size, side)
    side = images.shape[1]
    cells = np.full([columns**2, side, side, 3], 255, np.uint8)
    cells[: len(images)] = images
    grid = cells.reshape(columns, columns, side, side, 3).swapaxes(1, 2)
    sprite = grid.reshape(columns * side, columns * side, 3)
    return tf.io.encode_png(sprite).numpy(), side
