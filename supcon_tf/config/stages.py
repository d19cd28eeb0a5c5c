"""Settings of both stages: the encoder, and the monitoring of a training."""

from __future__ import annotations

import dataclasses

from supcon_tf import defaults, exceptions, run_files
from supcon_tf.config import images, objectives, running
from supcon_tf.settings import Settings, field_of, setting

# The rule for a sub-directory of a run: a name that no other output has. Nor in
# other letters, which some file systems do not tell apart.
STAGE_NAME = (
    "be letters, digits, - and _, and none of "
    f"{', '.join(run_files.TAKEN_NAMES)}, got {{!r}}",
    lambda name: name.lower() not in run_files.TAKEN_NAMES
    and name.replace("_", "").replace("-", "").isalnum(),
)
_RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152, 200))
_ENCODERS = (*_RESNETS, "vgg8", "vgg16")
_WITH_RESNET = {"architecture": _RESNETS}
_WITH_ENCODERS = {"architecture": _ENCODERS}
_THREE_NUMBERS = ("be three numbers, got {}", lambda values: len(values) == 3)


@dataclasses.dataclass(frozen=True)
class EncoderSettings(Settings):
    """Which layers there are, and how wide."""

    architecture: str = setting(
        "resnet50",
        must=(
            f"be one of {', '.join(_ENCODERS)}, keras:NAME, keras_hub:PRESET "
            "or package.module:function, got {}",
            lambda name: name in _ENCODERS or all(name.partition(":")),
        ),
        common=True,
    )
    """Encoder: resnet18, 34, 50, 101, 152 or 200, vgg8 or vgg16; keras:NAME,
    a network of keras.applications, such as keras:MobileNetV2;
    keras_hub:PRESET, one of KerasHub, such as
    keras_hub:vit_base_patch16_224_imagenet21k, or a folder of one; or
    package.module:function that returns a Keras model, of Keras 2 or 3."""
    stem: str = setting(
        "auto", choices=("auto", "cifar", "imagenet"), used_by=_WITH_RESNET
    )
    """First layers of a ResNet: 3x3 stride 1 (cifar), 7x7 stride 2 and max
    pooling (imagenet), by image size: up to 64 is cifar (auto)."""
    stem_padding: str = setting(
        "same", choices=("same", "symmetric"), used_by=_WITH_RESNET
    )
    """Padding of the max pooling of the imagenet stem: same, as in the paper's
    code, or symmetric, as weights from torch need it."""
    width: float = setting(1.0, above=0, used_by=_WITH_ENCODERS, common=True)
    """Multiplier of all channels."""
    image_mean: tuple[float, ...] = setting(
        (0.5, 0.5, 0.5), must=_THREE_NUMBERS, used_by=_WITH_ENCODERS
    )
    """Mean subtracted from R,G,B in [0, 1]."""
    image_std: tuple[float, ...] = setting(
        (0.5, 0.5, 0.5), must=_THREE_NUMBERS, used_by=_WITH_ENCODERS
    )
    """Standard deviation that divides R,G,B."""
    zero_init_residual: bool = setting(False, used_by=_WITH_RESNET)
    """Start the last batch norm of each residual branch at 0, as in the paper's
    code: a deep ResNet then starts as a shallow one. Small and short runs learn
    slower from there, see docs/guides/training.md."""
    pooling: str = setting("auto", choices=defaults.POOLINGS)
    """keras_hub:PRESET, where it puts out tokens: the class token, the mean of
    the patches, or both, one behind the other; auto is the class token where
    there is one, else the mean."""
    lora_rank: int = setting(0, at_least=0)
    """keras_hub:PRESET: rank of low-rank updates of the attention's queries and
    values, which alone are trained then, with their biases; 0 trains all."""
    normalize_representation: bool = True
    """L2-normalise the encoder's output, as in Sec. 3.1."""
    hidden_dims: tuple[int, ...] = (2048,)
    """Hidden layers of the projection head; empty for a linear head."""
    projection_dim: int = setting(128, at_least=1)
    """Size of a projection."""
    projection_batch_norm: bool = True
    """Batch norm in the hidden layers of the projection head, which the paper
    does not have; docs/guides/training.md says why."""
    projection_bias: bool = False
    """A bias in the last layer of the projection head, as in the PyTorch
    reference."""

    def _check(self) -> None:
        if not self.architecture.startswith("keras_hub:"):
            self._check_left_out(
                f"with --architecture={self.architecture}, which is no "
                "keras_hub:PRESET",
                *("pooling", "lora_rank"),
            )


@dataclasses.dataclass(frozen=True)
class InitialSettings(Settings):
    """Weights that stage 1 starts from; random ones where none are given."""

    weights: str | None = setting(None, common=True, path=True)
    """Weights of the encoder: imagenet (of keras:NAME, as Keras publishes
    them), preset (of keras_hub:PRESET, its own), or a file .h5, .weights.h5 or
    .keras, or a SavedModel."""
    init_from: str | None = setting(None, common=True, path=True)
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
    """Whether `steps` is empty, or the first and the last step of a range."""
    return not steps or (len(steps) == 2 and 1 <= steps[0] <= steps[1])


@dataclasses.dataclass(frozen=True)
class MonitorSettings(Settings):
    """Measures and pictures beside the loss; none changes the encoder."""

    # The joint objectives have a classifier.
    online_classifier: bool = setting(
        False, used_by={"objective": objectives.OF_PROJECTIONS}
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
    objectives.ObjectiveSettings,
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
        if not self.has_projections:
            self._check_left_out(
                f"with --objective={self.objective}, which has no projection "
                "head",
                "init_head",
            )
        if self.multi_label is False and not self.has_soft_labels:
            self._check_left_out("with one label per image", "positives")
        if not self.multi_label:
            return
        names = objectives.names_by_labels("none", "any")
        exceptions.require(
            self.objective in names,
            f"--objective must be one of {', '.join(names)} for images of "
            "several labels",
            self.objective,
        )
        self._check_left_out(
            "for images of several labels",
            *("images_per_class", "images_per_label"),
            *("imbalance", "label_noise", "logit_adjustment", "hierarchy"),
            *("label_smoothing", "mixing", "queue_size", "knn_every"),
            "unsupervised_classes",
        )

    @property
    def has_classifier(self) -> bool:
        """Whether a classifier is trained, be it for the log alone."""
        return self.online_classifier or super().has_classifier


@dataclasses.dataclass(frozen=True)
class RecordedCodeSettings(Settings):
    """Code that the run names."""

    architecture: str | None = setting(None, resumable=True)
    """Of a run whose network is package.module:function, that name again: the
    module is code, which runs only where the command names it too."""


@dataclasses.dataclass(frozen=True)
class LinearSettings(
    RecordedCodeSettings,
    images.MovedDataSettings,
    images.BatchSettings,
    images.ViewSettings,
    images.AugmentationSettings,
    running.OptimizerSettings,
    running.DeviceSettings,
    running.CheckpointSettings,
):
    """Settings of tools/train_linear.py, stage 2.

    Data and encoder are those of the pretraining in run_dir. Without random
    crop, flip and augmentation the representations are computed only once, on
    one device.
    """

    LARGEST_BATCH = 512

    name: str = setting("linear", must=STAGE_NAME)
    """Sub-directory of run_dir that this stage writes."""
    augmentation: str = "identity"
    label_smoothing: float = field_of(
        objectives.ObjectiveSettings, "label_smoothing"
    )
    logit_adjustment: float = field_of(
        objectives.ObjectiveSettings, "logit_adjustment"
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
    epochs: int = setting(12, at_least=1)
    """Epochs of pretraining on the digits."""
