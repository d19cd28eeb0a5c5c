"""Settings of tools/convert.py."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings
from supcon_tf.config import checkpointing, evaluation, export

CONVERSION_FORMATS = (
    "tflite_float32",
    "tflite_float16",
    "tflite_int8",
    "onnx",
)


@dataclasses.dataclass(frozen=True)
class ConvertSettings(export.ClassifierSettings):
    """Settings of tools/convert.py."""

    formats: tuple[str, ...] = settings.setting(
        CONVERSION_FORMATS[:3],
        "Files to write: tflite_float32; tflite_float16, weights of half the "
        "size; tflite_int8, convolutions in integers, for bytes of pixels; "
        "onnx, which needs the extra onnx.",
        choices=CONVERSION_FORMATS,
    )
    calibration_images: int = settings.setting(
        256,
        "tflite_int8: training images, of all classes alike, that tell the "
        "ranges of the activations.",
        at_least=1,
    )
    seed: int = settings.setting(0, "Seed of their draw.", at_least=0)
    batch_size: int = settings.with_default(
        evaluation.EvaluateSettings, "batch_size", 32
    )
    overwrite: bool = settings.with_default(
        checkpointing.CheckpointSettings, "overwrite", False
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if not self.formats or len(set(self.formats)) < len(self.formats):
            raise exceptions.InvalidValue(
                "--formats must be different names, one or more, got "
                f"{settings.to_text(self.formats)!r}"
            )
