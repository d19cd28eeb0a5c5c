"""Settings of export and conversion, and of which classifier is meant."""

from __future__ import annotations

import dataclasses

from supcon_tf.config import evaluation, running, stages
from supcon_tf.settings import Settings, setting, with_default

CONVERSION_FORMATS = (
    "tflite_float32",
    "tflite_float16",
    "tflite_int8",
    "onnx",
)


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(Settings):
    """Which trained classifier of a run a tool takes."""

    classifier: str = setting(
        "auto", choices=("auto", "linear", "pretrained", "none")
    )
    """linear: that of the linear stage; pretrained: that which stage 1 trained
    with the encoder (ce, max_margin, joint, online); none: the encoder alone;
    auto: the first of these that the run has."""
    linear_stage: str = setting("linear", must=stages.STAGE_NAME)
    """Name of the linear stage whose classifier is taken."""


@dataclasses.dataclass(frozen=True)
class ExportSettings(ClassifierSettings):
    """Settings of tools/export.py."""

    prototypes: bool = False
    """Add the signature classify_by_neighbours: the class whose training images
    are nearest in the mean. Needs the training images."""
    top_k: int = setting(5, at_least=1)
    """Classes in top_classes, at most all."""
    max_pixels: int = setting(2**26, at_least=1)
    """Pixels of the largest image file that is decoded, by its header; a larger
    one is refused. Each takes 4 bytes while it is decoded, up to 12 in rare
    formats."""
    max_batch_size: int = setting(0, at_least=0)
    """Images of several requests that the encoder takes at once, after each
    request has decoded its own, so that a bad file fails only its own. 0: none;
    the server's own batching then joins requests before."""
    batch_timeout_ms: float = setting(2.0, at_least=0)
    """How long a batch waits to be filled."""
    version: int | None = setting(None, at_least=1)
    """Number of the sub-directory of export/; default: one more than the newest
    there."""

    def _check(self) -> None:
        if not self.max_batch_size:
            self._check_left_out("without --max_batch_size", "batch_timeout_ms")


@dataclasses.dataclass(frozen=True)
class ConvertSettings(ClassifierSettings):
    """Settings of tools/convert.py."""

    formats: tuple[str, ...] = setting(
        CONVERSION_FORMATS[:3],
        choices=CONVERSION_FORMATS,
        must=(
            "be different names, one or more, got {!r}",
            lambda names: 0 < len(names) == len(set(names)),
        ),
    )
    """Files to write: tflite_float32; tflite_float16, weights of half the size;
    tflite_int8, convolutions in integers, for bytes of pixels; onnx, which
    needs the extra onnx."""
    calibration_images: int = setting(256, at_least=1)
    """tflite_int8: training images, of all classes alike, that tell the ranges
    of the activations."""
    seed: int = setting(0, at_least=0)
    """Seed of their draw."""
    batch_size: int = with_default(
        evaluation.EvaluateSettings, "batch_size", 32
    )
    overwrite: bool = with_default(
        running.CheckpointSettings, "overwrite", False
    )
