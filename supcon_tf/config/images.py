"""Groups of settings that several tools share: images, views, batches."""

from __future__ import annotations

import dataclasses
import itertools

from supcon_tf import datasets, defaults, exceptions
from supcon_tf.host import trust
from supcon_tf.settings import Settings, setting

# Arguments of `data.load` that few kinds take: why others do not, and settings.
_RARE_ARGUMENTS = (
    ("channels", "which is read as RGB", "channels"),
    ("tfds_split", "which is no set of TFDS", "train_split", "test_split"),
    ("data_dir", "which are embedded", "data_dir"),
)


@dataclasses.dataclass(frozen=True)
class DataSettings(Settings):
    """Which images, and the size of their views."""

    # The data set where neither --dataset nor --data_dir is given; None makes
    # this an error.
    DEFAULT_DATASET = "digits"
    # Whether bad images of TFRecord files are left out, as far as asked for.
    SKIPS_RECORDS = False

    dataset: str | None = setting(None, common=True)
    """digits (embedded), folder (one sub-folder of images per class in
    --data_dir), manifest (a .csv, .tsv or .jsonl of paths and labels), tfrecord
    (files as of tools/make_tfrecords.py), tfds:NAME, or package.module:function
    of your own (docs/guides/your_own.md); default: manifest where --data_dir
    ends so, folder where it is something else."""
    data_dir: str | None = setting(None, resumable=True, common=True, path=True)
    """Folder of the images, manifest, folder of TFRecord files, or of the
    prepared TFDS sets."""
    tfrecord_features: tuple[str, ...] = setting(
        defaults.TFRECORD_FEATURES,
        must=("be three names, got {}", lambda names: len(names) == 3),
        used_by={"dataset": ("tfrecord",)},
    )
    """TFRecord: features of the encoded image, of its label, an integer or a
    text, and of the name of an integer, which need not be there."""
    train_split: str | None = None
    """TFDS: what is trained on, in its syntax, such as train+validation;
    default: train."""
    test_split: str | None = None
    """TFDS: what is tested on; default: test or, without labels there,
    validation."""
    image_size: int | None = setting(None, at_least=8, common=True)
    """Side of the views in pixels; default: that of the images, where all are
    squares of one size."""
    channels: int = setting(
        3, must=("be 1 or 3, got {}", lambda number: number in (1, 3))
    )
    """Channels of the images: 3, or 1 for a TFDS set, or a function of your
    own, of one channel, as it is."""
    test_fraction: float = setting(0.2, above=0, at_most=0.9)
    """Share that is held out of a folder without train/ and test/, or of a
    manifest without a split: each image by a hash of its file name, whatever
    other files there are."""
    split_seed: int = setting(0, at_least=0)
    """Seed of that split."""
    split_by: str = setting("image", choices=defaults.SPLIT_BY)
    """What that split holds out: images of every class, or whole classes, which
    training never sees; tools/evaluate.py then measures retrieval among their
    images."""
    unknown_classes: tuple[str, ...] = ()
    """Classes whose images are neither trained nor tested on; tools/evaluate.py
    says how well the run tells their test images from the others."""
    check_images: bool = setting(True, resumable=True)
    """Decode every image before the run starts, if no tool has done so since
    its file was changed."""
    skip_bad_images: bool = setting(False, common=True)
    """Skip and name images that cannot be read, instead of stopping."""
    drop_duplicates: bool = setting(False, resumable=True, measured=True)
    """Leave test images out that are, byte for byte, training images."""

    def __post_init__(self):
        if self.dataset is None:
            dataset = self.DEFAULT_DATASET
            if self.data_dir:
                dataset = datasets.name_by_path(self.data_dir, "folder")
            object.__setattr__(self, "dataset", dataset)
        super().__post_init__()

    def _check(self) -> None:
        if self.dataset is None:
            raise exceptions.InvalidValue(
                "--data_dir or --dataset must be given"
            )
        # `data.load` says which kinds there are.
        default_kind = datasets.Kind(needs_path=False)
        kind = datasets.KINDS.get(
            datasets.name_of_kind(self.dataset), default_kind
        )
        condition = f"with --dataset={self.dataset}"
        for argument, reason, *names in _RARE_ARGUMENTS:
            if argument not in kind.takes:
                self._check_left_out(f"{condition}, {reason}", *names)
        if kind.needs_path and not self.data_dir:
            raise exceptions.InvalidValue(
                f"--data_dir must be given {condition}"
            )
        if not (kind.skips_images or self.SKIPS_RECORDS):
            self._check_left_out(
                f"{condition}: tools/make_tfrecords.py, with this flag, writes "
                "the files anew without the bad images",
                "skip_bad_images",
            )
        if self.skip_bad_images and not self.check_images:
            raise exceptions.InvalidValue(
                "--skip_bad_images must come with --check_images, which "
                "finds them"
            )
        if self.drop_duplicates and not self.check_images:
            raise exceptions.InvalidValue(
                "--drop_duplicates must come with --check_images, which "
                "compares them"
            )

    def default_image_size(self, side: int | None) -> int | None:
        """Returns the side of the views for images of this side, or None."""
        return side


