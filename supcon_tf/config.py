"""Settings: one frozen dataclass per tool.

Every default and help text is written here, once; the flags of tools/ and the
checks follow from it (settings.py). TensorFlow is not imported.
"""

from __future__ import annotations

import dataclasses

from supcon_tf import settings

# What tools/bench_loss.py can measure.
LOSS_IMPLEMENTATIONS = (
    "tiled",
    "looped",
    "dense",
    "floor",
    "official",
    "supcontrast",
    "pml",
)

# Settings of a loss that its objective alone uses.
_OBJECTIVE_OF = {
    "formulation": "supcon",
    "denominator": "supcon",
    "anchor_views": "supcon",
    "positives_cap": "supcon",
    "triplet_margin": "triplet",
    "triplet_mining": "triplet",
    "softmax_margin": "max_margin",
    "softmax_scale": "max_margin",
}


@dataclasses.dataclass(frozen=True)
class _ViewSettings(settings.Settings):
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
class _OptimizerSettings(settings.Settings):
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


@dataclasses.dataclass(frozen=True)
class PretrainSettings(_ViewSettings, _OptimizerSettings):
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
    dataset: str = settings.setting(
        "digits",
        "digits (embedded), folder (one sub-folder of images per class in "
        "--data_dir), or tfds:NAME.",
    )
    data_dir: str | None = settings.setting(
        None, "Folder of the images, or of the prepared TFDS data sets."
    )
    image_size: int | None = settings.setting(
        None,
        "Side of the views in pixels; default: that of the images, where all "
        "are squares of one size.",
        at_least=8,
    )
    test_fraction: float = settings.setting(
        0.2,
        "Share of a folder without train/ and test/ that is held out.",
        above=0,
        at_most=0.9,
    )
    split_seed: int = settings.setting(0, "Seed of that split.", at_least=0)
    check_images: bool = settings.setting(
        True, "Decode every file of a folder once before the run starts."
    )
    skip_bad_images: bool = settings.setting(
        False, "Skip and count files that are no images, instead of stopping."
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

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        if self.dataset == "folder" and not self.data_dir:
            raise ValueError("--data_dir must be given with --dataset=folder")
        if self.skip_bad_images and not self.check_images:
            raise ValueError(
                "--skip_bad_images must come with --check_images, which "
                "finds them"
            )
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


@dataclasses.dataclass(frozen=True)
class LinearSettings(_ViewSettings, _OptimizerSettings):
    """Settings of tools/train_linear.py, stage 2.

    Data and encoder are those of the pretraining in run_dir. Without random
    crop, flip and augmentation the representations are computed only once.
    """

    name: str = settings.setting(
        "linear", "Sub-directory of run_dir that this stage writes."
    )
    overwrite: bool = settings.setting(
        False, "Replace what an earlier run left there.", recorded=False
    )
    batch_size: int = settings.with_default(_ViewSettings, "batch_size", 512)
    augmentation: str = settings.with_default(
        _ViewSettings, "augmentation", "identity"
    )
    learning_rate: float = settings.with_default(
        _OptimizerSettings, "learning_rate", 2.5
    )
    warmup_epochs: float = settings.with_default(
        _OptimizerSettings, "warmup_epochs", 0.0
    )
    weight_decay: float = settings.with_default(
        _OptimizerSettings, "weight_decay", 0.0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        _check_stage_name("name", self.name)


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(settings.Settings):
    """Settings of tools/evaluate.py."""

    linear_stage: str = settings.setting(
        "linear", "Name of the linear stage whose classifier is evaluated."
    )
    batch_size: int = settings.setting(
        256, "Images per step; without effect on the result.", at_least=1
    )
    knn_neighbors: int = settings.setting(
        200, "k of the k-nearest-neighbour classifier.", at_least=1
    )
    knn_temperature: float = settings.setting(
        0.07, "Temperature of the neighbours' votes.", above=0
    )
    calibration_bins: int = settings.setting(
        15, "Bins of the expected calibration error.", at_least=1
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_stage_name("linear_stage", self.linear_stage)


@dataclasses.dataclass(frozen=True)
class ExportSettings(settings.Settings):
    """Settings of tools/export.py."""

    linear_stage: str = settings.setting(
        "linear", "Name of the linear stage whose classifier is exported."
    )
    version: int | None = settings.setting(
        None,
        "Number of the sub-directory of export/; default: one more than the "
        "newest there.",
        at_least=1,
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        _check_stage_name("linear_stage", self.linear_stage)


@dataclasses.dataclass(frozen=True)
class DemoSettings(settings.Settings):
    """Settings of tools/demo.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/demo"
    )
    epochs: int = settings.setting(
        24, "Epochs of pretraining on the digits.", at_least=1
    )


@dataclasses.dataclass(frozen=True)
class BenchLossSettings(settings.Settings):
    """Settings of tools/bench_loss.py."""

    run_dir: str = settings.with_default(
        settings.Settings, "run_dir", "runs/bench_loss"
    )
    rows: tuple[int, ...] = settings.setting(
        (512, 2048, 4096, 8192, 12288),
        "Sizes: rows of the similarity matrix, batch times views.",
    )
    implementations: str = settings.setting(
        "all",
        f"Which of {','.join(LOSS_IMPLEMENTATIONS)}; all: those that are "
        "installed or given. looped is tiled in its least memory; floor is "
        "the matrix products and exponentials alone; pml is "
        "pytorch-metric-learning.",
    )
    official_path: str | None = settings.setting(
        None,
        "Python file with contrastive_loss(features, one_hot_labels, "
        "temperature=): supcon/losses.py of google-research, in place.",
    )
    supcontrast_path: str | None = settings.setting(
        None,
        "Python file with SupConLoss(temperature, base_temperature): "
        "losses.py of HobbitLong/SupContrast; needs PyTorch.",
    )
    rounds: int = settings.setting(
        3, "Processes per point, all implementations in turn.", at_least=1
    )
    seconds: float = settings.setting(
        2.0,
        "Seconds of timed steps per process; three steps at least.",
        at_least=0,
    )
    threads: int = settings.setting(
        0, "Threads of every process; 0 for all cores.", at_least=0
    )
    max_memory_gb: float = settings.setting(
        8.0, "Skip points that are expected to need more.", above=0
    )
    accuracy: bool = settings.setting(
        False, "Also compare our gradients with a float64 oracle."
    )
    dim: int = settings.setting(128, "Size of a projection.", at_least=1)
    views: int = settings.setting(2, "Views per sample.", at_least=1)
    classes: int = settings.setting(1000, "Number of classes.", at_least=1)
    temperature: float = settings.setting(0.1, "Temperature tau.", above=0)
    seed: int = settings.setting(
        0, "Seed of projections and labels.", at_least=0
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        for rows in self.rows or (0,):
            if rows < 2 or rows % self.views:
                raise ValueError(
                    "--rows must be multiples of --views, at least 2, got "
                    f"{settings.to_text(self.rows)}"
                )
        known = ("all", *LOSS_IMPLEMENTATIONS)
        names = self.implementations.split(",")
        for name in names:
            if name not in known or ("all" in names and len(names) > 1):
                raise ValueError(
                    f"--implementations must be all, or some of "
                    f"{', '.join(known[1:])}, got {self.implementations}"
                )
            if name in ("official", "supcontrast"):
                if getattr(self, f"{name}_path") is None:
                    raise ValueError(f"--{name}_path must be given for {name}")


def _check_stage_name(flag: str, name: str) -> None:
    """A stage is a plain sub-directory that no other output uses."""
    taken = ("checkpoints", "tensorboard", "export")
    if not name.replace("_", "").replace("-", "").isalnum() or name in taken:
        raise ValueError(
            f"--{flag} must be letters, digits, - and _, and none of "
            f"{', '.join(taken)}, got {name!r}"
        )
