"""The loss of stage 1."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings
from supcon_tf.config import groups

_OF_PROJECTIONS = ("supcon", "simclr", "npairs", "triplet")
_JOINT = tuple(f"{name}+ce" for name in _OF_PROJECTIONS)
_SUPCON = ("supcon", "supcon+ce")
_TRIPLET = ("triplet", "triplet+ce")
# Settings that some objectives alone use.
_USED_BY = {
    "formulation": _SUPCON,
    "denominator": _SUPCON,
    "anchor_views": _SUPCON,
    "positives_cap": _SUPCON,
    "queue_size": _SUPCON,
    "encoder_momentum": _SUPCON,
    "triplet_margin": _TRIPLET,
    "triplet_mining": _TRIPLET,
    "softmax_margin": ("max_margin",),
    "softmax_scale": ("max_margin",),
    "label_smoothing": ("ce",),
    "mixing": ("ce",),
    "mixing_alpha": ("ce",),
    "classifier_weight": _JOINT,
    "online_classifier": _OF_PROJECTIONS,  # joint ones have a classifier
    "gradient_cache_chunks": (*_OF_PROJECTIONS, *_JOINT),
}


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(groups.BatchSettings):
    """The loss, the options of each, and what it is computed from."""

    num_views: int = settings.setting(
        2, "Views per image in a multiviewed batch.", at_least=1
    )
    objective: str = settings.setting(
        "supcon",
        "Loss of stage 1. On projections: supcon, simclr (labels unused), "
        "npairs, triplet. On the logits of a linear classifier that is "
        "trained with the encoder and needs no projection head: ce "
        "(cross-entropy), max_margin (large-margin softmax). Joint: a loss "
        "of projections and cross-entropy of the representation, +ce.",
        choices=(
            *_OF_PROJECTIONS,
            "ce",
            "max_margin",
            *_JOINT,
        ),
        common=True,
    )
    temperature: float = settings.setting(
        0.1,
        "Temperature tau of the loss: supcon and simclr.",
        above=0,
        common=True,
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
    classifier_weight: float = settings.setting(
        0.5,
        "lambda of the joint objectives: (1 - lambda) * loss of projections + "
        "lambda * cross-entropy.",
        above=0,
        at_most=0.9999,
    )
    label_smoothing: float = settings.setting(
        0.0,
        "Share of the weight of a label that cross-entropy spreads evenly "
        "over all classes; the paper's code has 0.05 on ImageNet.",
        at_least=0,
        at_most=0.9999,
    )
    mixing: str = settings.setting(
        "none",
        "ce: mix each image and its label with another of the "
        "batch, by weighted sum (mixup) or by a pasted box (cutmix).",
        choices=("none", "mixup", "cutmix"),
    )
    mixing_alpha: float = settings.setting(
        0.0,
        "Alpha of the Beta distribution of --mixing; 0 for the method's own, "
        "0.2 for mixup and 1 for cutmix.",
        at_least=0,
    )

    queue_size: int = settings.setting(
        0,
        "Earlier projections, with their labels, that are contrasts too, made "
        "by a momentum encoder; 0 for none. The paper has 8192 (Sec. 4.1).",
        at_least=0,
    )
    encoder_momentum: float = settings.setting(
        0.999,
        "Share of its own weights that the momentum encoder of --queue_size "
        "keeps in a step.",
        at_least=0,
        at_most=1,
    )
    gradient_cache_chunks: int = settings.setting(
        1,
        "Parts in which the batch of a device passes the encoder, one after "
        "the other in the memory of one part: the loss is still that of the "
        "whole batch, batch norm takes its statistics from a part.",
        at_least=1,
        common=True,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        least = self.num_views - 1
        if self.positives_cap is not None and self.positives_cap < least:
            raise exceptions.InvalidValue(
                f"--positives_cap must be at least {least}, the other views "
                f"of an anchor, got {self.positives_cap}"
            )
        if self.mixing == "none" and self.mixing_alpha:
            raise exceptions.InvalidValue(
                "--mixing_alpha must be left out with --mixing=none, got "
                f"{self.mixing_alpha}"
            )
        if self.loss == "simclr" and self.num_views < 2:
            raise exceptions.InvalidValue(
                "--num_views must be at least 2 with "
                f"--objective={self.objective}, whose positives are other "
                f"views, got {self.num_views}"
            )
        self._check_used()
        self._check_sizes()

    @property
    def loss(self) -> str:
        """The objective without `+ce`."""
        return self.objective.removesuffix("+ce")

    @property
    def is_joint(self) -> bool:
        """Whether a classifier trains the encoder beside the projections."""
        return self.objective.endswith("+ce")

    @property
    def loss_multiple(self) -> float | None:
        """What supcon or simclr alone comes multiplied by; None for others."""
        if self.objective not in ("supcon", "simclr"):
            return None
        return self.temperature if self.scale_by_temperature else 1.0

    @property
    def has_projections(self) -> bool:
        """Whether the objective is one of projections, not of logits."""
        return self.loss in _OF_PROJECTIONS

    def _check_used(self) -> None:
        """Raises ValueError for what the objective cannot use."""
        settings.check_used(
            self, {name: ("objective", who) for name, who in _USED_BY.items()}
        )
        if not self.queue_size and self.encoder_momentum != 0.999:
            raise exceptions.InvalidValue(
                "--encoder_momentum must be left out without --queue_size, "
                f"got {self.encoder_momentum}"
            )

    def _check_sizes(self) -> None:
        """Raises ValueError for a batch that queue or chunks do not fit."""
        if self.batch_size is None:
            return  # checked when the run has resolved it
        if self.has_projections and self.batch_size < 2:
            raise exceptions.InvalidValue(
                f"--batch_size must be at least 2 with --objective="
                f"{self.objective}, which contrasts images, got 1"
            )
        rows = self.batch_size * self.num_views
        if self.queue_size and self.queue_size % rows:
            raise exceptions.InvalidValue(
                f"--queue_size must be a multiple of the {rows} views of a "
                f"batch, got {self.queue_size}"
            )
        if self.batch_size % self.gradient_cache_chunks:
            raise exceptions.InvalidValue(
                "--gradient_cache_chunks must divide --batch_size, got "
                f"{self.gradient_cache_chunks} and {self.batch_size}"
            )
