"""Settings of stage 2, and of what needs no run: demo, pictures, service."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions
from supcon_tf.config import images, pretraining, running
from supcon_tf.settings import Settings, setting, with_default

_TAKEN = ("checkpoints", "tensorboard", "export", "converted")
# The rule for a sub-directory of a run: a name that no other output has.
STAGE_NAME = (
    f"be letters, digits, - and _, and none of {', '.join(_TAKEN)}, got {{!r}}",
    lambda name: name not in _TAKEN
    and name.replace("_", "").replace("-", "").isalnum(),
)
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_DISPATCHES = {"role": ("all", "dispatcher")}
_WORKS = {"role": ("all", "worker")}


@dataclasses.dataclass(frozen=True)
class LinearSettings(
    images.BatchSettings,
    images.ViewSettings,
    images.AugmentationSettings,
    running.OptimizerSettings,
    running.DeviceSettings,
    running.CheckpointSettings,
):
    """Settings of tools/train_linear.py, stage 2.

    Data and encoder are those of the pretraining in run_dir. Without random
    crop, flip and augmentation the representations are computed only once.
    """

    LARGEST_BATCH = 512

    name: str = setting("linear", must=STAGE_NAME)
    """Sub-directory of run_dir that this stage writes."""
    augmentation: str = "identity"
    label_smoothing: float = with_default(
        pretraining.ObjectiveSettings, "label_smoothing"
    )
    learning_rate: float = 2.5
    warmup_epochs: float | None = 0.0
    weight_decay: float = 0.0

    def _check(self) -> None:
        if self.views_are_constant:
            self._check_left_out(
                "without random crop, flip and augmentation: all "
                "representations are computed once",
                "images_per_class",
                "data_service",
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
class DemoSettings(Settings):
    """Settings of tools/demo.py."""

    run_dir: str = "runs/demo"
    epochs: int = setting(24, at_least=1)
    """Epochs of pretraining on the digits."""


@dataclasses.dataclass(frozen=True)
class ShowAugmentSettings(
    images.DataSettings, images.ViewSettings, images.AugmentationSettings
):
    """Settings of tools/show_augment.py."""

    run_dir: str = "runs/show_augment"
    dataset: str | None = None
    """digits (embedded), folder (images in --data_dir, in one sub-folder per
    class or without), or tfds:NAME; default: folder where --data_dir is
    given."""
    images: int = setting(6, at_least=1)
    """Images in views.png, a row each."""
    views: int = setting(8, at_least=1)
    """Views of each image in views.png."""
    image: int = setting(0, at_least=0)
    """The image of operations.png: a row of views.png."""

    def _check(self) -> None:
        self._check_pair("image", "be below", "images")


@dataclasses.dataclass(frozen=True)
class DataServiceSettings(Settings):
    """Settings of tools/data_service.py."""

    run_dir: str = "runs/data_service"
    role: str = setting("all", choices=("all", "dispatcher", "worker"))
    """What runs here: the one dispatcher, workers, or a dispatcher and workers
    (all)."""
    port: int = setting(5050, at_least=0, at_most=65535, used_by=_DISPATCHES)
    """Port of the dispatcher; 0 for a free one."""
    dispatcher: str | None = setting(None, used_by={"role": ("worker",)})
    """grpc:// address of the dispatcher, for --role=worker."""
    workers: int = setting(1, at_least=1, used_by=_WORKS)
    """Workers in this process; they share its cores, so one is enough. Each
    makes an epoch of its own."""
    worker_port: int = setting(0, at_least=0, at_most=65535, used_by=_WORKS)
    """Port of the first worker, the others count on; 0 for free ones."""
    host: str = "localhost"
    """Name or address of this machine by which the others reach it."""
    journal: bool = setting(False, used_by=_DISPATCHES)
    """Keep the dispatcher's journal in run_dir: one that is started again
    there, with the same port, goes on with the runs that it served."""

    def _check(self) -> None:
        if self.role != "worker":
            return
        if not (self.dispatcher or "").startswith("grpc://"):
            raise exceptions.InvalidValue(
                "--dispatcher must be the grpc:// address of the dispatcher "
                f"with --role=worker, got {self.dispatcher}"
            )
        at = self.dispatcher.removeprefix("grpc://").rpartition(":")[0]
        if self.host == "localhost" and at not in _LOCAL:
            raise exceptions.InvalidValue(
                "--host must be the name of this machine with a dispatcher "
                f"on another one, got localhost for {self.dispatcher}"
            )
