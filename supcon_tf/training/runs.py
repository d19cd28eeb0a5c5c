"""A run as tools use it: data, encoder and classifiers, each loaded once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, exceptions, losses, models, run_files, text
from supcon_tf.data import loading, subsets
from supcon_tf.disk import files, origins
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    input_pipeline,
    materials,
    sentences,
)

if TYPE_CHECKING:
    import transformers

# From representations [images, dim] float32 to logits [images, classes].
Classifier = Callable[[tf.Tensor], tf.Tensor]

# The classifier of stage 1, as files and flags name it.
STAGE_1 = "pretrained"


@dataclasses.dataclass(eq=False)
class Run:
    """A pretrained run on images.

    Its data, encoder and classifiers are loaded when they are first read, under
    the strategy of that moment, and kept.

    Example:
      >>> from supcon_tf import training
      >>> run = training.Run.open("runs/mine")
      >>> run.class_names, run.source("test").num_examples
      (('bright', 'dark', 'mid'), 21)
      >>> run.classifiers
      ('linear',)

    Attributes:
      files: its directory.
      settings: the recorded settings of stage 1, or of the fine-tuning.
      linear_stage: name of the linear stage.
      changes: settings of the data that replace the recorded ones, by name.
      drop_duplicates: whether the test split is without the examples that are
        training examples too, also where the run has recorded otherwise.
    """

    files: run_files.RunDirectory
    settings: config.PretrainSettings | config.FinetuneTextSettings
    linear_stage: str
    changes: Mapping[str, str]
    drop_duplicates: bool = False

    is_of_texts = False

    def __post_init__(self):
        self._splits: dict[object, data.Source] = {}
        self._classifiers: dict[str, Classifier] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        linear_stage: str = "linear",
        data_dir: str | os.PathLike[str] | None = None,
        architecture: str | None = None,
        dataset: str | None = None,
    ) -> Run:
        """Opens a run on images, local or gs://; raises ValueError for none.

        `data_dir` is the present path of its data; None for the recorded path,
        or for the path to which they have moved together with the run.
        `architecture` and `dataset` repeat the recorded values where these are
        functions of a module, as a module is code.
        """
        run = open_run(
            path,
            linear_stage,
            data_dir=data_dir,
            architecture=architecture,
            dataset=dataset,
        )
        exceptions.require(
            not isinstance(run, TextRun),
            "--run_dir must be a run on images",
            f"{run.files.path}, one of tools/finetune_text.py",
        )
        return run

    @functools.cached_property
    def checkpoint(self) -> str:
        """Path of the newest checkpoint of stage 1; raises ValueError.

        A training that goes on does not prune it as long as this object lives.
        """
        return self._hold(self.files.latest_checkpoint)

    def _hold(self, newest: Callable[[], str]) -> str:
        path, descriptor = checkpoints.hold(newest)
        if descriptor is not None:
            weakref.finalize(self, os.close, descriptor)
        return path

    @functools.cached_property
    def identity(self) -> origins.Identity:
        """The identity of the checkpoint: its name and SHA-256."""
        return origins.identity(self.checkpoint)

    @property
    def image_size(self) -> int | None:
        """Side of the encoder's images, pixels; None for texts."""
        return self.settings.image_size

    @property
    def is_multi_label(self) -> bool:
        """Whether an image may have several labels, or none."""
        return bool(self.settings.multi_label)

    @functools.cached_property
    def class_names(self) -> tuple[str, ...]:
        """Class names in the order of the labels."""
        return self.files.class_names()

    @property
    def evaluation_owner(self) -> run_files.RunDirectory:
        """The directory of an evaluation: of the linear stage, else the run."""
        return self.files.evaluation_owner(self.linear_stage)

    @functools.cached_property
    def data_settings(self) -> config.PretrainSettings:
        """The settings with the present paths of the data.

        Prints a line where the data have moved together with the run.
        """
        moved = run_files.moved_data(vars(self.settings), self.files.path)
        moved = {
            name: moved[name] for name in moved if name not in self.changes
        }
        console.print_moved(moved)
        return dataclasses.replace(self.settings, **moved, **self.changes)

    def source(
        self, split: str, shard: tuple[int, int] | None = None
    ) -> data.Source:
        """The split "train" or "test" of the data of the run.

        The test split may have none of the classes of the run: see
        `has_unseen_classes`. With `shard`, (index, count) of a worker, the
        examples of its own files alone.

        Raises:
          ValueError: the split cannot be read, or has some other classes than
            the run; the test split has images that the run was trained on; data
            that have moved lack images that the run was trained on.
        """
        if (split, shard) not in self._splits:
            examples = self._read_split(split, shard)
            if split == "test" and self.drop_duplicates:
                train = self.source("train")
                examples = subsets.without_duplicates(examples, train)
            self._splits[split, shard] = examples
        return self._splits[split, shard]

    def _read_split(
        self, split: str, shard: tuple[int, int] | None
    ) -> data.Source:
        trust.check_named(
            self.settings.dataset,
            self.changes.get("dataset"),
            self.files.path,
            "dataset",
        )
        self._check_path("data_dir")
        images = input_pipeline.source(self.data_settings, split, shard)
        if split == "train" or not _are_apart(images, self.class_names):
            self.files.check_classes(images.class_names)
        if split == "test":
            self.check_unseen(images)
        elif self.data_settings != self.settings:
            self.files.trained_on.check_contained(images.ids or ())
        return images

    def check_unseen(self, test: data.Source) -> None:
        """Raises ValueError for test images that the run was trained on.

        They are found by their names, and by their bytes under other names: an
        image that is renamed after the training may change its split.
        """
        self.files.trained_on.check_unseen(test.ids)
        if test.ids is None:
            return
        digests = test.digests if test.digests is not None else ()
        is_seen = np.isin(digests, self.files.trained_on.digests())
        by_names = self._is_split_by_names()
        if not (by_names or is_seen.any()):
            return
        train = input_pipeline.all_images(self.data_settings, "train")
        if by_names:
            self.files.trained_on.check_split(train.ids)
        # Copies of images that still train are printed as duplicates.
        is_seen[subsets.duplicates(test, train)] = False
        names = [test.ids[row] for row in np.flatnonzero(is_seen)]
        exceptions.require(
            not names,
            f"the test images must be none that {self.files.path} was trained "
            "on; give renamed files their former names, or train again",
            f"{len(names)} of {len(test.ids)} with the bytes of training "
            f"images of other names: {exceptions.listed(names)}",
        )

    def check_split(self) -> None:
        """Raises ValueError where renamed images have another split by now.

        A stage that reads no test image would be trained on test images.
        """
        self._check_path("data_dir")
        if self._is_split_by_names():
            self.source("test")

    def _is_split_by_names(self) -> bool:
        """Whether a hash of its file name decides on the split of an image."""
        settings = self.data_settings
        return settings.split_by == "image" and loading.is_split_by_hash(
            settings.dataset, settings.data_dir
        )

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Makes an error of reading name the file of the run's data."""
        return data.reading(lambda: self._splits.values())

    def _check_path(self, name: str) -> None:
        """Raises ValueError where a path of the data does not exist."""
        path = getattr(self.data_settings, name)
        if path and os.path.isabs(path) and not os.path.exists(path):
            raise exceptions.InvalidValue(
                f"the data of {self.files.path} must be at {path}, but nothing "
                f"is there; `{name}` says where they are by now, and tools/"
                f"{self.files.tool}.py --resume --{name}=NEW records it"
            )

    @property
    def has_unseen_classes(self) -> bool:
        """Whether training saw none of the classes of the test split."""
        return _are_apart(self.source("test"), self.class_names)

    def check_seen_classes(self, what: str) -> None:
        """Raises ValueError for test classes that training never saw."""
        test = self.source("test")
        exceptions.require(
            not self.has_unseen_classes,
            f"the test images must be of the classes of {self.files.path} for "
            f"{what}",
            f"{len(test.class_names)} that training never saw, such as "
            f"{test.class_names[0]}",
        )

    def check_rgb(self, what: str) -> None:
        """Raises ValueError for a run of images of other channels."""
        exceptions.require(
            self.settings.channels == 3,
            f"--run_dir must be a run of RGB images for {what}",
            f"{self.files.path} of {self.settings.channels} channel",
        )

    def check_one_label(self, what: str) -> None:
        """Raises ValueError for a run of images of several labels."""
        exceptions.require(
            not self.is_multi_label,
            f"--run_dir must be a run of one label per image for {what}",
            f"{self.files.path} of several",
        )

    @functools.cached_property
    def encoder(self) -> keras.Model:
        """The trained encoder, built for the data of the run.

        Raises:
          ValueError: there is no checkpoint, or one of another encoder.
        """
        encoder = self._make_encoder()
        checkpoints.restore(self.checkpoint, encoder=encoder)
        return encoder

    def _make_encoder(self) -> keras.Model:
        return builders.encoder(self.settings)

    @functools.cached_property
    def classifiers(self) -> tuple[str, ...]:
        """The names of the run's classifiers: "linear", `STAGE_1`, or both.

        Stage 2 trains "linear". Stage 1 trains a classifier by ce, max_margin,
        a joint objective or --online_classifier.
        """
        has_linear = self.files.stage(self.linear_stage).exists()
        has_stage_1 = self.settings.has_classifier
        return ("linear",) * has_linear + (STAGE_1,) * has_stage_1

    def classifier(self, name: str) -> Classifier:
        """One of `classifiers`, a `tf.Module`.

        Returns:
          A function from representations [N, dim] of the encoder to logits [N,
          classes]; the logits of max_margin are without the margin.

        Raises:
          ValueError: there is no checkpoint, or one that does not fit, or the
            linear stage is a transfer to other data.
        """
        if name in self._classifiers:
            return self._classifiers[name]
        takes_cosines = name == STAGE_1 and builders.uses_cosines(self.settings)
        classifier = models.layers.classifier(
            len(self.class_names), takes_cosines, losses.MaxMarginLoss.scale
        )
        classifier.build((None, self.encoder.representation_dim))
        checkpoints.restore(
            self.classifier_checkpoint(name), classifier=classifier
        )
        self._classifiers[name] = classifier
        return classifier

    def classifier_checkpoint(self, name: str) -> str:
        """Path of the checkpoint of a classifier.

        Raises:
          ValueError: the linear stage has none, is a transfer to other data, or
            was trained on an earlier checkpoint of the run.
        """
        if name == STAGE_1:
            return self.checkpoint
        return self._linear_checkpoint

    @functools.cached_property
    def _linear_checkpoint(self) -> str:
        stage = self.files.stage(self.linear_stage)
        exceptions.require(
            not stage.transfer_file.exists(),
            "--linear_stage must be one of tools/train_linear.py",
            f"{self.linear_stage}, a transfer to other data",
        )
        path = self._hold(stage.latest_checkpoint)
        materials.check_stage(self.files, stage, self.identity)
        return path

    def made_of(self, classifier: str) -> dict[str, origins.Identity]:
        """Identities of encoder and classifier; "none" for no classifier."""
        identities = {"encoder": self.identity}
        if classifier != "none":
            path = self.classifier_checkpoint(classifier)
            identities["classifier"] = origins.identity(path)
        return identities

    def choose_classifier(self, asked: str) -> str:
        """The classifier of --classifier: "auto" is the first of the run.

        Raises:
          ValueError: `STAGE_1` is asked for, and stage 1 trained no classifier.
        """
        exceptions.require(
            asked != STAGE_1 or asked in self.classifiers,
            "--classifier must be linear or none",
            f"{asked}: stage 1 of {self.files.path} trained no classifier",
        )
        return (*self.classifiers, "none")[0] if asked == "auto" else asked