@dataclasses.dataclass(frozen=True)
class MovedDataSettings(Settings):
    """Where the data of the run are by now."""

    data_dir: str | None = setting(None, recorded=False, common=True, path=True)
    """Where the images of the run are by now, in place of the path that it has
    recorded, for this call; tools/pretrain.py --resume --data_dir=NEW records
    the new one. Default: the recorded one, or where they have moved together
    with the run."""
    dataset: str | None = setting(None, resumable=True)
    """Of a run whose data set is package.module:function, that name again, as
    --architecture."""


@dataclasses.dataclass(frozen=True)
class PartSettings(Settings):
    """A part of the training images: the reduced data of Sec. 4.2."""

    images_per_label: int | None = setting(None, at_least=1)
    """Training images of each label, drawn at random; default: all."""
    train_fraction: float | None = setting(None, above=0, at_most=1)
    """Share of the training images of each label, drawn at random, at least one
    of each."""
    imbalance: str = setting("none", choices=("none", "exponential"))
    """Long tail: from the first label to the last the training images become
    fewer, exponentially, as in CIFAR-10-LT."""
    imbalance_ratio: float = setting(
        100.0, at_least=1, used_by={"imbalance": ("exponential",)}
    )
    """Images of the first label over those of the last."""
    label_noise: str | None = setting(
        None,
        must=(
            "be symmetric:SHARE, 0 < SHARE < 1, got {}",
            lambda text: _noise_share(text) is not None,
        ),
    )
    """symmetric:SHARE gives that share of the training images a wrong label,
    any other one at random."""
    draw: int = setting(0, at_least=0)
    """Seed of these draws."""

    def _check(self) -> None:
        if self.images_per_label is not None:
            self._check_left_out("with --images_per_label", "train_fraction")

    @property
    def noise_share(self) -> float:
        """Share of training images that get a wrong label."""
        return _noise_share(self.label_noise or "") or 0.0


def _noise_share(text: str) -> float | None:
    """Returns the share that `symmetric:SHARE` names; None for other texts."""
    kind, _, share = text.partition(":")
    try:
        number = float(share)
    except ValueError:
        return None
    return number if kind == "symmetric" and 0 < number < 1 else None


_RANDAUGMENT = "randaugment_layers", "randaugment_magnitude"
_SIMAUGMENT = (
    *("jitter_strength", "grayscale_probability"),
    *("warp_probability", "blur_probability", "rotation_probability"),
)
_PARAMETERS = {  # of each policy
    "autoaugment": ("autoaugment_policy",),
    "randaugment": _RANDAUGMENT,
    "simaugment": _SIMAUGMENT,
    "stacked_randaugment": _RANDAUGMENT + _SIMAUGMENT,
}


