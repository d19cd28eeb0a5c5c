"""Settings of both stages: losses, encoder, and what a user sees of them."""

from __future__ import annotations

import dataclasses

from supcon_tf import defaults, exceptions
from supcon_tf.config import images, running
from supcon_tf.settings import Settings, setting, with_default

_TAKEN = ("checkpoints", "tensorboard", "export", "converted")
# The rule for a sub-directory of a run: a name that no other output has.
STAGE_NAME = (
    f"be letters, digits, - and _, and none of {', '.join(_TAKEN)}, got {{!r}}",
    lambda name: name not in _TAKEN
    and name.replace("_", "").replace("-", "").isalnum(),
)
_OF_PROJECTIONS = ("supcon", "simclr", "npairs", "triplet", "bcl", "paco")
_JOINT = tuple(f"{name}+ce" for name in _OF_PROJECTIONS)
# The objectives that alone use a setting.
_WITH_SUPCON = {"objective": ("supcon", "supcon+ce")}
_WITH_TRIPLET = {"objective": ("triplet", "triplet+ce")}
_WITH_MARGIN = {"objective": ("max_margin",)}
_WITH_CE = {"objective": ("ce",)}


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings(Settings):
    """The loss, the options of each, and what it is computed from."""

    num_views: int = setting(2, at_least=1)
    """Views per image in a multiviewed batch."""
    objective: str = setting(
        "supcon",
        choices=(*_OF_PROJECTIONS, "ce", "max_margin", *_JOINT),
        common=True,
    )
    """Loss of stage 1. On projections: supcon, simclr (labels unused), npairs,
    triplet; for long tails bcl (balanced contrastive) and paco (parametric
    contrastive), with a learned centre for each class. On the logits of a
    linear classifier that is trained with the encoder and needs no projection
    head: ce (cross-entropy), max_margin (large-margin softmax). Joint: a loss
    of projections and cross-entropy of the representation, +ce."""
    temperature: float = setting(defaults.TEMPERATURE, above=0, common=True)
    """Temperature tau of the loss: supcon, simclr, bcl and paco."""
    formulation: str = setting(
        "out", choices=("out", "in"), used_by=_WITH_SUPCON
    )
    """L_out (Eq. 2) or L_in (Eq. 3)."""
    denominator: str = setting(
        "all",
        choices=("all", "one_positive", "only_negatives"),
        used_by=_WITH_SUPCON,
    )
    """What the loss contrasts a positive with."""
    anchor_views: str = setting(
        "all", choices=("all", "first"), used_by=_WITH_SUPCON
    )
    """Views that serve as anchors."""
    multi_label: bool | None = setting(None, adaptive=True)
    """Whether an image may have several labels, or none; default: as the data
    have them. A classifier then takes each label for itself."""
    positives: str = setting(
        "any", choices=("any", "all", "jaccard"), used_by=_WITH_SUPCON
    )
    """Of several labels, what makes images positives: a shared label (any),
    the same labels (all), or any, weighted by the share of their labels that
    they have in common (jaccard)."""
    hierarchy: str | None = setting(None, used_by=_WITH_SUPCON)
    """Classes have parents, and SupCon contrasts at every level: names, where
    classes are called as in animal/dog/poodle, or a .csv, .tsv or .jsonl file
    with the columns class and parents (animal/dog)."""
    hierarchy_penalty: float = setting(2.0, at_least=1, used_by=_WITH_SUPCON)
    """Weight b^(1/h) of the level at height h, 1 for the classes."""
    positives_cap: int | None = setting(None, at_least=1, used_by=_WITH_SUPCON)
    """Largest number of positives per anchor."""
    scale_by_temperature: bool = True
    """Multiply the loss by the temperature, as the paper does."""
    cross_replica: bool = True
    """Contrast with the views of all replicas."""
    triplet_margin: float = setting(0.2, above=0, used_by=_WITH_TRIPLET)
    """Margin of the triplet loss, in squared distance; 2 * tau is equivalent to
    a contrastive loss of temperature tau."""
    triplet_mining: str = setting(
        "semi_hard", choices=("semi_hard", "hard"), used_by=_WITH_TRIPLET
    )
    """Triplets: all pairs with a semi-hard negative, or the hardest of each
    anchor."""
    paco_alpha: float = setting(
        0.05, above=0, used_by={"objective": ("paco", "paco+ce")}
    )
    """Weight of a positive beside that of its class' centre, of paco."""
    softmax_margin: float = setting(0.35, at_least=0, used_by=_WITH_MARGIN)
    """Margin of max_margin, subtracted from the cosine."""
    softmax_scale: float = setting(30.0, above=0, used_by=_WITH_MARGIN)
    """Scale of the cosines of max_margin."""
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
    logit_adjustment: float = setting(0.0, at_least=0, used_by=_WITH_CE)
    """Adds so much of the logarithm of a class' share of the training images to
    its logit in the loss, for long tails; Menon et al. 2021 have 1."""
    mixing: str = setting(
        "none", choices=("none", "mixup", "cutmix"), used_by=_WITH_CE
    )
    """ce: mix each image and its label with another of the batch, by weighted
    sum (mixup) or by a pasted box (cutmix)."""
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
        used_by={"objective": (*_OF_PROJECTIONS, *_JOINT)},
        common=True,
    )
    """Parts in which the batch of a device passes the encoder, one after the
    other in the memory of one part: the loss is still that of the whole batch,
    batch norm takes its statistics from a part."""

    def _check(self) -> None:
        least = self.num_views - 1
        if self.positives_cap is not None and self.positives_cap < least:
            raise exceptions.InvalidValue(
                f"--positives_cap must be at least {least}, the other views "
                f"of an anchor, got {self.positives_cap}"
            )
        if self.mixing == "none":
            self._check_left_out("with --mixing=none", "mixing_alpha")
        if not self.queue_size:
            self._check_left_out("without --queue_size", "encoder_momentum")
        if self.hierarchy is None:
            self._check_left_out("without --hierarchy", "hierarchy_penalty")
        else:
            self._check_left_out("with --hierarchy", "queue_size")
        if self.loss == "simclr" and self.num_views < 2:
            raise exceptions.InvalidValue(
                "--num_views must be at least 2 with "
                f"--objective={self.objective}, whose positives are other "
                f"views, got {self.num_views}"
            )
        if self.batch_size is not None:  # else once the run has resolved it
            self._check_sizes()

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
    def is_joint(self) -> bool:
        """Whether a classifier trains the encoder beside the projections."""
        return self.objective.endswith("+ce")

    @property
    def loss_multiple(self) -> float | None:
        """What these alone come multiplied by; None for others."""
        if self.objective not in ("supcon", "simclr", "bcl", "paco"):
            return None
        return self.temperature if self.scale_by_temperature else 1.0

    @property
    def has_projections(self) -> bool:
        """Whether the objective is one of projections, not of logits."""
        return self.loss in _OF_PROJECTIONS


_RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152, 200))
_OWN = (*_RESNETS, "vgg8", "vgg16")
_OF_OWN = {"architecture": _OWN}
_BE_THREE = ("be three numbers, got {}", lambda values: len(values) == 3)


@dataclasses.dataclass(frozen=True)
class EncoderSettings(Settings):
    """Which layers there are, and how wide."""

    architecture: str = setting(
        "resnet50",
        must=(
            f"be one of {', '.join(_OWN)}, keras:NAME or "
            "package.module:function, got {}",
            lambda name: name in _OWN or all(name.partition(":")),
        ),
        common=True,
    )
    """Encoder: resnet18, 34, 50, 101, 152 or 200, vgg8 or vgg16; keras:NAME,
    a network of tf.keras.applications, such as keras:MobileNetV2; or
    package.module:function that returns a Keras model."""
    stem: str = setting(
        "auto", choices=("auto", "cifar", "imagenet"), used_by=_OF_OWN
    )
    """First layers of a ResNet: 3x3 stride 1 (cifar), 7x7 stride 2 and max
    pooling (imagenet), by image size: up to 64 is cifar (auto)."""
    stem_padding: str = setting(
        "same",
        choices=("same", "symmetric"),
        used_by={"architecture": _RESNETS},
    )
    """Padding of the max pooling of the imagenet stem: same, as in the paper's
    code, or symmetric, as weights from torch need it."""
    width: float = setting(1.0, above=0, used_by=_OF_OWN, common=True)
    """Multiplier of all channels."""
    image_mean: tuple[float, ...] = setting(
        (0.5, 0.5, 0.5), must=_BE_THREE, used_by=_OF_OWN
    )
    """Mean subtracted from R,G,B in [0, 1]."""
    image_std: tuple[float, ...] = setting(
        (0.5, 0.5, 0.5), must=_BE_THREE, used_by=_OF_OWN
    )
    """Standard deviation that divides R,G,B."""
    zero_init_residual: bool = setting(
        False, used_by={"architecture": _RESNETS}
    )
    """Start the last batch norm of each residual branch at 0, as in the paper's
    code: a deep ResNet then starts as a shallow one. Small and short runs learn
    slower from there, see docs/TRAINING.md."""
    normalize_representation: bool = True
    """L2-normalise the encoder's output, as in Sec. 3.1."""
    hidden_dims: tuple[int, ...] = (2048,)
    """Hidden layers of the projection head; empty for a linear head."""
    projection_dim: int = setting(128, at_least=1)
    """Size of a projection."""
    projection_batch_norm: bool = True
    """Batch norm in the hidden layers of the projection head, which the paper
    does not have; docs/TRAINING.md says why."""
    projection_bias: bool = False
    """A bias in the last layer of the projection head, as in the PyTorch
    reference."""

    def _check(self) -> None:
        if self.architecture.startswith("vgg") and self.stem != "auto":
            raise exceptions.InvalidValue(
                f"--stem must be auto for {self.architecture}, which has no "
                f"choice of stem, got {self.stem}"
            )