class TextRun(Run):
    """A run of tools/finetune_text.py: its best epoch, and its sentences."""

    is_of_texts = True
    image_size = None

    @functools.cached_property
    def checkpoint(self) -> str:
        """Path of the checkpoint of the best epoch; raises ValueError."""
        return self._hold(self.files.best_checkpoint)

    @property
    def validation(self) -> dict[str, float]:
        """`top_1` and `nll` of the validation split at the best epoch.

        Raises:
          ValueError: metrics.jsonl lacks the figures of this epoch.
        """
        best = int(self.checkpoint.rpartition("-")[2])
        columns = {"top_1": "validation_accuracy", "nll": "validation_loss"}
        for figures in self.files.metrics():
            if figures.get("epoch") == best and {*columns.values()} <= {
                *figures
            }:
                return {key: figures[name] for key, name in columns.items()}
        raise exceptions.InvalidValue(
            f"{self.files.metrics_file} must have a line of epoch {best}, the "
            "best, with its validation_accuracy and validation_loss, got none: "
            "restore the file"
        )

    @functools.cached_property
    def tokenizer(self) -> transformers.PreTrainedTokenizerBase:
        """The tokenizer of the language model."""
        return text.load_tokenizer(self.files.language_model)

    def _read_split(
        self, split: str, shard: tuple[int, int] | None
    ) -> data.Source:
        self._check_path(f"{split}_file")
        settings = self.data_settings
        if split == "test":
            return sentences.test(settings, self.tokenizer, self.class_names)
        train = sentences.train(settings, self.tokenizer)
        self.files.check_classes(train.class_names)
        if settings != self.settings:  # the file may have another name
            name = os.path.basename(self.settings.train_file)
            lines = (line.rpartition(":")[2] for line in train.ids)
            names = [f"{name}:{line}" for line in lines]
            self.files.trained_on.check_contained(names)
        recorded = self.files.made_of().get("images")
        exceptions.require(
            recorded in (None, materials.fingerprints(train)["images"]),
            f"--train_file must have the sentences that {self.files.path} was "
            "trained on",
            f"{settings.train_file}, where lines have changed or moved: give a "
            "copy from before the change",
        )
        return train

    def _make_encoder(self) -> keras.Model:
        folder = self.files.language_model
        return builders.text_encoder(self.settings, folder, pretrained=False)

    def check_rgb(self, what: str) -> None:
        """Raises ValueError: there are no images."""
        raise exceptions.InvalidValue(
            f"--run_dir must be a run on images for {what}, got "
            f"{self.files.path}, one of tools/finetune_text.py"
        )


