"""Settings of what measures a trained run, and of what shows several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from supcon_tf import exceptions
from supcon_tf.config import running, stages
from supcon_tf.settings import Settings, setting, to_text

# The benchmark's order, Sec. 4.1 of https://arxiv.org/abs/1903.12261.
CORRUPTIONS = tuple(
    "gaussian_noise shot_noise impulse_noise defocus_blur glass_blur "
    "motion_blur zoom_blur snow frost fog brightness contrast "
    "elastic_transform pixelate jpeg_compression".split()
)


def _be_numbers(largest: int) -> tuple[str, Callable[[object], bool]]:
    return (
        f"be different numbers in 1..{largest}, got {{}}",
        lambda values: 0 < len(values) == len(set(values))
        and all(1 <= value <= largest for value in values),
    )


@dataclasses.dataclass(frozen=True)
class EvaluateSettings(Settings):
    """Settings of tools/evaluate.py."""

    linear_stage: str = setting("linear", must=stages.STAGE_NAME)
    """Name of the linear stage whose classifier is evaluated."""
    batch_size: int = setting(256, at_least=1)
    """Images per step, over all replicas; without effect on the result."""
    strategy: str = setting(
        "auto",
        choices=tuple(x for x in running.STRATEGIES if x != "multi_worker"),
    )
    """Distribution: one device, all devices of this machine (mirrored), a TPU
    (tpu), or by what is there (auto)."""
    tpu: str | None = None
    """Name or grpc:// address of the TPU of --strategy=tpu, or local."""
    knn_neighbors: int = setting(200, at_least=1)
    """k of the k-nearest-neighbour classifiers."""
    knn_temperature: float = setting(0.07, above=0)
    """Temperature of the weighted votes of the neighbours."""
    knn_leave_one_out: bool = False
    """Classify the training images too, each by its neighbours among the
    others: what to choose k and temperature by."""
    calibration_bins: int = setting(15, at_least=1)
    """Bins of the expected calibration error."""
    retrieval_at: tuple[int, ...] = setting(
        (1, 5, 10), must=_be_numbers(2**31 - 1)
    )
    """The k of recall@k, the retrieval among the test images."""
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
        (1, 2, 3, 4, 5), must=_be_numbers(5)
    )
    """Which severities, of 1 to 5."""
    corruption_images: int | None = setting(None, at_least=1)
    """Number of test images to corrupt, drawn once and the same for every
    corruption; default: all."""
    corruption_seed: int = setting(0, at_least=0, at_most=2**32 - 1)
    """Seed of the drawn images and of the noise."""
    reference_evaluation: str | None = None
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
        running.check_tpu(self)
        if self.corruptions == "none":
            self._check_left_out(
                "with --corruptions=none",
                "corruption_names",
                "corruption_severities",
                "corruption_images",
                "corruption_seed",
                "reference_evaluation",
            )


@dataclasses.dataclass(frozen=True)
class ReportSettings(Settings):
    """Settings of tools/report.py."""

    run_dir: str = "runs/report"
    """Directory that report.html is written into."""
    runs: tuple[str, ...] = ()
    """Run directories, also as arguments without a flag; the others are
    compared with the first."""
    names: tuple[str, ...] = ()
    """What to call them; default: the ends of their paths."""

    def _check(self) -> None:
        if self.names and len(self.names) != len(self.runs):
            raise exceptions.InvalidValue(
                f"--names must be {len(self.runs)}, one per run, got "
                f"{to_text(self.names)}"
            )
