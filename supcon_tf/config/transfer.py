"""Settings of the transfer of an encoder to another data set."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from supcon_tf import exceptions, settings
from supcon_tf.config import (
    checkpointing,
    devices,
    evaluation,
    groups,
    stages,
)

# Settings that one of the methods alone uses.
_USED_BY = {
    "l2_values": ("method", ("linear",)),
    "l2": ("method", ("linear",)),
    "max_iterations": ("method", ("linear",)),
    "steps": ("method", ("finetune",)),
    "learning_rates": ("method", ("finetune",)),
    "weight_decays": ("method", ("finetune",)),
    "augmentation": ("method", ("finetune",)),
    "crop_area": ("method", ("finetune",)),
    "horizontal_flip": ("method", ("finetune",)),
    "images_per_class": ("method", ("finetune",)),
    "data_service": ("method", ("finetune",)),
}
# Fewer images of a label cannot be halved into two that say anything.
_LEAST_HALVED = 4


@dataclasses.dataclass(frozen=True)
class TransferSettings(
    groups.DataSettings, groups.BatchSettings, devices.DeviceSettings
):
    """Settings of tools/transfer.py.

    The encoder is that of the pretraining in run_dir, the data are another
    set. The protocol is that of Appendix B.8 of SimCLR, arXiv 2002.05709.
    """

    DEFAULT_DATASET: ClassVar[str | None] = None

    name: str = settings.setting(
        "transfer", "Sub-directory of run_dir that this tool writes."
    )
    overwrite: bool = settings.with_default(
        checkpointing.CheckpointSettings, "overwrite", False
    )
    method: str = settings.setting(
        "linear",
        "linear: logistic regression on representations of the frozen "
        "encoder, by L-BFGS. finetune: encoder and a new classifier, by SGD.",
        choices=("linear", "finetune"),
    )
    image_size: int | None = settings.setting(
        None,
        "Side of the views in pixels; default: that of the pretraining.",
        at_least=8,
    )
    batch_size: int | None = settings.setting(
        256,
        "Images per step over all replicas, as many as there are at most.",
        at_least=1,
    )
    augmentation: str = settings.with_default(
        groups.ViewSettings, "augmentation", "identity"
    )
    strategy: str = settings.with_default(
        evaluation.EvaluateSettings, "strategy", "auto"
    )
    validation_fraction: float = settings.setting(
        0.2,
        "Share of each label's training images by which a sweep is judged; "
        "the chosen value is then trained on all of them.",
        above=0,
        at_most=0.9,
    )
    select_by: str = settings.setting(
        "top_1",
        "What a sweep is judged by: accuracy (top_1) or the mean over labels "
        "of theirs (mean_recall); of equal ones the lower negative "
        "log-likelihood.",
        choices=("top_1", "mean_recall"),
    )
    l2_values: int = settings.setting(
        45,
        "linear: how many l2 strengths from 1e-6 to 1e5 are tried; "
        "logarithmically spaced.",
        at_least=2,
    )
    l2: float | None = settings.setting(
        None, "linear: this strength, and no sweep.", above=0
    )
    max_iterations: int = settings.setting(
        1000, "linear: iterations of L-BFGS per strength, at most.", at_least=1
    )
    steps: int = settings.setting(
        5000,
        "finetune: optimizer steps of each training. SimCLR has 20,000, which "
        "for its grid of 56 trainings is the work of a cluster.",
        at_least=1,
    )
    learning_rates: tuple[float, ...] = settings.setting(
        (0.1,),
        "finetune: learning rates to try, as they are, for any batch. SimCLR "
        "has 7 from 1e-4 to 0.1, logarithmically spaced, for representations "
        "that are not of unit length.",
    )
    weight_decays: tuple[float, ...] = settings.setting(
        (0.0,),
        "finetune: weight decays to try, divided by the learning rate. SimCLR "
        "has 0 and 7 from 1e-6 to 1e-3, logarithmically spaced.",
    )
    images_per_label: int | None = settings.setting(
        None,
        "Few-shot: training images of each label, drawn at random; half of "
        "them judge a sweep, which needs 4. Default: all there are.",
        at_least=1,
    )
    repeats: int = settings.setting(
        1, "Few-shot: how many different draws.", at_least=1
    )

    def _check(self) -> None:
        """Checks rules between fields; raises ValueError."""
        super()._check()
        stages.check_stage_name("name", self.name)
        self.check_remote_paths(
            {"run_dir": self.run_dir, "data_dir": self.data_dir}
        )
        settings.check_used(self, _USED_BY)
        if self.l2 is not None and self.l2_values != 45:
            raise exceptions.InvalidValue(
                "--l2_values must be left out with --l2, which is the one "
                f"strength, got {self.l2_values}"
            )
        _check_rates("learning_rates", self.learning_rates, "above 0")
        _check_rates("weight_decays", self.weight_decays, "at least 0")
        self._check_few_shot()

    @property
    def sweeps(self) -> bool:
        """Whether there is more than one value to choose from."""
        if self.method == "linear":
            return self.l2 is None
        return len(self.learning_rates) * len(self.weight_decays) > 1

    def _check_few_shot(self) -> None:
        """Raises ValueError for draws that are none, or cannot be halved."""
        if self.images_per_label is None:
            if self.repeats > 1:
                raise exceptions.InvalidValue(
                    "--repeats must come with --images_per_label, whose draws "
                    f"differ, got {self.repeats}"
                )
            return
        if self.validation_fraction != 0.2:
            raise exceptions.InvalidValue(
                "--validation_fraction must be left out with "
                "--images_per_label, half of which are held out, got "
                f"{self.validation_fraction}"
            )
        if self.sweeps and self.images_per_label < _LEAST_HALVED:
            one = {"linear": "--l2", "finetune": "one value each"}[self.method]
            raise exceptions.InvalidValue(
                f"--images_per_label must be at least {_LEAST_HALVED} for a "
                f"sweep, got {self.images_per_label}: give {one} instead"
            )


def _check_rates(flag: str, values: tuple[float, ...], rule: str) -> None:
    """Raises ValueError unless there are numbers, different, as the rule."""
    holds = {
        "above 0": lambda value: value > 0,
        "at least 0": lambda value: value >= 0,
    }[rule]
    is_set = values and len(set(values)) == len(values)
    if not is_set or not all(map(holds, values)):
        raise exceptions.InvalidValue(
            f"--{flag} must be different numbers, each {rule}, got "
            f"{settings.to_text(values)}"
        )
