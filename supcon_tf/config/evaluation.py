"""Settings of what measures a trained run."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions, settings
from supcon_tf.config import stages

# The benchmark's order, Sec. 4.1 of https://arxiv.org/abs/1903.12261.
CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
_OF_CORRUPTIONS = (
    "corruption_names",
    "corruption_severities",
    "corruption_images",
    "corruption_seed",
    "reference_evaluation",
)


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(settings.Settings):
    """Settings of tools/evaluate.py."""

    linear_stage: str = settings.setting(
        "linear", "Name of the linear stage whose classifier is evaluated."
    )
    batch_size: int = settings.setting(
        256,
        "Images per step, over all replicas; without effect on the result.",
        at_least=1,
    )
    strategy: str = settings.setting(
        "auto",
        "Distribution: one device, all devices of this machine (mirrored), a "
        "TPU (tpu), or by what is there (auto).",
        choices=("auto", "one_device", "mirrored", "tpu"),
    )
    tpu: str | None = settings.setting(
        None, "Name or grpc:// address of the TPU of --strategy=tpu, or local."
    )
    knn_neighbors: int = settings.setting(
        200, "k of the k-nearest-neighbour classifiers.", at_least=1
    )
    knn_temperature: float = settings.setting(
        0.07, "Temperature of the weighted votes of the neighbours.", above=0
    )
    knn_leave_one_out: bool = settings.setting(
        False,
        "Classify the training images too, each by its neighbours among the "
        "others: what to choose k and temperature by.",
    )
    calibration_bins: int = settings.setting(
        15, "Bins of the expected calibration error.", at_least=1
    )
    retrieval_at: tuple[int, ...] = settings.setting(
        (1, 5, 10), "The k of recall@k, the retrieval among the test images."
    )
    corruptions: str = settings.setting(
        "none",
        "Corrupted test images: none, generated (the 15 corruptions of "
        "ImageNet-C made here, of any data set of at least 32 pixels, with "
        "its parameters at every size: CIFAR-10-C's own are milder, not to be "
        "compared), or tfds:NAME of a set with a configuration per corruption "
        "and severity, such as tfds:imagenet2012_corrupted or "
        "tfds:cifar10_corrupted.",
    )
    corruption_names: tuple[str, ...] = settings.setting(
        CORRUPTIONS, "Which of the 15 corruptions.", choices=CORRUPTIONS
    )
    corruption_severities: tuple[int, ...] = settings.setting(
        (1, 2, 3, 4, 5), "Which severities, of 1 to 5."
    )
    corruption_images: int | None = settings.setting(
        None,
        "Number of test images to corrupt, drawn once and the same for every "
        "corruption; default: all.",
        at_least=1,
    )
    corruption_seed: int = settings.setting(
        0, "Seed of the drawn images and of the noise.", at_least=0
    )
    reference_evaluation: str | None = settings.setting(
        None,
        "What corruption errors are divided by for the mCE: an "
        "evaluation.json of another run on the same corruptions, or alexnet, "
        "the published errors on ImageNet.",
    )
    sample_images: int = settings.setting(
        8,
        "Test images whose nearest neighbours the report shows; 0 for none.",
        at_least=0,
    )
    plotted_images: int = settings.setting(
        2000,
        "Test images, at most, in the plot of representations and in "
        "TensorBoard's projector; 0 for none.",
        at_least=0,
    )
    plane: str = settings.setting(
        "tsne",
        "How representations become points of the plane.",
        choices=("tsne", "pca"),
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        stages.check_stage_name("linear_stage", self.linear_stage)
        if self.tpu is not None and self.strategy != "tpu":
            raise exceptions.InvalidValue(
                f"--tpu must come with --strategy=tpu, got {self.strategy}"
            )
        _check_integers("retrieval_at", self.retrieval_at)
        _check_integers("corruption_severities", self.corruption_severities, 5)
        self._check_corruptions()

    def _check_corruptions(self) -> None:
        """Raises ValueError for a source that does not exist or is unused."""
        known = self.corruptions in ("none", "generated")
        if not known and not self.corruptions.startswith("tfds:"):
            raise exceptions.InvalidValue(
                "--corruptions must be none, generated or tfds:NAME, got "
                f"{self.corruptions}"
            )
        if not self.corruption_names:
            raise exceptions.InvalidValue(
                "--corruption_names must name one, got none"
            )
        if self.corruptions != "none":
            return
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in _OF_CORRUPTIONS and value != field.default:
                raise exceptions.InvalidValue(
                    f"--{field.name} must be left out with "
                    f"--corruptions=none, got {settings.to_text(value)}"
                )


def _check_integers(
    flag: str, values: tuple[int, ...], at_most: int = 2**31 - 1
) -> None:
    """Raises ValueError unless there are numbers, different, in 1..at_most."""
    if (
        not values
        or len(set(values)) < len(values)
        or not all(1 <= value <= at_most for value in values)
    ):
        raise exceptions.InvalidValue(
            f"--{flag} must be different numbers in 1..{at_most}, got "
            f"{settings.to_text(values)}"
        )
