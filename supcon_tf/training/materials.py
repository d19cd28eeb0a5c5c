"""The materials of a training and checks of them.

They are the images with labels and weights, the parents of the classes, the
validation examples that choose an epoch, and the encoder of a stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from supcon_tf import data, exceptions, run_files
from supcon_tf.data import hierarchy, sources
from supcon_tf.disk import origins
from supcon_tf.training import console

# The materials without which a run cannot go on, and what is wrong with others.
_NEEDED = {
    "images": "the same names with other contents or labels",
    "weights": "other weights of the images",
    "parents": "other parents of the classes",
    "validation": "other validation examples, which choose the best epoch",
}


def fingerprints(images: data.Source) -> dict[str, object]:
    """The record of the training images in a checkpoint.

    Its `images` is a digest of bytes and labels if the bytes have been read;
    else its `files` is a digest of sizes, times and labels. Labels that are
    read with the examples alone are in no digest: such images have `files` too.
    """
    made_of: dict[str, object] = {
        "classes": origins.digest_names(images.class_names)
    }
    if images.shard is not None:  # depends on the number of workers
        return made_of
    weights = images.weights
    made_of["weights"] = ""
    if weights is not None:
        weights = np.asarray(weights, np.float32)
        made_of["weights"] = sources.fingerprint(weights)
    labels = []
    if images.labels is not None:
        labels = [np.asarray(images.labels, np.int64)]
    kind, content = "images", images.digests
    if images.texts is not None:
        text = "\0".join(images.texts).encode()
        content = hashlib.sha256(text).hexdigest()
    elif content is not None:
        content = np.asarray(content, np.int64)
    else:
        kind, content = "files", images.fingerprint()
    if images.labels is None:
        made_of["files"] = sources.fingerprint(images.fingerprint())
    labels = sources.fingerprint(*labels)
    return made_of | {kind: sources.fingerprint(content, labels)}


def validation(examples: data.Source) -> dict[str, object]:
    """The record of validation examples in a checkpoint; {} if not read."""
    record = fingerprints(examples)
    return {"validation": record["images"]} if "images" in record else {}


def parents(path: str | None, class_names: Sequence[str]) -> dict[str, str]:
    """The record of the parents of the classes in a checkpoint; {} for none.

    The arguments are those of `hierarchy.read_ancestors`.
    """
    if path is None:
        return {}
    ancestors = hierarchy.read_ancestors(path, class_names)
    return {"parents": sources.fingerprint(ancestors)}


def check(run: run_files.RunDirectory, made_of: Mapping[str, object]) -> None:
    """Checks the materials of a resumed run against its record.

    Prints a line where files differ by their times alone: they may be copies.

    Raises:
      ValueError: the images, their labels or weights, the parents of the
        classes, or the checkpoint of the encoder differ.
    """
    earlier = run.made_of()
    common = earlier.keys() & made_of.keys()
    changed = {name for name in common if earlier[name] != made_of[name]}
    for name, difference in _NEEDED.items():
        exceptions.require(
            name not in changed,
            f"--resume must find the training data of {run.path} as they were",
            f"{difference}: restore the data, or begin anew with --overwrite",
        )
    if "files" in changed:
        console.print_line(
            "warning",
            f"the files of the training data have changed since {run.path} was "
            "begun, or were copied: with other contents it must be begun anew, "
            "with --overwrite",
        )
    if "encoder" in changed:
        encoder, recorded = made_of["encoder"], earlier["encoder"]
        raise exceptions.InvalidValue(
            f"--resume must find the encoder of {run.path}, checkpoint "
            f"{origins.describe(recorded, encoder)}, got "
            f"{origins.describe(encoder, recorded)}: begin anew with "
            "--overwrite"
        )


def check_stage(
    run: run_files.RunDirectory,
    stage: run_files.RunDirectory,
    encoder: origins.Identity,
) -> None:
    """Checks that a linear stage was trained on the run's newest checkpoint.

    A stage of an earlier version has recorded no checkpoint. If it was begun
    after the newest was saved, it passes, and a line is printed.

    Raises:
      ValueError: the stage is of another checkpoint, or of an unknown one.
    """
    remedy = (
        f"tools/train_linear.py --run_dir={run.path} --name={stage.path.name} "
        "--overwrite trains it anew"
    )
    recorded = stage.made_of().get("encoder")
    if recorded == encoder:
        return
    if recorded is not None:
        raise exceptions.InvalidValue(
            f"the linear stage {stage.path} must be of "
            f"{origins.describe(encoder, recorded)}, the checkpoint that "
            f"{run.path} has by now, got one of "
            f"{origins.describe(recorded, encoder)}: {remedy}"
        )
    exceptions.require(
        stage.is_younger_than(run),
        f"the linear stage {stage.path} must be of {encoder['checkpoint']}, "
        f"the checkpoint that {run.path} has by now",
        "one of an earlier version, which has not recorded its checkpoint and "
        f"was not begun after this one was saved: {remedy}",
    )
    console.print_line(
        "note",
        f"{stage.path} has not recorded its checkpoint; it was begun after "
        f"{encoder['checkpoint']} was saved, and is taken to be of it",
    )
