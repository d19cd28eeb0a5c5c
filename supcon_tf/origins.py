"""What was made from what: names with digests, which others can compare.

progress.json of a checkpoint says what the checkpoint was made of: the classes,
the training images and, of a stage, the checkpoint of its encoder. What is made
from a checkpoint records the name of the checkpoint and the SHA-256 of this
file, which has the digests of the checkpoint's other files: so none of these
need be read to tell checkpoints apart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from etils import epath

from supcon_tf import exceptions, files

PROGRESS = "progress.json"
REMOVED = (
    "{} must be there, but was removed since, as by a training that goes on: "
    "run the same command again"
)
_SHOWN = 8  # digits of a digest, in a message

# `checkpoint`, the name of a checkpoint, and `sha256`, of its progress.json.
Identity = dict[str, str]


def identity(checkpoint: epath.PathLike) -> Identity:
    """What tells a checkpoint from every other, of the same step too.

    Raises:
      ValueError: it is not there any more.
    """
    path = epath.Path(checkpoint)
    try:
        digest = files.digest(path / PROGRESS)["sha256"]
    except FileNotFoundError as error:
        raise exceptions.InvalidValue(REMOVED.format(path)) from error
    return {"checkpoint": path.name, "sha256": digest}


def described(checkpoint: Mapping[str, str], other: Mapping[str, str]) -> str:
    """An identity for people, with a digest where the names are the same."""
    name = checkpoint["checkpoint"]
    if name != other["checkpoint"]:
        return name
    return f"{name} ({checkpoint['sha256'][:_SHOWN]}...)"


def recorded(checkpoint: epath.PathLike) -> dict[str, object]:
    """What a checkpoint says that it was made of.

    `classes` and `images`, digests; of a stage `encoder`, an identity. Nothing
    of a checkpoint of an earlier version.

    Raises:
      ValueError: its progress.json is damaged.
    """
    progress = files.read_json(epath.Path(checkpoint) / PROGRESS, {})
    return progress.get("made_of", {})


def of_names(names: Sequence[str]) -> str:
    """The SHA-256 of names and their order."""
    return hashlib.sha256(json.dumps(list(names)).encode()).hexdigest()
