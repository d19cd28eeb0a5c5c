"""Settings of the tools that measure runs, on any data, and show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from supcon_tf import defaults, exceptions
from supcon_tf.config import images, objectives, running, stages, texts
from supcon_tf.host import trust
from supcon_tf.settings import Settings, field_of, setting

# The benchmark's order, Sec. 4.1 of https://arxiv.org/abs/1903.12261.
CORRUPTIONS = tuple(
    "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur "
    "motion_blur zoom_blur snow frost fog brightness contrast "
    "elastic_transform pixelate jpeg_compression".split()
)
_LINEAR = {"method": ("linear",)}
_FINETUNE = {"method": ("finetune",)}
# Fewer images of a label cannot be halved into two that say anything.
_LEAST_IMAGES = 4


def _different(
    numbers: str, holds: Callable[[float], bool]
) -> tuple[str, Callable[[tuple[float, ...]], bool]]:
    """Returns a rule for a setting: its words, and the test of its numbers."""
    return (
        f"be different {numbers}, got {{}}",
        lambda values: 0 < len(values) == len(set(values))
        and all(map(holds, values)),
    )


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(
    stages.RecordedCodeSettings,
    images.MovedDataSettings,
    texts.MovedTextsSettings,
):
    """Settings of tools/evaluate.py."""

    linear_stage: str = setting("linear", must=stages.STAGE_NAME)
    """Name of the linear stage whose classifier is evaluated."""
    drop_duplicates: bool = False
    """Leave test examples out that are, byte for byte, training examples, also
    of a run that was trained without this flag."""
    batch_size: int = setting(256, at_least=1)
    """Images per step, over all replicas; without effect on the result."""
    strategy: str = setting(
        "auto",
        choices=tuple(
            name for name in defaults.STRATEGIES if name != "multi_worker"
        ),
    )
    """Distribution: one device, all devices of this machine (mirrored), a TPU
    (tpu), or by what is there (auto)."""
    tpu: str | None = setting(None, used_by=running.WITH_TPU)
    """Name or grpc:// address of the TPU of --strategy=tpu, or local."""
    knn_neighbors: int | None = setting(None, at_least=1)
    """k of the k-nearest-neighbour classifiers; default: 200, at most as many
    as the smallest class has training images, at least 5."""
    knn_temperature: float = setting(0.07, above=0)
    """Temperature of the weighted votes of the neighbours."""
    knn_leave_one_out: bool = False
    """Classify the training images too, each by its neighbours among the
    others: what to choose k and temperature by."""
    label_issues: int = setting(0, at_least=0)
    """Training examples, at most, in label_issues.csv: those whose neighbours
    among the others, no more than their class has, contradict their label."""
    shots: tuple[int, ...] = setting(
        (20, 100),
        must=(
            "be two numbers, the first one lower, got {}",
            lambda shots: len(shots) == 2 and 0 <= shots[0] < shots[1],
        ),
    )
    """Of a long tail: classes with fewer training images than the first number
    are few-shot, with more than the second many-shot."""
    hierarchy: str | None = setting(None, path=True)
    """Parents of the classes, to measure mistakes by: names, or a file, as of
    tools/pretrain.py. Default: those that the run was trained with."""
    bank_images: int | None = setting(None, at_least=0)
    """Training images, at most, that neighbours and prototypes are made of,
    evenly spread; 0 for no such measures, and no samples. Default: all. Their
    representations stay in the run, 4 bytes for each number, and are read from
    there the next time."""
    calibration_bins: int = setting(15, at_least=1)
    """Bins of the expected calibration error."""
    measures: tuple[str, ...] = setting(
        (),
        must=(
            "be package.module:function, or several with commas, got {}",
            lambda names: all(map(trust.names_module, names)),
        ),
    )
    """Measures of your own, package.module:function of the representations and
    labels of the test images (docs/guides/your_own.md)."""
    unknown_data: str | None = setting(None, path=True)
    """Folder of images of other classes than those of the run: whether cosines,
    distances and probabilities tell them from the test images. Default: the
    test images of the run's --unknown_classes."""
    # An evaluation without the flag has the same result as before it existed.
    skip_bad_images: bool = setting(False, resumable=True)
    """Skip and name images of --unknown_data that cannot be read, instead of
    stopping. The images of the run are as its training read them."""
    corruptions: str = setting(
        "none",
        must=(
            "be none, generated or tfds:NAME, got {}",
            lambda name: name in ("none", "generated")
            or name.startswith("tfds:"),
        ),
    )
    """Corrupted test images: none, generated (the 15 corruptions of ImageNet-C
    made here, of any data set of at least 32 pixels, with its parameters at
    every size: CIFAR-10-C's own are milder, not to be compared), or tfds:NAME
    of a set with a configuration per corruption and severity, such as
    tfds:imagenet2012_corrupted or tfds:cifar10_corrupted."""
    corruption_names: tuple[str, ...] = setting(
        CORRUPTIONS, choices=CORRUPTIONS, must=("name one, got none", bool)
    )
    """Which of the 15 corruptions."""
    corruption_severities: tuple[int, ...] = setting(
        (1, 2, 3, 4, 5),
        must=_different("numbers in 1..5", lambda number: 1 <= number <= 5),
    )
    """Which severities, of 1 to 5."""
    corruption_images: int | None = setting(None, at_least=1)
    """Number of test images to corrupt, drawn once and the same for every
    corruption; default: all."""
    reference_evaluation: str | None = setting(None, path=True)
    """What corruption errors are divided by for the mCE: an evaluation.json of
    another run on the same corruptions, or alexnet, the published errors on
    ImageNet."""
    sample_images: int = setting(8, at_least=0)
    """Test images whose nearest neighbours the report shows; 0 for none."""
    plotted_images: int = setting(2000, at_least=0)
    """Test images, at most, in the plot of representations and in TensorBoard's
    projector; 0 for none."""
    plane: str = setting("tsne", choices=("tsne", "pca"))
    """How representations become points of the plane."""

    def _check(self) -> None:
        if self.bank_images == 0:
            self._check_left_out(
                "with --bank_images=0",
                *("knn_neighbors", "knn_temperature", "unknown_data"),
            )
        if self.bank_images in (0, 1):  # nothing is left beside one image
            self._check_left_out(
                f"with --bank_images={self.bank_images}",
                *("knn_leave_one_out", "label_issues"),
            )
        if not self.unknown_data:
            self._check_left_out("without --unknown_data", "skip_bad_images")
        if self.corruptions == "none":
            self._check_left_out(
                "with --corruptions=none",
                *("corruption_names", "corruption_severities"),
                *("corruption_images", "reference_evaluation"),
            )


