"""The encoder and its projection head."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings


@dataclasses.dataclass(frozen=True)
class EncoderSettings(settings.Settings):
    """Which layers there are, and how wide."""

    architecture: str = settings.setting(
        "resnet50",
        "Encoder.",
        choices=(
            "resnet18",
            "resnet34",
            "resnet50",
            "resnet101",
            "resnet152",
            "resnet200",
            "vgg8",
            "vgg16",
        ),
        common=True,
    )
    stem: str = settings.setting(
        "auto",
        "First layers of a ResNet: 3x3 stride 1 (cifar), 7x7 stride 2 and "
        "max pooling (imagenet), by image size: up to 64 is cifar (auto).",
        choices=("auto", "cifar", "imagenet"),
    )
    width: float = settings.setting(
        1.0, "Multiplier of all channels.", above=0, common=True
    )
    image_mean: tuple[float, ...] = settings.setting(
        (0.5, 0.5, 0.5), "Mean subtracted from R,G,B in [0, 1]."
    )
    image_std: tuple[float, ...] = settings.setting(
        (0.5, 0.5, 0.5), "Standard deviation that divides R,G,B."
    )
    normalize_representation: bool = settings.setting(
        True, "L2-normalise the encoder's output, as in Sec. 3.1."
    )
    hidden_dims: tuple[int, ...] = settings.setting(
        (2048,),
        "Hidden layers of the projection head; empty for a linear head.",
    )
    projection_dim: int = settings.setting(
        128, "Size of a projection.", at_least=1
    )
    projection_batch_norm: bool = settings.setting(
        True,
        "Batch norm in the hidden layers of the projection head, which the "
        "paper does not have; docs/TRAINING.md says why.",
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.architecture.startswith("vgg") and self.stem != "auto":
            raise exceptions.InvalidValue(
                f"--stem must be auto for {self.architecture}, which has no "
                f"choice of stem, got {self.stem}"
            )
        for name in ("image_mean", "image_std"):
            if len(getattr(self, name)) != 3:
                raise exceptions.InvalidValue(
                    f"--{name} must be three numbers, got "
                    f"{settings.to_text(getattr(self, name))}"
                )
