"""What lies in a run directory, read for a report."""

from __future__ import annotations

import os

from supcon_tf import exceptions, run_files

# Of what was evaluated, the first that is there is shown in figures.
CLASSIFIERS = {
    "linear": "linear classifier",
    "pretrained": "classifier trained with the encoder",
    "knn": "k-NN classifier",
    "knn_majority": "k-NN classifier, majority vote",
}


class Run:
    """A run directory as far as it is filled; what is absent is empty.

    Attributes:
      files: the run directory.
      name: how the report calls the run.
      settings: the pretraining's settings as texts, by flag.
      is_of_texts: whether it is one of tools/finetune_text.py.
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
    """

    def __init__(self, files: run_files.RunDirectory, name: str):
        self.files, self.name = files, name
        self.settings = files.flags()
        self.is_of_texts = files.is_of_texts()
        self.class_names = files.class_names()
        self.epochs = files.metrics()
        stages = [
            stage
            for stage in files.stages()
            if not files.stage(stage).transfer_file.exists()
        ]
        first = (*stages, "")[0]
        self.linear_stage = "linear" if "linear" in stages else first
        self.linear_epochs = []
        if self.linear_stage:
            self.linear_epochs = files.stage(self.linear_stage).metrics()
        self.evaluation = files.evaluation()
        self.predictions = run_files.read_arrays(files.predictions_file)
        if self.predictions and self.predictions["labels"].ndim > 1:
            self.predictions = {}  # of several labels no one is mistaken
        self.representations = run_files.read_arrays(files.representations_file)
        self.samples = run_files.read_arrays(files.samples_file)
        self.issues = run_files.read_arrays(files.issues_file)
        self.card = files.export_record().get("card", {})

    def class_name(self, label: int) -> str:
        """The name of a class id, the id where it has none."""
        known = 0 <= label < len(self.class_names)
        return self.class_names[label] if known else str(label)

    def classifier(self, key: str) -> str | None:
        """The first classifier that was evaluated for `key`, or None."""
        known = (x for x in CLASSIFIERS if key in self.evaluation.get(x, {}))
        return next(known, None)

    @property
    def parts(self) -> set[str]:
        """Names of what is there: files, arrays, numbers of classifiers."""
        whole = {
            "settings": True,
            "evaluation": self.evaluation,
            "predictions": self.predictions,
            "robustness": self.robustness(),
            "card": self.card,
            # A run of no epochs has no more to come.
            "epochs": self.epochs or self.settings.get("epochs") == "0",
        }
        parts = {name for name in whole if whole[name]}
        parts |= self.samples.keys() | self.representations.keys()
        parts |= self.issues.keys()
        measured = (self.evaluation.get(x, {}) for x in CLASSIFIERS)
        return parts.union(*measured)

    def robustness(self) -> dict | None:
        """Results on corrupted images: of the linear classifier if it has."""
        corruptions = self.evaluation.get("corruptions", {})
        results = (corruptions[x] for x in CLASSIFIERS if x in corruptions)
        return next(results, None)


def read_run(path: str | os.PathLike[str], name: str) -> Run:
    """Reads what a report shows of a run directory, local or gs://.

    Raises:
      ValueError: there is no run at `path`.
    """
    files = run_files.RunDirectory(path)
    if not files.exists():
        raise exceptions.InvalidValue(
            f"`runs` must be run directories, got {files.path}, which has no "
            f"{files.settings_file.name}"
        )
    return Run(files, name)