def _are_apart(images: data.Source, class_names: tuple[str, ...]) -> bool:
    return set(images.class_names).isdisjoint(class_names)


def open_run(
    path: str | os.PathLike[str],
    linear_stage: str = "linear",
    *,
    data_dir: str | os.PathLike[str] | None = None,
    train_file: str | os.PathLike[str] | None = None,
    test_file: str | os.PathLike[str] | None = None,
    drop_duplicates: bool = False,
    architecture: str | None = None,
    dataset: str | None = None,
) -> Run | TextRun:
    """Opens a run directory, local or gs://; raises ValueError for none.

    `data_dir`, `train_file` and `test_file` are present paths of data that have
    moved. A module that the run has recorded as its `architecture` or `dataset`
    is imported only if the argument repeats it. `drop_duplicates` leaves test
    examples out that are training examples too.
    """
    changes = {
        "dataset": dataset,
        "data_dir": data_dir,
        "train_file": train_file,
        "test_file": test_file,
    }
    changes = {
        name: value for name, value in changes.items() if value is not None
    }
    directory = run_files.RunDirectory(path)
    if not directory.exists():
        is_there = directory.path.exists()
        got = "a folder without settings.flags" if is_there else "nothing"
        raise exceptions.InvalidValue(
            f"{directory.path} must be a run directory of tools/pretrain.py, "
            f"tools/finetune.py or tools/finetune_text.py, got {got}"
        )
    _check_stages(directory, linear_stage)
    tool = directory.tool
    run_class = TextRun if directory.is_of_texts() else Run
    settings_class = {
        "pretrain": config.PretrainSettings,
        "finetune": config.FinetuneSettings,
        "finetune_text": config.FinetuneTextSettings,
    }[tool]
    settings = directory.recorded(settings_class)
    for name, value in changes.items():
        exceptions.require(
            hasattr(settings, name),
            f"`{name}` must be left out for a run of tools/{tool}.py",
            value,
        )
    recorded_module = "" if run_class.is_of_texts else settings.architecture
    trust.check_named(recorded_module, architecture, directory.path)
    for name in changes.keys() - {"dataset"}:
        changes[name] = files.whole(files.expanded(changes[name], name))
    return run_class(
        directory, settings, linear_stage, changes, drop_duplicates
    )


