"""The materials of a training, images and encoder, and checks of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from supcon_tf import data, exceptions, run_files
from supcon_tf.data import sources
from supcon_tf.disk import origins
from supcon_tf.training import console


def fingerprints(images: data.Source) -> dict[str, object]:
    """The record of the training images in a checkpoint.

    Its `images` is a digest of bytes and labels if the bytes have been read;
    else its `files` is a digest of sizes, times and labels.
    """
    made_of: dict[str, object] = {
        "classes": origins.digest_names(images.class_names)
    }
    if images.shard is not None:  # depends on the number of workers
        return made_of
    labels = sources.fingerprint(*_labels(images))
    if images.texts is not None:
        text = "\0".join(images.texts).encode()
        texts = hashlib.sha256(text).hexdigest()
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
    """Checks the materials of a resumed run against its record.

    Prints a line where files differ by their times alone: they may be copies.

    Raises:
      ValueError: the images, their labels, or the checkpoint of the encoder
        differ.
    """
    earlier = run.made_of()
    exceptions.require(
        earlier.get("images") in (None, made_of.get("images"))
        or "images" not in made_of,
        f"--resume must find the training data of {run.path} as they were",
        "the same names with other contents or labels: restore the data, or "
        "begin anew with --overwrite",
    )
    if earlier.get("files") not in (
        None,
        made_of.get("files", earlier.get("files")),
    ):
        console.print_line(
            "warning",
            f"the files of the training data have changed since {run.path} was "
            "begun, or were copied: with other contents it must be begun anew, "
            "with --overwrite",
        )
    encoder, recorded = made_of.get("encoder"), earlier.get("encoder")
    if encoder and recorded and encoder != recorded:
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

    Raises:
      ValueError: the stage is of another checkpoint, or of an unknown one.
    """
    recorded = stage.made_of().get("encoder", {})
    if recorded != encoder:
        raise exceptions.InvalidValue(
            f"the linear stage {stage.path} must be of "
            f"{origins.describe(encoder, recorded)}, the checkpoint that "
            f"{run.path} has by now, got one of "
            f"{origins.describe(recorded, encoder)}: tools/train_linear.py "
            f"--run_dir={run.path} --name={stage.path.name} --overwrite trains "
            "it anew"
        )
