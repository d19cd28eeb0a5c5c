"""Fields of the augmentation policies."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class AugmentationSettings(settings.Settings):
    """Which policy, and its parameters."""

    augmentation: str = settings.setting(
        "simaugment",
        "Policy applied to each view after crop and flip.",
        choices=(
            "identity",
            "autoaugment",
            "randaugment",
            "simaugment",
            "stacked_randaugment",
        ),
        common=True,
    )
    autoaugment_policy: str = settings.setting(
        "imagenet",
        "AutoAugment: table of sub-policies; imagenet, cifar10 and svhn are "
        "those of its paper, v0 that of the released code of SupCon.",
        choices=("imagenet", "v0", "cifar10", "svhn"),
    )
    randaugment_layers: int = settings.setting(
        2, "RandAugment: operations one after the other.", at_least=1
    )
    randaugment_magnitude: float = settings.setting(
        10.0, "RandAugment: level of all operations.", at_least=0, at_most=10
    )
    randaugment_operations: int = settings.setting(
        16,
        "RandAugment: how many operations to draw from; 16 and the identity "
        "as in the released code, or the 14 of its paper.",
    )
    randaugment_probability: float = settings.setting(
        1.0,
        "RandAugment: probability that a layer does anything.",
        at_least=0,
        at_most=1,
    )
    fill: tuple[int, ...] = settings.setting(
        (128, 128, 128),
        "AutoAugment, RandAugment: red, green and blue, 0 to 255, of what was "
        "outside the image.",
    )
    jitter_strength: float = settings.setting(
        0.25,
        "SimAugment: strength of the colour jitter; the paper has 0.5 on "
        "CIFAR, SimCLR 1.0 on ImageNet.",
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
        0.0,
        "SimAugment: share of views warped; the paper has 0.5.",
        at_least=0,
        at_most=1,
    )
    blur_probability: float = settings.setting(
        0.0,
        "SimAugment: share of views blurred; the paper has 0.5.",
        at_least=0,
        at_most=1,
    )

    def _check(self) -> None:
        """Checks what the fields' own rules cannot; raises ValueError."""
        if self.randaugment_operations not in (14, 16):
            raise exceptions.InvalidValue(
                "--randaugment_operations must be 14 or 16, got "
                f"{self.randaugment_operations}"
            )
        if len(self.fill) != 3 or not all(0 <= v <= 255 for v in self.fill):
            raise exceptions.InvalidValue(
                "--fill must be three numbers 0 to 255, got "
                f"{settings.to_text(self.fill)}"
            )
        super()._check()
