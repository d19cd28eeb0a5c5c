"""Settings of the loss of stage 1: which loss it is, and its options."""

from __future__ import annotations

import dataclasses

from supcon_tf import defaults, exceptions
from supcon_tf.host import trust
from supcon_tf.settings import Settings, setting


@dataclasses.dataclass(frozen=True)
class Objective:
    """The inputs of a loss of stage 1, and the words that describe it.

    Attributes:
      title: the name of the loss in a report.
      summary: its numbers, with settings in braces, as a run prints them.
      takes: the tensor that it is computed from: "projections", or the
        classifier's "logits" or "cosines".
      labels: "none" where views of an image are the only positives, "class"
        for the class of an image, "any" for several of them and for those of
        --mixing too.
      has_centres: whether it learns a centre for each class.
      has_chance_level: whether `training.chance` knows its level.
    """

    title: str
    summary: str
    takes: str = "projections"
    labels: str = "class"
    has_centres: bool = False
    has_chance_level: bool = False

    @property
    def has_temperature(self) -> bool:
        """Whether --temperature divides its similarities, and multiplies it."""
        return "{temperature}" in self.summary


OBJECTIVES = {
    "supcon": Objective(
        "the supervised contrastive loss",
        "L_{formulation}, temperature {temperature}",
        labels="any",
        has_chance_level=True,
    ),
    "simclr": Objective(
        "the SimCLR loss, which ignores labels,",
        "temperature {temperature}",
        labels="none",
        has_chance_level=True,
    ),
    "npairs": Objective("the N-pairs loss", "temperature 1"),
    "triplet": Objective(
        "the triplet loss",
        "semi_hard triplets, squared distance, margin 0.2",
    ),
    "bcl": Objective(
        "the balanced contrastive loss",
        "a centre for each class, temperature {temperature}",
        has_centres=True,
    ),
    "paco": Objective(
        "the parametric contrastive loss",
        "a centre for each class, temperature {temperature}, alpha "
        "{paco_alpha}",
        has_centres=True,
    ),
    "ce": Objective(
        "cross-entropy", "classifier on the representation", "logits", "any"
    ),
    "max_margin": Objective(
        "the large-margin softmax loss",
        "cosine classifier on the representation, margin 0.35, scale 30.0",
        "cosines",
    ),
    trust.FUNCTION: Objective("a loss of your own", "a loss of your own"),
}
OF_PROJECTIONS = tuple(
    name for name, loss in OBJECTIVES.items() if loss.takes == "projections"
)
_JOINT = tuple(f"{name}+ce" for name in OF_PROJECTIONS)


def names_by_labels(*labels: str) -> tuple[str, ...]:
    """Returns the choices of --objective whose loss takes such labels."""
    names = (*OBJECTIVES, *_JOINT)
    return tuple(
        name
        for name in names
        if OBJECTIVES[name.removesuffix("+ce")].labels in labels
    )