@dataclasses.dataclass(frozen=True)
class TransferSettings(
    stages.RecordedCodeSettings,
    images.DataSettings,
    images.BatchSettings,
    images.ViewSettings,
    images.AugmentationSettings,
    stages.FreezingSettings,
    running.DeviceSettings,
):
    """Settings of tools/transfer.py.

    The encoder is that of the pretraining in run_dir, the data are another
    set. The protocol is that of Appendix B.8 of SimCLR, arXiv 2002.05709.
    """

    DEFAULT_DATASET = None

    name: str = setting("transfer", must=stages.STAGE_NAME)
    """Sub-directory of run_dir that this tool writes."""
    overwrite: bool = field_of(running.CheckpointSettings, "overwrite")
    resume: bool = field_of(running.CheckpointSettings, "resume")
    checkpoint_steps: int | None = field_of(
        running.CheckpointSettings, "checkpoint_steps"
    )
    method: str = setting("linear", choices=("linear", "finetune"))
    """linear: logistic regression on representations of the frozen encoder, by
    L-BFGS. finetune: encoder and a new classifier, by SGD."""
    image_size: int | None = setting(None, at_least=8)
    """Side of the views in pixels; default: that of the pretraining."""
    batch_size: int | None = setting(256, at_least=1)
    """Images per step over all replicas, as many as there are at most."""
    augmentation: str = "identity"
    validation_fraction: float = setting(0.2, above=0, at_most=0.9)
    """Share of each label's training images by which a sweep is judged; the
    chosen value is then trained on all of them."""
    select_by: str | None = setting(
        None, choices=("top_1", "mean_recall", "map", "map_11_point")
    )
    """What a sweep is judged by: accuracy (top_1, the default) or the mean over
    labels of theirs (mean_recall); for images of several labels mean average
    precision (map, the default) or that of VOC 2007 (map_11_point). Of equal
    ones the lower negative log-likelihood."""
    l2_values: int = setting(45, at_least=2, used_by=_LINEAR)
    """linear: how many l2 strengths from 1e-6 to 1e5 are tried; logarithmically
    spaced."""
    l2: float | None = setting(None, above=0)
    """linear: this strength, and no sweep. finetune with --objective=supcon:
    that of its classifier, default 0.1."""
    objective: str = setting(
        "ce", choices=("ce", "supcon", "supcon+ce"), used_by=_FINETUNE
    )
    """finetune: cross-entropy of a new classifier (ce); SupCon with a new
    projection head, then logistic regression on the representations (supcon);
    or both losses at once (supcon+ce). The loss is not multiplied by the
    temperature."""
    temperature: float = field_of(objectives.ObjectiveSettings, "temperature")
    classifier_weight: float = field_of(
        objectives.ObjectiveSettings, "classifier_weight"
    )
    label_smoothing: float = field_of(
        objectives.ObjectiveSettings, "label_smoothing"
    )
    steps: int = setting(5000, at_least=1, used_by=_FINETUNE)
    """finetune: optimizer steps of each training. SimCLR has 20,000, which for
    its grid of 56 trainings is the work of a cluster."""
    learning_rates: tuple[float, ...] = setting(
        (0.1,),
        must=_different("numbers, each above 0", lambda rate: rate > 0),
        used_by=_FINETUNE,
    )
    """finetune: learning rates to try, as they are, for any batch. SimCLR has 7
    from 1e-4 to 0.1, logarithmically spaced, for representations that are not
    of unit length."""
    weight_decays: tuple[float, ...] = setting(
        (0.0,),
        must=_different("numbers, each at least 0", lambda decay: decay >= 0),
        used_by=_FINETUNE,
    )
    """finetune: weight decays to try, divided by the learning rate. SimCLR has
    0 and 7 from 1e-6 to 1e-3, logarithmically spaced."""
    images_per_label: int | None = setting(None, at_least=1)
    """Few-shot: training images of each label, drawn at random; half of them
    judge a sweep, which needs 4. Default: all there are."""
    repeats: int = setting(1, at_least=1)
    """Few-shot: how many different draws."""

    def _check(self) -> None:
        running.check_start(self)
        if self.method == "finetune" and self.objective != "supcon":
            self._check_left_out(
                f"with --method=finetune --objective={self.objective}", "l2"
            )
        if self.method == "linear":  # settings of the groups
            self._check_left_out(
                "with --method=linear: only finetune can use it",
                *("augmentation", "crop_area", "horizontal_flip"),
                *("images_per_class", "data_service", "freeze", "temperature"),
                *("freeze_batch_norm", "layer_decay", "checkpoint_steps"),
                "label_smoothing",
            )
        if self.l2 is not None:
            self._check_left_out(
                "with --l2, which is the one strength", "l2_values"
            )
        if self.images_per_label is None:
            if self.repeats > 1:
                raise exceptions.InvalidValue(
                    "--repeats must come with --images_per_label, whose draws "
                    f"differ, got {self.repeats}"
                )
            return
        self._check_left_out(
            "with --images_per_label, half of which are held out",
            "validation_fraction",
        )
        if self.sweeps and self.images_per_label < _LEAST_IMAGES:
            remedies = {"linear": "--l2", "finetune": "one value each"}
            raise exceptions.InvalidValue(
                f"--images_per_label must be at least {_LEAST_IMAGES} for a "
                f"sweep, got {self.images_per_label}: give "
                f"{remedies[self.method]} instead"
            )

    @property
    def sweeps(self) -> bool:
        """Whether there is more than one value to choose from."""
        if self.method == "linear":
            return self.l2 is None
        return len(self.learning_rates) * len(self.weight_decays) > 1


@dataclasses.dataclass(frozen=True)
class ReportSettings(Settings):
    """Settings of tools/report.py."""

    run_dir: str = "runs/report"
    """Directory that report.html is written into."""
    runs: tuple[str, ...] = setting((), path=True)
    """Run directories, or linear stages of them, also as arguments without a
    flag; the others are compared with the first."""


@dataclasses.dataclass(frozen=True)
class MakeTfrecordsSettings(images.DataSettings):
    """Settings of tools/make_tfrecords.py."""

    SKIPS_RECORDS = True

    run_dir: str = "runs/tfrecords"
    """Directory that the files are written into."""
    seed: int = setting(0, at_least=0)
    """Seed of the order of the images."""


@dataclasses.dataclass(frozen=True)
class ShowAugmentSettings(
    images.DataSettings, images.ViewSettings, images.AugmentationSettings
):
    """Settings of tools/show_augment.py."""

    run_dir: str = "runs/show_augment"
    dataset: str | None = None
    """As of tools/pretrain.py; a folder may also have images without
    sub-folders."""
    images: int = setting(6, at_least=1)
    """Images in views.png, a row each."""
    views: int = setting(8, at_least=1)
    """Views of each image in views.png."""