@dataclasses.dataclass(frozen=True)
class AugmentationSettings(Settings):
    """Which policy, and its parameters."""

    augmentation: str = setting(
        "simaugment",
        choices=(
            "identity",
            "autoaugment",
            "randaugment",
            "simaugment",
            "stacked_randaugment",
            trust.FUNCTION,
        ),
        common=True,
    )
    """Policy applied to each view after crop and flip; a function is one of
    your own (docs/guides/your_own.md)."""
    autoaugment_policy: str = setting(
        "imagenet", choices=("imagenet", "v0", "cifar10", "svhn")
    )
    """AutoAugment: table of sub-policies; imagenet, cifar10 and svhn are those
    of its paper, v0 that of the released code of SupCon."""
    randaugment_layers: int = setting(2, at_least=1)
    """RandAugment: operations one after the other."""
    randaugment_magnitude: float = setting(10.0, at_least=0, at_most=10)
    """RandAugment: level of all operations."""
    jitter_strength: float = setting(
        defaults.SIM_AUGMENT["strength"], at_least=0, at_most=2.5
    )
    """SimAugment: strength of the colour jitter; the paper has 0.5 on CIFAR,
    SimCLR 1.0 on ImageNet."""
    grayscale_probability: float = setting(0.2, at_least=0, at_most=1)
    """SimAugment: share of views turned grey."""
    warp_probability: float = setting(
        defaults.SIM_AUGMENT["warp_probability"], at_least=0, at_most=1
    )
    """SimAugment: share of views warped; the paper has 0.5."""
    blur_probability: float = setting(
        defaults.SIM_AUGMENT["blur_probability"], at_least=0, at_most=1
    )
    """SimAugment: share of views blurred; the paper has 0.5."""
    rotation_probability: float = setting(0.0, at_least=0, at_most=1)
    """SimAugment: share of views rotated, by up to 30 degrees; the paper names
    rotations, its code has none."""

    @property
    def unused_parameters(self) -> tuple[str, ...]:
        """Names of other policies' parameters that have not their defaults.

        They are no error: a preset may have them, and a sweep many policies.
        """
        names = dict.fromkeys(itertools.chain(*_PARAMETERS.values()))
        return tuple(
            name
            for name in names
            if name not in _PARAMETERS.get(self.augmentation, ())
            and getattr(self, name) != self.__dataclass_fields__[name].default
        )


def _is_area(area: tuple[float, ...]) -> bool:
    """Whether `area` is empty, or two rising shares of an image."""
    return not area or (len(area) == 2 and 0 < area[0] <= area[1] <= 1)


@dataclasses.dataclass(frozen=True)
class ViewSettings(Settings):
    """How images become augmented views."""

    seed: int = setting(0, at_least=0, common=True)
    """Seed of weights, order and augmentation: same seed, same run."""
    crop_area: tuple[float, ...] = setting(
        (0.5, 1.0),
        must=("be empty or two numbers 0 < low <= high <= 1, got {}", _is_area),
        common=True,
    )
    """Range of the random crop's share of the image area, two numbers; empty
    for no random crop. The paper has 0.08,1 on ImageNet and 0.2,1 on CIFAR: in
    few epochs milder views teach more (docs/reproduction/supcontrast.md)."""
    horizontal_flip: bool = True
    """Flip half of the views left to right."""


@dataclasses.dataclass(frozen=True)
class BatchSettings(Settings):
    """How many images become views at a time."""

    # Where --batch_size is not given, and the steps of an epoch that a batch
    # must leave.
    LARGEST_BATCH, LEAST_STEPS = 256, 4

    batch_size: int | None = setting(
        None, at_least=1, adaptive=True, common=True
    )
    """Global batch size, in images, over all replicas; default: 256 (512 of the
    linear stage), or half of it, a quarter, ... until an epoch has 4 steps."""
    images_per_class: int | None = setting(None, at_least=1)
    """Images of each class in a batch, which then has batch_size /
    images_per_class classes; default: as the shuffled images come."""

    def _check(self) -> None:
        self._check_pair("images_per_class", "divide", "batch_size")

    @property
    def samples_per_class(self) -> int | None:
        """Samples of each class in a batch; None where chance decides."""
        return self.images_per_class
