"""Settings of the transfer of an encoder to another data set."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions
from supcon_tf.config import evaluation, images, running, stages
from supcon_tf.settings import setting, with_default

_LINEAR = {"method": ("linear",)}
_FINETUNE = {"method": ("finetune",)}
# Settings of groups that linear leaves unused.
_OF_TRAINING = (
    "augmentation",
    "crop_area",
    "horizontal_flip",
    "images_per_class",
    "data_service",
)
# Fewer images of a label cannot be halved into two that say anything.
_LEAST_HALVED = 4


@dataclasses.dataclass(frozen=True)
class TransferSettings(
    images.DataSettings,
    images.BatchSettings,
    images.ViewSettings,
    images.AugmentationSettings,
    running.DeviceSettings,
):
    """Settings of tools/transfer.py.

    The encoder is that of the pretraining in run_dir, the data are another
    set. The protocol is that of Appendix B.8 of SimCLR, arXiv 2002.05709.
    """

    DEFAULT_DATASET = None

    name: str = setting("transfer", must=stages.STAGE_NAME)
    """Sub-directory of run_dir that this tool writes."""
    overwrite: bool = with_default(running.CheckpointSettings, "overwrite")
    method: str = setting("linear", choices=("linear", "finetune"))
    """linear: logistic regression on representations of the frozen encoder, by
    L-BFGS. finetune: encoder and a new classifier, by SGD."""
    image_size: int | None = setting(None, at_least=8)
    """Side of the views in pixels; default: that of the pretraining."""
    batch_size: int | None = setting(256, at_least=1)
    """Images per step over all replicas, as many as there are at most."""
    augmentation: str = "identity"
    strategy: str = with_default(evaluation.EvaluateSettings, "strategy")
    validation_fraction: float = setting(0.2, above=0, at_most=0.9)
    """Share of each label's training images by which a sweep is judged; the
    chosen value is then trained on all of them."""
    select_by: str = setting("top_1", choices=("top_1", "mean_recall"))
    """What a sweep is judged by: accuracy (top_1) or the mean over labels of
    theirs (mean_recall); of equal ones the lower negative log-likelihood."""
    l2_values: int = setting(45, at_least=2, used_by=_LINEAR)
    """linear: how many l2 strengths from 1e-6 to 1e5 are tried; logarithmically
    spaced."""
    l2: float | None = setting(None, above=0, used_by=_LINEAR)
    """linear: this strength, and no sweep."""
    max_iterations: int = setting(1000, at_least=1, used_by=_LINEAR)
    """linear: iterations of L-BFGS per strength, at most."""
    steps: int = setting(5000, at_least=1, used_by=_FINETUNE)
    """finetune: optimizer steps of each training. SimCLR has 20,000, which for
    its grid of 56 trainings is the work of a cluster."""
    learning_rates: tuple[float, ...] = setting(
        (0.1,),
        must=(
            "be different numbers, each above 0, got {}",
            lambda rates: len(set(rates)) == len(rates)
            and min(rates, default=0) > 0,
        ),
        used_by=_FINETUNE,
    )
    """finetune: learning rates to try, as they are, for any batch. SimCLR has 7
    from 1e-4 to 0.1, logarithmically spaced, for representations that are not
    of unit length."""
    weight_decays: tuple[float, ...] = setting(
        (0.0,),
        must=(
            "be different numbers, each at least 0, got {}",
            lambda decays: len(set(decays)) == len(decays)
            and min(decays, default=-1) >= 0,
        ),
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
        if self.method == "linear":
            self._check_left_out(
                "with --method=linear: only finetune can use it", *_OF_TRAINING
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
        if self.sweeps and self.images_per_label < _LEAST_HALVED:
            one = {"linear": "--l2", "finetune": "one value each"}[self.method]
            raise exceptions.InvalidValue(
                f"--images_per_label must be at least {_LEAST_HALVED} for a "
                f"sweep, got {self.images_per_label}: give {one} instead"
            )

    @property
    def sweeps(self) -> bool:
        """Whether there is more than one value to choose from."""
        if self.method == "linear":
            return self.l2 is None
        return len(self.learning_rates) * len(self.weight_decays) > 1
