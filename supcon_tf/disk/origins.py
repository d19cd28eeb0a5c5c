"""Origins of checkpoints and results: names with digests, to be compared.

progress.json of a checkpoint records its origin: the classes, the training
images and, for a stage, the checkpoint of its encoder. Results of a checkpoint
record its name and the SHA-256 of this file, which has the digests of the
checkpoint's other files: to compare checkpoints, those need not be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files

PROGRESS = "progress.json"
REMOVED = (
    "{} must be there, but was removed since, as by a training that goes on: "
    "run the same command again"
)
_NUM_DIGITS = 8  # of a digest, in a message

# `checkpoint`, the name of a checkpoint, and `sha256`, of its progress.json.
Identity = dict[str, str]


def identity(checkpoint: epath.PathLike) -> Identity:
    """The identity of a checkpoint, among those of the same step too.

    Raises:
      ValueError: the checkpoint was removed.
    """
    path = epath.Path(checkpoint)
    try:
        digest = files.digest(path / PROGRESS)["sha256"]
    except FileNotFoundError as error:
        raise exceptions.InvalidValue(REMOVED.format(path)) from error
    return {"checkpoint": path.name, "sha256": digest}


def describe(checkpoint: Mapping[str, str], other: Mapping[str, str]) -> str:
    """An identity in words, with a digest where the names are equal."""
    name = checkpoint.get("checkpoint", "none")
    if name != other.get("checkpoint"):
        return name
    return f"{name} ({checkpoint.get('sha256', '')[:_NUM_DIGITS]}...)"


def recorded(checkpoint: epath.PathLike) -> dict[str, object]:
    """The recorded origin of a checkpoint.

    It has the digests of `training.materials`, such as `classes` and `images`,
    and for a stage the identity `encoder`. {} for a checkpoint of an earlier
    version.

    Raises:
      ValueError: its progress.json is damaged.
    """
    progress = files.read_json(epath.Path(checkpoint) / PROGRESS, {})
    return progress.get("made_of", {})


def digest_names(names: Sequence[str]) -> str:
    """The SHA-256 of names and their order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()
