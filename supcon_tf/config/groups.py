"""Fields that several tools share."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from supcon_tf import exceptions, settings
from supcon_tf.config import augmentation


@dataclasses.dataclass(frozen=True)
class DataSettings(settings.Settings):
    """Which images, and the size of their views."""

    # Where neither --dataset nor --data_dir is given; None for an error.
    DEFAULT_DATASET: ClassVar[str | None] = "digits"

    dataset: str | None = settings.setting(
        None,
        "digits (embedded), folder (one sub-folder of images per class in "
        "--data_dir), or tfds:NAME; default: folder where --data_dir is given.",
        common=True,
    )
    data_dir: str | None = settings.setting(
        None,
        "Folder of the images, or of the prepared TFDS data sets.",
        resumable=True,
        common=True,
    )
    image_size: int | None = settings.setting(
        None,
        "Side of the views in pixels; default: that of the images, where all "
        "are squares of one size.",
        at_least=8,
        common=True,
    )
    test_fraction: float = settings.setting(
        0.2,
        "Share of a folder without train/ and test/ that is held out: each "
        "image is by a hash of its file name, whatever other files there are.",
        above=0,
        at_most=0.9,
    )
    split_seed: int = settings.setting(0, "Seed of that split.", at_least=0)
    check_images: bool = settings.setting(
        True,
        "Decode every file of a folder once before the run starts.",
        resumable=True,
    )
    skip_bad_images: bool = settings.setting(
        False,
        "Skip and name image files that cannot be read, instead of stopping.",
        common=True,
    )

    def __post_init__(self):
        if self.dataset is None:
            dataset = "folder" if self.data_dir else self.DEFAULT_DATASET
            object.__setattr__(self, "dataset", dataset)
        super().__post_init__()

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        if self.dataset is None:
            raise exceptions.InvalidValue(
                "--data_dir or --dataset must be given"
            )
        if self.dataset == "folder" and not self.data_dir:
            raise exceptions.InvalidValue(
                "--data_dir must be given with --dataset=folder"
            )
        if self.dataset == "digits" and self.data_dir:
            raise exceptions.InvalidValue(
                "--data_dir must be left out with --dataset=digits, which are "
                f"embedded, got {self.data_dir}"
            )
        if self.skip_bad_images and not self.check_images:
            raise exceptions.InvalidValue(
                "--skip_bad_images must come with --check_images, which "
                "finds them"
            )
        super()._check()


@dataclasses.dataclass(frozen=True)
class ViewSettings(augmentation.AugmentationSettings):
    """How images become augmented views."""

    seed: int = settings.setting(
        0,
        "Seed of weights, order and augmentation: same seed, same run.",
        at_least=0,
        common=True,
    )
    crop_area: tuple[float, ...] = settings.setting(
        (0.5, 1.0),
        "Range of the random crop's share of the image area, two numbers; "
        "empty for no random crop. The paper has 0.08,1 on ImageNet and 0.2,1 "
        "on CIFAR: in few epochs milder views teach more (docs/RESULTS.md).",
        common=True,
    )
    horizontal_flip: bool = settings.setting(
        True, "Flip half of the views left to right."
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        area = self.crop_area
        if area and not (len(area) == 2 and 0 < area[0] <= area[1] <= 1):
            raise exceptions.InvalidValue(
                "--crop_area must be empty or two numbers 0 < low <= high <= "
                f"1, got {settings.to_text(area)}"
            )
        super()._check()


@dataclasses.dataclass(frozen=True)
class BatchSettings(ViewSettings):
    """How many images become views at a time."""

    # Where --batch_size is not given and the data are large enough.
    LARGEST_BATCH: ClassVar[int] = 256

    batch_size: int | None = settings.setting(
        None,
        "Global batch size, in images, over all replicas; default: 256 (512 "
        "of the linear stage), or half of it, a quarter, ... until an epoch "
        "has 4 steps.",
        at_least=1,
        adaptive=True,
        common=True,
    )
    images_per_class: int | None = settings.setting(
        None,
        "Images of each class in a batch, which then has batch_size / "
        "images_per_class classes; default: as the shuffled images come.",
        at_least=1,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if (
            self.batch_size
            and self.images_per_class
            and self.batch_size % self.images_per_class
        ):
            raise exceptions.InvalidValue(
                "--images_per_class must divide --batch_size, got "
                f"{self.images_per_class} and {self.batch_size}"
            )
