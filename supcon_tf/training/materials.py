"""What a training is made of, and whether that is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from supcon_tf import data, exceptions, origins, run_files
from supcon_tf.data import sources
from supcon_tf.training import console


def of_training(images: data.Source) -> dict[str, object]:
    """What a checkpoint of a training on these images records of them.

    `images` is a digest of their bytes and labels where these have been read.
    Else it is one of what tells whether files have changed: `files`.
    """
    made_of: dict[str, object] = {
        "classes": origins.of_names(images.class_names)
    }
    if images.shard is not None:  # other images on another number of workers
        return made_of
    labels = sources.fingerprint(*_labels(images))
    if images.texts is not None:
        whole = "\0".join(images.texts).encode()
        texts = hashlib.sha256(whole).hexdigest()
        return made_of | {"images": sources.fingerprint(texts, labels)}
    if images.digests is not None:
        bytes_read = np.asarray(images.digests, np.int64)
        return made_of | {"images": sources.fingerprint(bytes_read, labels)}
    return made_of | {
        "files": sources.fingerprint(images.fingerprint(), labels)
    }


def _labels(images: data.Source) -> list[np.ndarray]:
    if images.labels is None:
        return []
    return [np.asarray(images.labels, np.int64)]


def check(run: run_files.RunDirectory, made_of: Mapping[str, object]) -> None:
    """Checks that a run which goes on is of what it was made of so far.

    Files that are others by their times alone may have been copied: then one
    line says so.

    Raises:
      ValueError: the images, their labels, or the checkpoint of its encoder,
        are others.
    """
    before = run.made_of()
    exceptions.require(
        before.get("images") in (None, made_of.get("images"))
        or "images" not in made_of,
        f"--resume must find the training data of {run.path} as they were",
        "the same names with other contents or labels: restore the data, or "
        "begin anew with --overwrite",
    )
    if before.get("files") not in (
        None,
        made_of.get("files", before.get("files")),
    ):
        console.print_line(
            "warning",
            f"the files of the training data have changed since {run.path} was "
            "begun, or were copied: with other contents it must be begun anew, "
            "with --overwrite",
        )
    encoder, recorded = made_of.get("encoder"), before.get("encoder")
    if encoder and recorded and encoder != recorded:
        raise exceptions.InvalidValue(
            f"--resume must find the encoder of {run.path}, checkpoint "
            f"{origins.described(recorded, encoder)}, got "
            f"{origins.described(encoder, recorded)}: begin anew with "
            "--overwrite"
        )


def check_stage(
    run: run_files.RunDirectory,
    stage: run_files.RunDirectory,
    encoder: origins.Identity,
) -> None:
    """Checks that a linear stage is of the checkpoint that its run has now.

    Of a stage of an earlier version, which has recorded none, one line says
    where it must be, since it was begun after that checkpoint was saved.

    Raises:
      ValueError: it is of another checkpoint, or nobody knows of which.
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
            f"{origins.described(encoder, recorded)}, the checkpoint that "
            f"{run.path} has by now, got one of "
            f"{origins.described(recorded, encoder)}: {remedy}"
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
