"""Settings of stage 1."""

from __future__ import annotations

import dataclasses

from supcon_tf import settings
from supcon_tf.config import groups

# Settings that one objective alone uses.
_OBJECTIVE_OF = {
    "formulation": "supcon",
    "denominator": "supcon",
    "anchor_views": "supcon",
    "positives_cap": "supcon",
    "triplet_margin": "triplet",
    "triplet_mining": "triplet",
    "softmax_margin": "max_margin",
    "softmax_scale": "max_margin",
    "mixing": "cross_entropy",
    "mixing_alpha": "cross_entropy",
}


@dataclasses.dataclass(frozen=True)
class PretrainSettings(
    groups.DataSettings, groups.BatchSettings, groups.OptimizerSettings
):
    """Settings of tools/pretrain.py, stage 1."""

    overwrite: bool = settings.setting(
        False, "Replace what an earlier run left in run_dir.", recorded=False
    )
    strategy: str = settings.setting(
        "auto",
        "Distribution: one device, all devices of this machine (mirrored), "
        "or mirrored where there are several GPUs (auto).",
        choices=("auto", "one_device", "mirrored"),
    )
    checkpoint_every: int = settings.setting(
        10, "Epochs between checkpoints; the last one always.", at_least=1
    )
    num_views: int = settings.setting(
        2, "Views per image in a multiviewed batch.", at_least=1
    )
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
    )
    stem: str = settings.setting(
        "auto",
        "First layers of a ResNet: 3x3 stride 1 (cifar), 7x7 stride 2 and "
        "max pooling (imagenet), by image size: up to 64 is cifar (auto).",
        choices=("auto", "cifar", "imagenet"),
    )
    width: float = settings.setting(1.0, "Multiplier of all channels.", above=0)
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
        False, "Batch norm in the hidden layers of the projection head."
    )
    objective: str = settings.setting(
        "supcon",
        "Loss of stage 1. On projections: supcon, simclr (labels unused), "
        "npairs, triplet. On the logits of a linear classifier that is "
        "trained with the encoder and needs no projection head: "
        "cross_entropy, max_margin (large-margin softmax).",
        choices=(
            "supcon",
            "simclr",
            "npairs",
            "triplet",
            "cross_entropy",
            "max_margin",
        ),
    )
    temperature: float = settings.setting(
        0.1, "Temperature tau of the loss: supcon and simclr.", above=0
    )
    formulation: str = settings.setting(
        "out", "L_out (Eq. 2) or L_in (Eq. 3).", choices=("out", "in")
    )
    denominator: str = settings.setting(
        "all",
        "What the loss contrasts a positive with.",
        choices=("all", "one_positive", "only_negatives"),
    )
    anchor_views: str = settings.setting(
        "all", "Views that serve as anchors.", choices=("all", "first")
    )
    positives_cap: int | None = settings.setting(
        None, "Largest number of positives per anchor.", at_least=1
    )
    scale_by_temperature: bool = settings.setting(
        True, "Multiply the loss by the temperature, as the paper does."
    )
    cross_replica: bool = settings.setting(
        True, "Contrast with the views of all replicas."
    )
    triplet_margin: float = settings.setting(
        0.2,
        "Margin of the triplet loss, in squared distance; 2 * tau is "
        "equivalent to a contrastive loss of temperature tau.",
        above=0,
    )
    triplet_mining: str = settings.setting(
        "semi_hard",
        "Triplets: all pairs with a semi-hard negative, whose memory grows "
        "with the cube of the batch, or the hardest of each anchor.",
        choices=("semi_hard", "hard"),
    )
    softmax_margin: float = settings.setting(
        0.35, "Margin of max_margin, subtracted from the cosine.", at_least=0
    )
    softmax_scale: float = settings.setting(
        30.0, "Scale of the cosines of max_margin.", above=0
    )
    mixing: str = settings.setting(
        "none",
        "cross_entropy: mix each image and its label with another of the "
        "batch, by weighted sum (mixup) or by a pasted box (cutmix).",
        choices=("none", "mixup", "cutmix"),
    )
    mixing_alpha: float = settings.setting(
        0.0,
        "Alpha of the Beta distribution of --mixing; 0 for the method's own, "
        "0.2 for mixup and 1 for cutmix.",
        at_least=0,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.architecture.startswith("vgg") and self.stem != "auto":
            raise ValueError(
                f"--stem must be auto for {self.architecture}, which has no "
                f"choice of stem, got {self.stem}"
            )
        least = self.num_views - 1
        if self.positives_cap is not None and self.positives_cap < least:
            raise ValueError(
                f"--positives_cap must be at least {least}, the other views "
                f"of an anchor, got {self.positives_cap}"
            )
        for name in ("image_mean", "image_std"):
            if len(getattr(self, name)) != 3:
                raise ValueError(
                    f"--{name} must be three numbers, got "
                    f"{settings.to_text(getattr(self, name))}"
                )
        if self.mixing == "none" and self.mixing_alpha:
            raise ValueError(
                "--mixing_alpha must be left out with --mixing=none, got "
                f"{self.mixing_alpha}"
            )
        self._check_objective()

    @property
    def has_projections(self) -> bool:
        """Whether the objective is one of projections, not of logits."""
        return self.objective not in ("cross_entropy", "max_margin")

    def _check_objective(self) -> None:
        """Raises ValueError for what the objective cannot use."""
        if self.objective == "simclr" and self.num_views < 2:
            raise ValueError(
                "--num_views must be at least 2 with --objective=simclr, "
                f"whose positives are other views, got {self.num_views}"
            )
        for field in dataclasses.fields(self):
            user = _OBJECTIVE_OF.get(field.name, self.objective)
            value = getattr(self, field.name)
            if user != self.objective and value != field.default:
                raise ValueError(
                    f"--{field.name} must be left out with "
                    f"--objective={self.objective}: only {user} uses it, got "
                    f"{settings.to_text(value)}"
                )
