"""Settings of stage 2, the demo, and pictures of views."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from supcon_tf import exceptions, settings
from supcon_tf.config import (
    checkpointing,
    devices,
    groups,
    objective,
    optimization,
)


@dataclasses.dataclass(frozen=True)
class LinearSettings(
    groups.BatchSettings,
    optimization.OptimizerSettings,
    devices.DeviceSettings,
    checkpointing.CheckpointSettings,
):
    """Settings of tools/train_linear.py, stage 2.

    Data and encoder are those of the pretraining in run_dir. Without random
    crop, flip and augmentation the representations are computed only once.
    """

    LARGEST_BATCH: ClassVar[int] = 512

    name: str = settings.setting(
        "linear", "Sub-directory of run_dir that this stage writes."
    )
    augmentation: str = settings.with_default(
        groups.ViewSettings, "augmentation", "identity"
    )
    label_smoothing: float = settings.with_default(
        objective.ObjectiveSettings, "label_smoothing", 0.0
    )
    learning_rate: float = settings.with_default(
        optimization.OptimizerSettings, "learning_rate", 2.5
    )
    warmup_epochs: float | None = settings.with_default(
        optimization.OptimizerSettings, "warmup_epochs", 0.0
    )
    weight_decay: float = settings.with_default(
        optimization.OptimizerSettings, "weight_decay", 0.0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        check_stage_name("name", self.name)
        self.check_remote_paths({"run_dir": self.run_dir})
        if not self.views_are_constant:
            return
        for name in ("images_per_class", "data_service"):
            if getattr(self, name) is not None:
                raise exceptions.InvalidValue(
                    f"--{name} must be left out without random crop, flip and "
                    "augmentation: all representations are computed once, got "
                    f"{getattr(self, name)}"
                )

    @property
    def views_are_constant(self) -> bool:
        """Whether an image looks the same in every epoch."""
        return (
            self.augmentation == "identity"
            and not self.crop_area
            and not self.horizontal_flip
        )


@dataclasses.dataclass(frozen=True)
class DemoSettings(settings.Settings):
    """Settings of tools/demo.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/demo"
    )
    epochs: int = settings.setting(
        24, "Epochs of pretraining on the digits.", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class ShowAugmentSettings(groups.DataSettings, groups.ViewSettings):
    """Settings of tools/show_augment.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/show_augment"
    )
    dataset: str | None = settings.setting(
        None,
        "digits (embedded), folder (images in --data_dir, in one sub-folder "
        "per class or without), or tfds:NAME; default: folder where "
        "--data_dir is given.",
    )
    images: int = settings.setting(
        6, "Images in views.png, a row each.", at_least=1
    )
    views: int = settings.setting(
        8, "Views of each image in views.png.", at_least=1
    )
    image: int = settings.setting(
        0, "The image of operations.png: a row of views.png.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.image >= self.images:
            raise exceptions.InvalidValue(
                f"--image must be below --images, got {self.image} and "
                f"{self.images}"
            )


def check_stage_name(flag: str, name: str) -> None:
    """A stage is a plain sub-directory that no other output uses."""
    taken = ("checkpoints", "tensorboard", "export", "converted")
    if not name.replace("_", "").replace("-", "").isalnum() or name in taken:
        raise exceptions.InvalidValue(
            f"--{flag} must be letters, digits, - and _, and none of "
            f"{', '.join(taken)}, got {name!r}"
        )
