"""A run directory as a report reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from supcon_tf import exceptions, run_files, scores
from supcon_tf.disk import origins

# Figures show the first of these classifiers that was evaluated.
CLASSIFIERS = {
    "linear": "linear classifier",
    "pretrained": "classifier trained with the encoder",
    "knn": "k-NN classifier",
    "knn_majority": "k-NN classifier, majority vote",
    "knn_among_test": "k-NN classifier among the test examples",
}


class Run:
    """A run directory as far as it is filled; what is absent is empty.

    A linear stage stands for its run. Of the stages of a run it is the first
    that was evaluated, "linear" before others.

    Attributes:
      files: the run directory.
      name: how the report calls the run.
      settings: the pretraining's settings as texts, by flag.
      is_of_texts: whether it is one of tools/finetune_text.py.
      finetuning: finetune.json.
      class_names: in the order of the labels.
      epochs: the lines of the pretraining's metrics.jsonl.
      linear_stage: name of the linear stage's sub-directory, "" for none.
      linear_epochs: the lines of its metrics.jsonl.
      evaluation: evaluation.json.
      predictions: the arrays of predictions.npz, by name.
      representations: those of representations.npz.
      samples: those of samples.npz.
      issues: those of label_issues.npz.
      card: the model card of the newest export.
      outdated: sentences on files that were made from another checkpoint than
        the newest of the run.
    """

    def __init__(self, files: run_files.RunDirectory, name: str):
        stage = files.path.name if files.is_linear_stage() else None
        files = files if stage is None else files.run()
        self.files, self.name = files, name
        self.settings = files.flags()
        self.is_of_texts = files.is_of_texts()
        self.class_names = files.class_names()
        self.epochs = files.metrics()
        self.linear_stage = _measured_stage(files) if stage is None else stage
        self.linear_epochs = []
        if self.linear_stage:
            self.linear_epochs = files.stage(self.linear_stage).metrics()
        owner = files.evaluated(self.linear_stage)
        if stage is None and not owner.evaluation_file.exists():
            owner = files  # evaluated before it had a linear stage
        self.evaluation = owner.evaluation()
        self.finetuning = files.finetuning()
        if self.tool == "finetune":
            self.evaluation = scores.linear_results(self.evaluation)
        self.predictions = run_files.read_arrays(owner.predictions_file)
        if self.predictions and self.predictions["labels"].ndim > 1:
            self.predictions = {}  # an image of several labels has no mistake
        self.representations = run_files.read_arrays(owner.representations_file)
        self.samples = run_files.read_arrays(owner.samples_file)
        self.issues = run_files.read_arrays(owner.issues_file)
        self.card, record = {}, files.export_record()
        if stage is None or _is_of_stage(record, stage):
            self.card = record.get("card", {})
        self.outdated = _outdated(files, self.evaluation)

    @property
    def tool(self) -> str:
        """The name of the tool that trained the run."""
        return "finetune_text" if self.is_of_texts else self.files.tool

    @property
    def has_unseen_classes(self) -> bool:
        """Whether training saw none of the test classes."""
        return "test_classes" in self.evaluation

    @property
    def test_class_names(self) -> tuple[str, ...]:
        """The class names of the test examples, in the order of labels."""
        return tuple(self.evaluation.get("test_classes", self.class_names))

    def class_name(self, label: int) -> str:
        """The name of a class id, the id where it has none."""
        return _name(self.class_names, label)

    def test_class_name(self, label: int) -> str:
        """The name of a class id of test examples."""
        return _name(self.test_class_names, label)

    def classifier(self, key: str) -> str | None:
        """The first classifier that was evaluated for `key`, or None."""
        for name in CLASSIFIERS:
            if key in self.evaluation.get(name, {}):
                return name
        return None

    @property
    def parts(self) -> set[str]:
        """Names of the files, arrays and classifiers' numbers of the run."""
        files = {
            "settings": True,
            "evaluation": self.evaluation,
            "predictions": self.predictions,
            "confusions": self.classifier("confusion_matrix"),
            "robustness": self.robustness(),
            "unknown": self.evaluation.get("unknown"),
            "card": self.card,
            # Where no epoch trained the network, no more are to come.
            "epochs": self.epochs
            or self.finetuning
            or self.settings.get("epochs") == "0",
        }
        parts = {part for part in files if files[part]}
        parts |= self.samples.keys() | self.representations.keys()
        parts |= self.issues.keys()
        results = (self.evaluation.get(name, {}) for name in CLASSIFIERS)
        return parts.union(*results)

    def robustness(self) -> dict | None:
        """Results on corrupted images, of the first of CLASSIFIERS."""
        results = self.evaluation.get("corruptions", {})
        names = [name for name in CLASSIFIERS if name in results]
        return results[names[0]] if names else None


def _outdated(
    files: run_files.RunDirectory,
    evaluation: Mapping[str, object],
) -> list[str]:
    """Sentences on files that were made from what has changed since."""
    sentences = [files.outdated_export(), files.outdated_gallery()]
    measured = evaluation.get("made_of", {}).get("encoder")
    newest = files.newest_identity()
    if measured and newest and measured != newest:
        sentences.append(
            f"Its evaluation is of {origins.describe(measured, newest)}, not "
            f"of {origins.describe(newest, measured)}, the checkpoint that the "
            "run has by now"
        )
    return [sentence for sentence in sentences if sentence]


def _name(names: Sequence[str], label: int) -> str:
    return names[label] if 0 <= label < len(names) else str(label)


def _measured_stage(files: run_files.RunDirectory) -> str:
    """The linear stage that a report of a run shows; "" for none."""
    stages = files.linear_stages()
    evaluated = [name for name in stages if files.evaluated(name).evaluation()]
    return next(iter(evaluated + stages), "")


def _is_of_stage(record: Mapping[str, object], stage: str) -> bool:
    """Whether an export has the classifier of a stage, or of none."""
    settings = record.get("settings", {}).get("export", {})
    is_linear = record.get("classifier") == "linear"
    return not is_linear or settings.get("linear_stage") == stage


def read_run(path: str | os.PathLike[str], name: str) -> Run:
    """Reads a run, or a linear stage of a run, local or gs://.

    Raises:
      ValueError: there is no run at `path`.
    """
    files = run_files.RunDirectory(path)
    if not files.exists():
        raise exceptions.InvalidValue(
            f"`runs` must be run directories, got {files.path}, which has no "
            f"{files.settings_file.name}"
        )
    exceptions.require(
        "method" not in files.flags(),
        "`runs` must be run directories, or linear stages of them",
        f"{files.path}, a transfer, whose results are in its transfer.json",
    )
    return Run(files, name)
