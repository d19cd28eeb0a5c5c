"""Settings of the fine-tuning of a pretrained network on own images."""

from __future__ import annotations

import dataclasses

from supcon_tf.config import stages
from supcon_tf.settings import setting

_SMALL_IMAGE, _SMALL_VIEW, _PHOTOGRAPH_VIEW = 64, 96, 160  # sides in pixels
# Images of all epochs, within the bounds of the number of epochs.
_IMAGES_PER_TRAINING = 10_000


@dataclasses.dataclass(frozen=True)
class FinetuneSettings(stages.PretrainSettings):
    """Settings of tools/finetune.py."""

    run_dir: str = "runs/finetuned"

    DEFAULT_DATASET = None
    DEFAULT_RATES = 0.003, 0.01
    LEAST_EPOCHS, MOST_EPOCHS = 5, 20
    LARGEST_BATCH, LEAST_STEPS = 32, 1

    architecture: str = "keras:MobileNetV2"
    weights: str | None = setting(None, adaptive=True, common=True, path=True)
    """Weights of the encoder: imagenet (of keras:NAME, as Keras publishes
    them), preset (of keras_hub:PRESET, its own), or a file .h5, .weights.h5 or
    .keras, or a SavedModel; default: imagenet or preset, or those of
    --init_from."""
    image_size: int | None = setting(
        None, at_least=8, adaptive=True, common=True
    )
    """Side of the views in pixels; default: 160, or 96 where all images are
    squares of at most 64."""
    objective: str = setting(
        "supcon+ce", choices=("ce", "supcon", "supcon+ce"), common=True
    )
    """What tunes the network: SupCon and cross-entropy together (supcon+ce),
    SupCon alone (supcon), or cross-entropy alone (ce)."""
    validation_fraction: float = setting(0.2, above=0, at_most=0.9)
    """Share of the training images of each class by which rate, epoch and
    weights are chosen."""
    learning_rates: tuple[float, ...] = setting(
        (),
        must=(
            "be different numbers above 0, got {}",
            lambda rates: len(set(rates)) == len(rates)
            and all(rate > 0 for rate in rates),
        ),
        common=True,
    )
    """Learning rates of the tuning, a training for each; default: 0.003
    and 0.01, as far as --minutes goes."""
    minutes: float | None = setting(None, above=0, recorded=False, common=True)
    """About how long the tuning may take on this machine: by fewer epochs, at
    fewer rates, or without any; a resumed run keeps its own. Default: as long
    as it takes."""
    epochs: int | None = setting(None, at_least=0, adaptive=True, common=True)
    """Epochs of each training; 0 leaves the network frozen. Default: 20, fewer
    of more than 500 images, 5 at least, as far as --minutes goes."""
    normalize_representation: bool = False
    augmentation: str = "identity"
    scale_by_temperature: bool = False
    nesterov: bool = True
    learning_rate_scaling: str = "none"
    warmup_epochs: float | None = 1.0
    weight_decay: float | None = 1e-4
    hidden_dims: tuple[int, ...] = (512,)

    def _check(self) -> None:
        self._check_left_out("in favour of --learning_rates", "learning_rate")

    def check_used(self) -> None:
        """Raises ValueError for settings that a fine-tuning does not use.

        Not a rule of the settings: an older run may have recorded some.
        """
        self._check_left_out(
            "of a fine-tuning, which does not use it",
            *("num_views", "mixing", "knn_every", "profile"),
        )

    @property
    def default_learning_rate(self) -> None:
        """None: the tool tries several rates."""
        return None

    def default_epochs(self, num_images: int) -> int:
        """Returns the epochs of a training on so many images."""
        epochs = round(_IMAGES_PER_TRAINING / num_images)
        return min(max(epochs, self.LEAST_EPOCHS), self.MOST_EPOCHS)

    def default_image_size(self, side: int | None) -> int:
        """Returns the side of the views for images of this side.

        Args:
          side: the side of all images in pixels; None for images of several.
        """
        is_small = side is not None and side <= _SMALL_IMAGE
        return _SMALL_VIEW if is_small else _PHOTOGRAPH_VIEW
