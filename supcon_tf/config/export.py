"""Settings of tools/export.py, and what tells which classifier is meant."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings
from supcon_tf.config import stages


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(settings.Settings):
    """Which trained classifier of a run a tool takes."""

    classifier: str = settings.setting(
        "auto",
        "linear: that of the linear stage; pretrained: that which stage 1 "
        "trained with the encoder (ce, max_margin, joint, online); none: the "
        "encoder alone; auto: the first of these that the run has.",
        choices=("auto", "linear", "pretrained", "none"),
    )
    linear_stage: str = settings.setting(
        "linear", "Name of the linear stage whose classifier is taken."
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        stages.check_stage_name("linear_stage", self.linear_stage)


@dataclasses.dataclass(frozen=True)
class ExportSettings(ClassifierSettings):
    """Settings of tools/export.py."""

    prototypes: bool = settings.setting(
        False,
        "Add the signature classify_by_neighbours: the class whose training "
        "images are nearest in the mean. Needs the training images.",
    )
    top_k: int = settings.setting(
        5, "Classes in top_classes, at most all.", at_least=1
    )
    max_pixels: int = settings.setting(
        2**26,
        "Pixels of the largest image file that is decoded, by its header; a "
        "larger one is refused. Each takes 4 bytes while it is decoded, up to "
        "12 in rare formats.",
        at_least=1,
    )
    max_batch_size: int = settings.setting(
        0,
        "Images of several requests that the encoder takes at once, after each "
        "request has decoded its own, so that a bad file fails only its own. "
        "0: none; the server's own batching then joins requests before.",
        at_least=0,
    )
    batch_timeout_ms: float = settings.setting(
        2.0, "How long a batch waits to be filled.", at_least=0
    )
    version: int | None = settings.setting(
        None,
        "Number of the sub-directory of export/; default: one more than the "
        "newest there.",
        at_least=1,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if not self.max_batch_size and self.batch_timeout_ms != 2.0:
            raise exceptions.InvalidValue(
                "--batch_timeout_ms must be left out without --max_batch_size, "
                f"got {self.batch_timeout_ms}"
            )