@dataclasses.dataclass(frozen=True)
class InitialSettings(Settings):
    """Weights that stage 1 starts from; random ones where none are given."""

    weights: str | None = setting(None, common=True)
    """Weights of the encoder: imagenet (of keras:NAME, as Keras publishes
    them), or a file .h5, .weights.h5 or .keras, or a SavedModel."""
    init_from: str | None = setting(None, common=True)
    """Run directory whose encoder is taken, with its architecture: of other
    data, classes and image size."""
    init_head: bool = False
    """Take the projection head of --init_from too."""

    def _check(self) -> None:
        if self.init_from is None:
            self._check_left_out("without --init_from", "init_head")
        else:
            self._check_left_out("with --init_from", "weights")


@dataclasses.dataclass(frozen=True)
class FreezingSettings(Settings):
    """What of given weights trains, and how fast."""

    freeze: tuple[str, ...] = ()
    """Layers of the encoder that do not train, by the beginnings of their
    names; a wrong one lists the names."""
    freeze_batch_norm: bool = False
    """All batch norm of the encoder keeps its weights and statistics."""
    layer_decay: float = setting(1.0, above=0, at_most=1)
    """Factor of the learning rate from a layer of the encoder to the one
    before it; the head and the classifier have the whole rate."""


def _are_steps(steps: tuple[int, ...]) -> bool:
    return not steps or (len(steps) == 2 and 1 <= steps[0] <= steps[1])


@dataclasses.dataclass(frozen=True)
class MonitorSettings(Settings):
    """Measures and pictures beside the loss; none changes the encoder."""

    # The joint objectives have a classifier.
    online_classifier: bool = setting(
        False, used_by={"objective": _OF_PROJECTIONS}
    )
    """Train a linear classifier beside the encoder, behind a stopped gradient:
    its accuracy shows in the log."""
    knn_every: int = setting(0, at_least=0, resumable=True, common=True)
    """Epochs between k-NN accuracies of the test split, by the representations
    of the training split; 0 for none. For watching: choosing by it would be
    choosing on the test split."""
    profile: tuple[int, ...] = setting(
        (),
        must=("be empty or two steps 1 <= first <= last, got {}", _are_steps),
        resumable=True,
    )
    """First and last step of a profile for TensorBoard, counted from where the
    tool starts or goes on; empty for none."""


@dataclasses.dataclass(frozen=True)
class PretrainSettings(
    images.DataSettings,
    images.PartSettings,
    ObjectiveSettings,
    images.BatchSettings,
    images.ViewSettings,
    images.AugmentationSettings,
    EncoderSettings,
    InitialSettings,
    FreezingSettings,
    running.OptimizerSettings,
    running.DeviceSettings,
    running.CheckpointSettings,
    MonitorSettings,
):
    """Settings of tools/pretrain.py, stage 1."""

    RMSPROP_EPSILON = 1.0

    def _check(self) -> None:
        if self.multi_label is False:
            self._check_left_out("with one label per image", "positives")
        if not self.multi_label:
            return
        known = "supcon", "simclr", "ce", "supcon+ce", "simclr+ce"
        exceptions.require(
            self.objective in known,
            f"--objective must be one of {', '.join(known)} for images of "
            "several labels",
            self.objective,
        )
        self._check_left_out(
            "for images of several labels",
            *("images_per_class", "images_per_label", "train_fraction"),
            *("imbalance", "label_noise", "logit_adjustment", "hierarchy"),
            *("label_smoothing", "mixing", "queue_size", "knn_every"),
        )


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
    label_smoothing: float = with_default(ObjectiveSettings, "label_smoothing")
    logit_adjustment: float = with_default(
        ObjectiveSettings, "logit_adjustment"
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
