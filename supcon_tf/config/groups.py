"""Fields that several tools share."""

from __future__ import annotations

import dataclasses

from supcon_tf import settings


@dataclasses.dataclass(frozen=True)
class ViewSettings(settings.Settings):
    """How images become augmented views."""

    seed: int = settings.setting(
        0,
        "Seed of weights, order and augmentation: same seed, same run.",
        at_least=0,
    )
    batch_size: int = settings.setting(
        256, "Global batch size, in images, over all replicas.", at_least=1
    )
    augmentation: str = settings.setting(
        "simaugment",
        "Policy applied to each view after crop and flip.",
        choices=("identity", "simaugment"),
    )
    jitter_strength: float = settings.setting(
        0.5,
        "SimAugment: strength of the colour jitter; 0.5 is the CIFAR recipe, "
        "1.0 SimCLR's on ImageNet.",
        at_least=0,
        at_most=2.5,
    )
    jitter_probability: float = settings.setting(
        0.8, "SimAugment: share of views jittered.", at_least=0, at_most=1
    )
    grayscale_probability: float = settings.setting(
        0.2, "SimAugment: share of views turned grey.", at_least=0, at_most=1
    )
    warp_probability: float = settings.setting(
        0.5, "SimAugment: share of views warped.", at_least=0, at_most=1
    )
    blur_probability: float = settings.setting(
        0.5, "SimAugment: share of views blurred.", at_least=0, at_most=1
    )
    crop_area: tuple[float, ...] = settings.setting(
        (0.08, 1.0),
        "Range of the random crop's share of the image area, two numbers; "
        "empty for no random crop. The paper has 0.2,1 on CIFAR.",
    )
    horizontal_flip: bool = settings.setting(
        True, "Flip half of the views left to right."
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        area = self.crop_area
        if area and not (len(area) == 2 and 0 < area[0] <= area[1] <= 1):
            raise ValueError(
                "--crop_area must be empty or two numbers 0 < low <= high <= "
                f"1, got {settings.to_text(area)}"
            )
        super()._check()


@dataclasses.dataclass(frozen=True)
class OptimizerSettings(settings.Settings):
    """Stochastic gradient descent with warm-up and cosine decay."""

    epochs: int = settings.setting(
        100,
        "Passes over the training images; 0 keeps the initial weights.",
        at_least=0,
    )
    learning_rate: float = settings.setting(
        0.5,
        "Peak learning rate for a batch of 256 images, see "
        "--learning_rate_scaling.",
        above=0,
    )
    learning_rate_scaling: str = settings.setting(
        "linear",
        "How the learning rate follows the batch: times batch / 256 (linear), "
        "times its square root (sqrt), or not at all (none).",
        choices=("linear", "sqrt", "none"),
    )
    warmup_epochs: float = settings.setting(
        10.0,
        "Epochs over which the learning rate rises linearly from 0.",
        at_least=0,
    )
    momentum: float = settings.setting(
        0.9, "Momentum of SGD.", at_least=0, at_most=0.9999
    )
    nesterov: bool = settings.setting(False, "Nesterov momentum.")
    weight_decay: float = settings.setting(
        1e-4,
        "L2 coefficient, added to the gradient of kernels (not of batch norm "
        "and biases).",
        at_least=0,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        if self.epochs and self.warmup_epochs > self.epochs:
            raise ValueError(
                "--warmup_epochs must be at most --epochs, got "
                f"{self.warmup_epochs} and {self.epochs}"
            )
        super()._check()