# The objectives that alone use a setting.
_WITH_SUPCON = {"objective": ("supcon", "supcon+ce")}
_WITH_CE = {"objective": ("ce",)}
_WITH_SOFT_LABELS = {"objective": names_by_labels("any")}
_SOFT_POSITIVES = "soft", "cosine"


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """The loss, the options of each, and what it is computed from."""

    num_views: int = setting(2, at_least=1)
    """Views per image in a multiviewed batch."""
    objective: str = setting(
        "supcon",
        choices=(*OBJECTIVES, *_JOINT),
        common=True,
    )
    """Loss of stage 1. On projections: supcon, simclr (labels unused), npairs,
    triplet; for long tails bcl (balanced contrastive) and paco (parametric
    contrastive), with a learned centre for each class. On the logits of a
    linear classifier that is trained with the encoder and needs no projection
    head: ce (cross-entropy), max_margin (large-margin softmax). A function
    makes a loss of your own, of projections (docs/guides/your_own.md). Joint: a
    loss of projections and cross-entropy of the representation, +ce."""
    temperature: float = setting(defaults.TEMPERATURE, above=0, common=True)
    """Temperature tau of the loss: supcon, simclr, bcl and paco."""
    formulation: str = setting(
        "out", choices=("out", "in"), used_by=_WITH_SUPCON
    )
    """L_out (Eq. 2) or L_in (Eq. 3)."""
    denominator: str = setting(
        "all",
        choices=("all", "one_positive", "sincere", "only_negatives"),
        used_by=_WITH_SUPCON,
    )
    """What the loss contrasts a positive with: sincere is one_positive."""
    margin: float = setting(
        0.0,
        at_least=0,
        used_by=_WITH_SUPCON | {"denominator": ("one_positive", "sincere")},
    )
    """By how much, of z.z / tau, a positive is to be nearer than the negatives;
    with --denominator=sincere."""
    hardness: float = setting(0.0, at_least=0, used_by=_WITH_SUPCON)
    """How much more near negatives weigh than far ones."""
    spread: float = setting(
        0.0, at_least=0, at_most=0.9999, used_by=_WITH_SUPCON
    )
    """Share of the term that keeps the images of a class apart, each near its
    own other views (L_spread); 0.5 in its paper, with --denominator=sincere."""
    unsupervised_classes: tuple[str, ...] = setting((), used_by=_WITH_SUPCON)
    """Names of classes whose images have their own other views as only
    positives: of two unequal classes, the larger one."""
    multi_label: bool | None = setting(None, adaptive=True, decided=True)
    """Whether an image may have several labels, or none, as the data have them.
    A classifier then takes each label for itself."""
    positives: str | None = setting(
        None,
        choices=("any", "all", "jaccard", *_SOFT_POSITIVES),
        used_by=_WITH_SUPCON,
    )
    """Of several labels, what makes images positives: a shared label (any, the
    default), the same labels (all), or any, weighted by the share of their
    labels that they have in common (jaccard). Of the soft labels of --mixing,
    how much positives weigh: the product of the labels of two images (soft, the
    default), or their cosine."""
    hierarchy: str | None = setting(None, used_by=_WITH_SUPCON, path=True)
    """Classes have parents, and SupCon contrasts at every level: names, where
    classes are called as in animal/dog/poodle, or a .csv, .tsv or .jsonl file
    with the columns class and parents (animal/dog)."""
    positives_cap: int | None = setting(None, at_least=1, used_by=_WITH_SUPCON)
    """Largest number of positives per anchor."""
    scale_by_temperature: bool = True
    """Multiply the loss by the temperature, as the paper does."""
    cross_replica: bool = True
    """Contrast with the views of all replicas."""
    paco_alpha: float = setting(
        0.05, above=0, used_by={"objective": ("paco", "paco+ce")}
    )
    """Weight of a positive beside that of its class' centre, of paco."""
    classifier_weight: float = setting(
        0.5, above=0, at_most=0.9999, used_by={"objective": _JOINT}
    )
    """lambda of the joint objectives: (1 - lambda) * loss of projections +
    lambda * cross-entropy."""
    label_smoothing: float = setting(
        0.0, at_least=0, at_most=0.9999, used_by=_WITH_CE
    )
    """Share of the weight of a label that cross-entropy spreads evenly over all
    classes; the paper's code has 0.05 on ImageNet."""
    logit_adjustment: float = setting(
        0.0, at_least=0, used_by={"objective": ("ce", *_JOINT)}
    )
    """Adds so much of the logarithm of a class' share of the training images to
    its logit in the loss, for long tails; Menon et al. 2021 have 1."""
    mixing: str = setting(
        "none", choices=("none", "mixup", "cutmix"), used_by=_WITH_SOFT_LABELS
    )
    """ce, supcon, supcon+ce: mix each image, all its views, and its label with
    another of the batch, by weighted sum (mixup) or by a pasted box (cutmix).
    SupCon then weighs its positives, see --positives."""
    mixing_alpha: float = setting(0.0, at_least=0)
    """Alpha of the Beta distribution of --mixing; 0 for the method's own, 0.2
    for mixup and 1 for cutmix."""
    queue_size: int = setting(0, at_least=0, used_by=_WITH_SUPCON)
    """Earlier projections, with their labels, that are contrasts too, made by a
    momentum encoder; 0 for none. The paper has 8192 (Sec. 4.1)."""
    encoder_momentum: float = setting(
        0.999, at_least=0, at_most=1, used_by=_WITH_SUPCON
    )
    """Share of its own weights that the momentum encoder of --queue_size keeps
    in a step."""
    gradient_cache_chunks: int = setting(
        1,
        at_least=1,
        used_by={"objective": (*OF_PROJECTIONS, *_JOINT)},
        common=True,
    )
    """Parts in which the batch of a device passes the encoder, one after the
    other in the memory of one part: the loss is still that of the whole batch,
    batch norm takes its statistics from a part."""

    def __post_init__(self):
        # Runs that are older than None have it recorded, of whatever labels.
        if self.positives == "any" and self.mixing == "none":
            object.__setattr__(self, "positives", None)
        super().__post_init__()

    def _check(self) -> None:
        minimum = self.num_views - 1
        if self.positives_cap is not None and self.positives_cap < minimum:
            raise exceptions.InvalidValue(
                f"--positives_cap must be at least {minimum}, the other views "
                f"of an anchor, got {self.positives_cap}"
            )
        self._check_mixing()
        if self.unsupervised_classes:
            condition = "with --unsupervised_classes"
            self._check_left_out(condition, "mixing", "hierarchy", "positives")
        if self.spread and self.num_views < 2:
            raise exceptions.InvalidValue(
                "--num_views must be at least 2 with --spread, which keeps "
                f"an image near its other views, got {self.num_views}"
            )
        if not self.queue_size:
            self._check_left_out("without --queue_size", "encoder_momentum")
        if self.hierarchy is not None:
            self._check_left_out("with --hierarchy", "queue_size")
        if self.traits.labels == "none" and self.num_views < 2:
            raise exceptions.InvalidValue(
                "--num_views must be at least 2 with "
                f"--objective={self.objective}, whose positives are other "
                f"views, got {self.num_views}"
            )
        if self.batch_size is not None:  # else once the run has resolved it
            self._check_sizes()

    def _check_mixing(self) -> None:
        """Raises ValueError for settings that do not go with --mixing."""
        if self.mixing == "none":
            self._check_left_out("with --mixing=none", "mixing_alpha")
            exceptions.require(
                self.positives not in _SOFT_POSITIVES,
                "--positives must be any, all or jaccard with --mixing=none, "
                "which leaves labels as they are",
                self.positives,
            )
            return
        condition = f"with --mixing={self.mixing}"
        self._check_left_out(condition, "hierarchy", "queue_size")
        exceptions.require(
            self.positives in (None, *_SOFT_POSITIVES),
            f"--positives must be soft or cosine {condition}",
            self.positives,
        )

    def _check_sizes(self) -> None:
        """Raises ValueError for a batch that objective or chunks do not fit."""
        if self.has_projections and self.batch_size < 2:
            raise exceptions.InvalidValue(
                f"--batch_size must be at least 2 with --objective="
                f"{self.objective}, which contrasts images, got 1"
            )
        self._check_pair("gradient_cache_chunks", "divide", "batch_size")

    @property
    def loss(self) -> str:
        """The objective without `+ce`."""
        return self.objective.removesuffix("+ce")

    @property
    def traits(self) -> Objective:
        """The inputs of the loss, and the words that describe it."""
        return OBJECTIVES[trust.choice(self.loss)]

    @property
    def uses_labels(self) -> bool:
        """Whether labels teach the encoder anything."""
        return self.traits.labels != "none" or self.is_joint

    @property
    def is_joint(self) -> bool:
        """Whether a classifier trains the encoder beside the projections."""
        return self.objective.endswith("+ce")

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels of a batch are shares of the classes."""
        return self.mixing != "none"

    @property
    def kind_of_positives(self) -> str | None:
        """The rule for positives of SupCon; None for one class per sample."""
        if self.has_soft_labels:
            return self.positives or "soft"
        return (self.positives or "any") if self.multi_label else None

    @property
    def loss_multiple(self) -> float | None:
        """The factor of a loss that has a temperature; None for others."""
        if self.is_joint or not self.traits.has_temperature:
            return None
        return self.temperature if self.scale_by_temperature else 1.0

    @property
    def has_projections(self) -> bool:
        """Whether the objective is one of projections, not of logits."""
        return self.traits.takes == "projections"

    @property
    def has_classifier(self) -> bool:
        """Whether a classifier is trained."""
        return self.is_joint or not self.has_projections
