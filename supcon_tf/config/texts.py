"""Settings of the fine-tuning of language models."""

from __future__ import annotations

import dataclasses

from supcon_tf import exceptions
from supcon_tf.config import objectives, running, stages
from supcon_tf.settings import Settings, setting

_ONE_OR_TWO_COLUMNS = (
    "be one or two columns, got {}",
    lambda columns: 1 <= len(columns) <= 2,
)


@dataclasses.dataclass(frozen=True)
class SentenceSettings(Settings):
    """Which sentences, how many, and their tokens."""

    train_file: str | None = setting(
        None, resumable=True, common=True, path=True
    )
    """Labelled sentences: a file .tsv, .csv or .jsonl, or tfds:NAME:SPLIT, such
    as tfds:glue/sst2:train."""
    validation_file: str | None = setting(
        None, resumable=True, common=True, path=True
    )
    """Sentences that the best epoch is chosen by; default: those of
    --validation_fraction."""
    test_file: str | None = setting(
        None, resumable=True, common=True, path=True
    )
    """Sentences that the best epoch is measured on, once."""
    text_columns: tuple[str, ...] = setting(
        ("sentence",), must=_ONE_OR_TWO_COLUMNS, common=True
    )
    """Columns of the sentence, or of the two: names of the header, numbers from
    0 in files without one, or features of TFDS."""
    label_column: str = setting("label", common=True)
    """Column of the label."""
    train_examples: int | None = setting(None, at_least=2, common=True)
    """How many training sentences are drawn, as many of each label as of any
    other, and one of each at least; default: all."""
    draw: int = setting(0, at_least=0)
    """Seed of that draw."""
    validation_fraction: float = setting(0.1, above=0, at_most=0.9)
    """Share of the training sentences of each label that is held out, before
    any are drawn, where no --validation_file is given."""
    max_length: int = setting(128, at_least=4)
    """Tokens of an example, at most; of two sentences the longer one is cut
    first."""
    seed: int = setting(0, at_least=0, common=True)
    """Seed of weights, order and dropout: same seed, same run."""

    def _check(self) -> None:
        if not self.train_file:
            raise exceptions.InvalidValue("--train_file must be given")
        for name in ("validation_file", "test_file"):
            if getattr(self, name) == self.train_file:
                raise exceptions.InvalidValue(
                    f"--{name} must be another than --train_file, got "
                    f"{self.train_file}"
                )
        if self.validation_file:
            self._check_left_out(
                "with --validation_file", "validation_fraction"
            )


@dataclasses.dataclass(frozen=True)
class MovedTextsSettings(Settings):
    """Where the data of the run are by now."""

    train_file: str | None = setting(None, recorded=False, path=True)
    """Of a run on texts, where its training sentences are by now; as
    --data_dir."""
    test_file: str | None = setting(None, recorded=False, path=True)
    """Of a run on texts, where its test sentences are by now; as
    --data_dir."""


@dataclasses.dataclass(frozen=True)
class LanguageModelSettings(Settings):
    """Which language model, and what is made of its states."""

    model: str | None = setting(None, resumable=True, common=True, path=True)
    """Directory of a model of transformers, or a name that it downloads."""
    pooling: str = setting("cls", choices=("cls", "mean"))
    """The representation: the last state of the first token (cls), or the mean
    of those of all (mean)."""
    dropout: float | None = setting(None, at_least=0, at_most=0.9)
    """Probability of all dropout; default: that of the model."""
    projection_dim: int = setting(0, at_least=0)
    """Size of a projection; 0 for SupCon on the representation itself."""
    hidden_dims: tuple[int, ...] = ()
    """Hidden layers of the projection head, without batch norm."""

    def _check(self) -> None:
        if not self.model:
            raise exceptions.InvalidValue("--model must be given")
        if not self.projection_dim:
            self._check_left_out("without --projection_dim", "hidden_dims")


@dataclasses.dataclass(frozen=True)
class FinetuneTextSettings(
    SentenceSettings,
    LanguageModelSettings,
    objectives.ObjectiveSettings,
    stages.FreezingSettings,
    running.OptimizerSettings,
    running.DeviceSettings,
    running.CheckpointSettings,
):
    """Settings of tools/finetune_text.py."""

    # The bounds of the default batch size: 20 sentences make a step of 16.
    LARGEST_BATCH, LEAST_STEPS = 16, 1

    objective: str = setting(
        "supcon+ce", choices=("ce", "supcon", "supcon+ce"), common=True
    )
    """Cross-entropy of a classifier (ce); SupCon, with a classifier that
    learns beside it (supcon); both, weighed by --classifier_weight."""
    num_views: int = setting(1, at_least=1)
    """Views of a sentence, which dropout tells apart."""
    scale_by_temperature: bool = False
    """Multiply SupCon by the temperature; Gunel et al. do not."""
    temperature: float = setting(0.3, above=0, common=True)
    """Temperature tau of SupCon."""
    batch_size: int | None = setting(
        None, at_least=1, adaptive=True, common=True
    )
    """Global batch size, in examples, over all replicas; default: 16, or half
    of it, a quarter, ... of fewer training examples."""
    examples_per_class: int | None = setting(None, at_least=1)
    """Examples of each class in a batch, so that anchors have positives;
    default: as the shuffled examples come."""
    epochs: int = setting(10, at_least=1, grows=True, common=True)
    """Passes over the training examples. A run that is resumed may get more:
    its schedule then ends there."""
    optimizer: str = "adamw"
    learning_rate: float | None = 2e-5
    learning_rate_scaling: str = "none"
    warmup_epochs: float | None = None
    schedule: str = "linear"
    weight_decay: float | None = 0.01
    clip_norm: float | None = 1.0

    def _check(self) -> None:
        self._check_left_out(
            "for texts",
            *("mixing", "mixing_alpha", "multi_label", "positives"),
            "hierarchy",
        )
        self._check_pair("examples_per_class", "divide", "batch_size")

    @property
    def samples_per_class(self) -> int | None:
        """Samples of each class in a batch; None where chance decides."""
        return self.examples_per_class

    @property
    def has_classifier(self) -> bool:
        """True: a classifier learns beside SupCon too."""
        return True