def _check_stages(directory: run_files.RunDirectory, linear_stage: str) -> None:
    """Raises ValueError for a stage as the run, or a stage that it lacks.

    Without the check, a misspelt name of a stage would leave its classifier
    out. A run may lack the default stage.
    """
    exceptions.require(
        "name" not in directory.flags(),
        f"{directory.path} must be a run directory",
        f"a stage of one: name the run, {directory.run().path}, and a linear "
        "stage by --linear_stage",
    )
    is_there = directory.stage(linear_stage).exists()
    if linear_stage != "linear" and not is_there:
        names = exceptions.listed(directory.linear_stages())
        raise exceptions.InvalidValue(
            f"--linear_stage must be a stage of {directory.path}, "
            f"{names or 'which has none'}, got {linear_stage}"
        )


def load_encoder(
    run_dir: str | os.PathLike[str], architecture: str | None = None
) -> keras.Model:
    """The trained encoder of a run directory, by its newest checkpoint.

    The encoder is built for images of the size that it was trained on, uint8 or
    0..255. The encoder of a run on texts takes tokens, and has the weights of
    the best epoch.

    Args:
      run_dir: of the run, local or gs://.
      architecture: repeats the "package.module:function" that the run has
        recorded; the module is code, and is imported only if named here.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> encoder = supcon_tf.load_encoder("runs/mine")
      >>> tuple(encoder(np.zeros([2, 16, 16, 3], np.uint8)).shape)
      (2, 26)

    Raises:
      ValueError: there is no run, it has no checkpoint, or it has recorded a
        module that `architecture` does not repeat.
    """
    return open_run(run_dir, architecture=architecture).encoder
