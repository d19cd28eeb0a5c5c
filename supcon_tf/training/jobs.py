"""The job of a training: settings, data and devices, decided once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Generic

import tensorflow as tf

from supcon_tf import config, data, exceptions, run_files
from supcon_tf.data import hierarchy
from supcon_tf.disk import files, locks
from supcon_tf.host import trust
from supcon_tf.settings import Settings, SettingsType, adopt
from supcon_tf.training import console, devices

# From settings, the directory and the settings recorded there (None for a new
# run) to the fields that are decided before any data are read.
Decide = Callable[
    [SettingsType, run_files.RunDirectory, SettingsType | None],
    Mapping[str, object],
]
# From settings and strategy to the data: "train" and other fields of a `Job`.
Read = Callable[[SettingsType, tf.distribute.Strategy], Mapping[str, object]]


@dataclasses.dataclass(frozen=True)
class Job(Generic[SettingsType]):
    """A training before its model is made; `prepare` makes a command's job.

    Attributes:
      settings: with nothing left to decide.
      run: directory of the run, or of the stage.
      strategy: of the model's variables.
      train: training examples; their names and classes are recorded.
      train_part: examples of `train` without the held-out ones; None where all
        of them train.
      validation: examples that choose an epoch or a network.
      test: test examples; None where the job does not read them.
      tokenizer: of texts.
      recorded: settings that a resumed run has recorded; None for a new run.
    """

    settings: SettingsType
    run: run_files.RunDirectory
    strategy: tf.distribute.Strategy
    train: data.Source
    train_part: data.Source | None = None
    validation: data.Source | None = None
    test: data.Source | None = None
    tokenizer: object = None
    recorded: SettingsType | None = None

    @property
    def resumes(self) -> bool:
        """Whether the run goes on from a checkpoint."""
        return resumes(self.settings, self.run)

    @property
    def epoch_steps(self) -> int:
        """Full batches of the training examples; ValueError for none."""
        return data.steps_per_epoch(self.train, self.settings.batch_size)


def resumes(settings: Settings, run: run_files.RunDirectory) -> bool:
    """Whether the settings resume a run that has a checkpoint.

    A run that was killed before its first checkpoint begins anew.
    """
    return settings.resume and bool(run_files.steps_in(run.checkpoints))


def prepare(
    settings: SettingsType,
    read: Read,
    run: run_files.RunDirectory | None = None,
    decide: Decide = lambda settings, run, recorded: {},
) -> Job[SettingsType]:
    """Decides all fields that settings leave open, and reads the data.

    In this order: the directory, and the settings that a resumed run has
    recorded there; fields that need no data; devices, before any computation;
    functions of the user; data; fields that need data. Nothing is created or
    removed.

    Args:
      settings: of the command.
      read: reads the data, and checks them.
      run: directory of the stage; None for that of the settings.
      decide: gives the fields that need no data.

    Raises:
      ValueError: a run or a process has taken the directory, or it cannot be
        written; there are no such devices, or they cannot share the batch; a
        function cannot be imported; the data do not suit the settings.
    """
    run = run or run_files.RunDirectory(settings.run_dir)
    trains = isinstance(settings, config.DeviceSettings)  # else it shows views
    recorded = _recorded(settings, run) if trains else None
    if recorded is not None:
        settings = _adopt(settings, recorded)
    settings = dataclasses.replace(settings, **decide(settings, run, recorded))
    strategy = tf.distribute.get_strategy()
    if trains:
        strategy = devices.set_up(settings)
    for flag, name in trust.functions(vars(settings)):
        trust.import_function(name, flag)
    sources = read(settings, strategy)
    examples = sources.get("train_part", sources["train"])
    settings = resolved(settings, examples, strategy.num_replicas_in_sync)
    return Job(settings, run, strategy, recorded=recorded, **sources)


def _recorded(
    settings: SettingsType, run: run_files.RunDirectory
) -> SettingsType | None:
    """The recorded settings of a resumed run; None where a run may begin."""
    locks.check(run.path, locks.TRAINING)
    if settings.resume and run.exists():
        return run.recorded(type(settings))
    run.check_free(settings.overwrite)
    return None


def _adopt(settings: SettingsType, recorded: SettingsType) -> SettingsType:
    """The settings with the recorded fields, and present paths of the data."""
    paths = vars(settings) | {"run_dir": recorded.run_dir}
    moved = run_files.moved_data(paths, settings.run_dir)
    console.print_moved(moved)
    return dataclasses.replace(adopt(settings, recorded), **moved)


def resolved(
    settings: SettingsType, examples: data.Source, replicas: int = 1
) -> SettingsType:
    """The settings with all fields that training examples decide.

    Raises:
      ValueError: the settings do not suit the examples.
    """
    decided = {}
    if isinstance(settings, config.DataSettings):
        decided |= _image_fields(settings, examples)
    if isinstance(settings, config.OptimizerSettings):
        decided |= _optimizer_fields(settings, examples, replicas)
    return dataclasses.replace(settings, **decided)


def _image_fields(
    settings: config.DataSettings, images: data.Source
) -> dict[str, object]:
    """Size of the views, whether images have several labels, whole paths.

    Whole paths mean the same in later stages, in any working directory.

    Raises:
      ValueError: neither settings nor images have a size, or the settings
        contradict the labels.
    """
    side = settings.image_size or settings.default_image_size(images.image_size)
    if side is None:
        raise exceptions.InvalidValue(
            f"--image_size must be given: the images of {images.name} are not "
            "known to be squares of one size"
        )
    decided = {"image_size": side}
    if settings.data_dir:
        decided["data_dir"] = files.whole(settings.data_dir)
    if isinstance(settings, config.ObjectiveSettings):
        if settings.hierarchy not in (None, hierarchy.NAMES):
            decided["hierarchy"] = files.whole(settings.hierarchy)
        decided["multi_label"] = images.is_multi_label
        exceptions.require(
            settings.multi_label in (None, images.is_multi_label),
            f"--multi_label must be {str(images.is_multi_label).lower()} for "
            f"the labels of {images.name}",
            settings.multi_label,
        )
    return decided


def _optimizer_fields(
    settings: config.OptimizerSettings, examples: data.Source, replicas: int
) -> dict[str, object]:
    """Defaults of the batch and of the optimizer, for fields that are None."""
    decided = {
        name: getattr(settings, f"default_{name}")
        for name in ("warmup_epochs", "learning_rate", "weight_decay")
        if getattr(settings, name) is None
    }
    if settings.batch_size is None:
        decided["batch_size"] = _default_batch(settings, examples, replicas)
    return decided


def _default_batch(
    settings: config.OptimizerSettings, examples: data.Source, replicas: int
) -> int:
    """The largest batch that leaves an epoch some steps.

    Replicas, classes and chunks divide it.
    """
    size, per_class = settings.LARGEST_BATCH, settings.samples_per_class
    if per_class:
        size = min(size, per_class * len(examples.class_names))
    while size > 2 and examples.num_examples < settings.LEAST_STEPS * size:
        size //= 2
    chunks = 1
    if isinstance(settings, config.ObjectiveSettings):
        chunks = settings.gradient_cache_chunks
    return shareable(size, replicas, per_class or 1, chunks)


def shareable(batch_size: int, *divisors: int) -> int:
    """The largest multiple of all divisors up to `batch_size`, or their lcm."""
    unit = math.lcm(*divisors)
    return max(batch_size // unit, 1) * unit
