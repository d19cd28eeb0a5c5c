"""What lies in a run directory, read for a report."""

from __future__ import annotations

import dataclasses
import io
import json
import os

import numpy as np
from etils import epath

from supcon_tf import exceptions

# Of what was evaluated, the first that is there is shown in figures.
CLASSIFIERS = {
    "linear": "linear classifier",
    "pretrained": "classifier trained with the encoder",
    "knn": "k-NN classifier",
    "knn_majority": "k-NN classifier, majority vote",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory as far as it is filled; what is absent is empty.

    Attributes:
      name: how the report calls the run.
      path: the run directory.
      settings: the pretraining's settings as texts, by flag.
      class_names: in the order of the labels.
      epochs: the lines of the pretraining's metrics.jsonl.
      linear_stage: name of the linear stage's sub-directory, "" for none.
      linear_epochs: the lines of its metrics.jsonl.
      evaluation: evaluation.json.
      predictions: the arrays of predictions.npz, by name.
      representations: those of representations.npz.
      samples: those of samples.npz.
    """

    name: str
    path: epath.Path
    settings: dict[str, str]
    class_names: tuple[str, ...]
    epochs: list[dict[str, float | None]]
    linear_stage: str
    linear_epochs: list[dict[str, float | None]]
    evaluation: dict[str, object]
    predictions: dict[str, np.ndarray]
    representations: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]

    def class_name(self, label: int) -> str:
        """The name of a class id, the id where it has none."""
        known = 0 <= label < len(self.class_names)
        return self.class_names[label] if known else str(label)

    def classifier(self, key: str) -> str | None:
        """The first classifier that was evaluated for `key`, or None."""
        found = (x for x in CLASSIFIERS if key in self.evaluation.get(x, {}))
        return next(found, None)

    def robustness(self) -> dict | None:
        """Results on corrupted images: of the linear classifier if it has."""
        corruptions = self.evaluation.get("corruptions", {})
        found = (corruptions[x] for x in CLASSIFIERS if x in corruptions)
        return next(found, None)


def read_run(path: str | os.PathLike[str], name: str) -> Run:
    """Reads everything in a run directory that a report shows.

    Args:
      path: a run directory, local or gs://.
      name: how the report calls it.

    Raises:
      ValueError: there is no run at `path`.
    """
    path = epath.Path(path)
    if not (path / "settings.flags").is_file():
        raise exceptions.InvalidValue(
            f"`runs` must be run directories, got {path}, which has no "
            "settings.flags"
        )
    stages = sorted(x.parent.name for x in path.glob("*/settings.flags"))
    stage = "linear" if "linear" in stages else (stages or [""])[0]
    return Run(
        name=name,
        path=path,
        settings=_read_flags(path / "settings.flags"),
        class_names=tuple(_read_json(path / "classes.json", [])),
        epochs=_read_lines(path / "metrics.jsonl"),
        linear_stage=stage,
        linear_epochs=_read_lines(path / stage / "metrics.jsonl")
        if stage
        else [],
        evaluation=_read_json(path / "evaluation.json", {}),
        predictions=_read_arrays(path / "predictions.npz"),
        representations=_read_arrays(path / "representations.npz"),
        samples=_read_arrays(path / "samples.npz"),
    )


def _read_flags(path: epath.Path) -> dict[str, str]:
    """The values of a flagfile as they stand there.

    Not settings.from_flagfile: a report must open runs of other versions too,
    whose flags may be others.
    """
    values: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.startswith("--"):
            flag, _, value = line.removeprefix("--").partition("=")
            known = values.get(flag)
            values[flag] = value if known is None else f"{known}; {value}"
    return values


def _read_json(path: epath.Path, absent: object) -> object:
    return json.loads(path.read_text()) if path.is_file() else absent


def _read_lines(path: epath.Path) -> list[dict[str, float | None]]:
    """The whole lines of a metrics.jsonl; a run may be writing the last."""
    if not path.is_file():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _read_arrays(path: epath.Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        return dict(arrays)
