"""What fine-tuning gives on few images, by each objective, draw by draw.

  python benchmarks/finetuning.py --data_dir=DIR --weights_path=FILE

Each training is tools/finetune.py's, on a draw of the training images:
`supcon+ce`, `supcon` (SupCon, then linear) and `ce`, the best of what was tuned
by the validation images; `..., means`, the best of that and its means with the
frozen weights; `..., kept`, what the tool keeps, which in doubt is `frozen`,
the linear classifier on the network as it came. Mean and standard deviation
over the draws, on the test images: top-1, ECE, and the mean error under the 15
corruptions of ImageNet-C at severity 3.
"""

from __future__ import annotations

import dataclasses
import statistics
import time

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, measuring, results
from supcon_tf import settings

_NEEDS = "--data_dir", "--weights_path"
# Sizes that are no number of images per class.
_WHOLE, _LONG_TAIL = "all", "long_tail"
_LARGEST, _RATIO = 500, 50.0  # of the long tail
_SEVERITY, _CORRUPTED = 3, 250


def _columns(key: str, title: str) -> tuple[results.Column, results.Column]:
    def value(point: dict) -> float | None:
        return point.get(key)

    def deviation(values: list[float]) -> float:
        return statistics.stdev(values) if len(values) > 1 else 0.0

    plotted = key == "top_1"
    return (
        results.Column(title, value, ".3f", statistics.mean, plotted),
        results.Column(f"± {title}", value, ".3f", deviation),
    )


@dataclasses.dataclass(frozen=True)
class FinetuningBench(harness.Bench):
    """Settings of benchmarks/finetuning.py."""

    NEEDS = {"supcon+ce": _NEEDS, "ce": _NEEDS, "supcon": _NEEDS}
    AXES = {"draw": "draws", "images": "sizes"}
    COLUMNS = (
        *_columns("top_1", "top-1"),
        *_columns("ece", "ECE"),
        *_columns("corruption_error", "corrupted"),
        results.Column("minutes", lambda p: p.get("minutes"), ".1f"),
    )
    LOGARITHMIC = False
    DETERMINISTIC = True

    run_dir: str = "runs/bench_finetuning"
    data_dir: str | None = settings.setting(None, path=True)
    """Images in train/<class>/, test/<class>/ or <class>/."""
    architecture: str = "keras:MobileNetV2"
    """Of the pretrained network."""
    weights_path: str | None = settings.setting(None, path=True)
    """File of its weights."""
    sizes: tuple[str, ...] = settings.setting(
        ("20", "100", "500", _LONG_TAIL),
        must=(
            "be numbers, long_tail or all, got {}",
            lambda sizes: all(
                size in (_WHOLE, _LONG_TAIL) or size.isdecimal()
                for size in sizes
            ),
        ),
    )
    """Training images per class; long_tail: from 500 to 10; all."""
    rounds: int = 1
    draws: int = settings.setting(5, at_least=1)
    """Draws of each."""
    test_images: int | None = settings.setting(None, at_least=1)
    """Test images per class, drawn once; default: all."""
    image_size: int = settings.setting(64, at_least=32)
    """Side in pixels."""

    def cases_of(self, points: list[dict]) -> dict[str, results.Case]:
        """The draws as rounds; rows of a training are rows of the table."""
        names = [point["job"]["implementation"] for point in points]
        rows = [
            {"job": {"images": job["images"], "implementation": name}} | row
            for point in points
            for job in [point["job"]]
            for name, row in point.get("rows", {}).items()
            if name != "frozen" or job["implementation"] == names[0]
        ]
        return results.cases_of(["images"], rows)


def measure(job: measuring.Job) -> dict[str, object]:
    """Trains as tools/finetune.py does; figures of each row by its name."""
    measuring.import_tensorflow(job.threads)
    from supcon_tf import config, finetuning
    from supcon_tf.finetuning import candidates

    name, selections, tried = job.implementation, {}, []

    def choose(
        frozen: candidates.Candidate, tuned: list[candidates.Candidate]
    ) -> candidates.Candidate:
        tried[:] = [frozen, *tuned]
        selection = candidates.choose(frozen, tuned)
        plain = [candidate for candidate in tuned if not candidate.is_mean]
        selections["frozen"] = frozen
        selections[name] = candidates.best(plain)
        selections[f"{name}, means"] = candidates.best(tuned)
        selections[f"{name}, kept"] = selection
        return selection

    finetuning_settings = config.FinetuneSettings(
        f"{job.folder}/run",
        overwrite=True,
        dataset="folder",
        data_dir=job.data_dir,
        architecture=job.architecture,
        weights=job.weights_path,
        image_size=job.image_size,
        objective=job.implementation,
        seed=job.draw,
        split_seed=job.draw,
        draw=job.draw,
        **_part(job.images),
    )
    start = time.perf_counter()
    finetuning.finetune_images(finetuning_settings, choose)
    minutes = (time.perf_counter() - start) / 60
    measured, errors = _measured(
        finetuning_settings, tried, selections, job.test_images
    )
    candidate_rows = []
    for candidate in tried:
        gain, error = candidates.gain(tried[0], candidate)
        gains = {"validation_gain": gain, "standard_error": error}
        row = {"name": candidate.name} | gains | measured[candidate.name]
        candidate_rows.append(row)
    rows = {
        row: measured[candidate.name]
        | {"chosen": candidate.name}
        | {"corruption_error": errors[candidate.name]}
        | ({} if row == "frozen" else {"minutes": minutes})
        for row, candidate in selections.items()
    }
    top_1 = rows[f"{name}, kept"]["top_1"]
    return {"rows": rows, "candidates": candidate_rows, "top_1": top_1}


def _part(images: str) -> dict[str, object]:
    """Settings of the training images that are drawn."""
    if images == _WHOLE:
        return {}
    if images == _LONG_TAIL:
        return {
            "images_per_label": _LARGEST,
            "imbalance": "exponential",
            "imbalance_ratio": _RATIO,
        }
    return {"images_per_label": int(images)}


def _measured(
    finetuning_settings: object,
    tried: list[object],
    selections: dict[str, object],
    test_images: int | None,
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Test figures of candidates by name; corruption errors of selections."""
    from supcon_tf import config, data, measures, training
    from supcon_tf.data import subsets
    from supcon_tf.finetuning import candidates
    from supcon_tf.robustness import robustness
    from supcon_tf.training import representations

    run = training.Run.open(
        finetuning_settings.run_dir,
        architecture=finetuning_settings.architecture,
    )
    images, test = run.source("train"), run.source("test")
    if test_images:
        labels = subsets.labels_of(test)
        rows = subsets.draw_per_class(labels, test_images, seed=0)
        test = subsets.subset(test, rows)
    represent = representations.representer(run.encoder, 64, run.image_size)
    judge = candidates.Judge(run.encoder, represent, images, test)
    fitted = {}
    for candidate in tried:
        run.encoder.set_weights(candidate.weights)
        fitted[candidate.name] = judge.fit(candidate.l2, images)

    def classify(
        part: data.Source, classifiers: list[candidates.Candidate]
    ) -> dict[str, measures.Predictions]:
        predictions = {}
        for candidate in classifiers:
            run.encoder.set_weights(candidate.weights)
            rows, labels = represent(part)
            probabilities = _softmax(rows, *fitted[candidate.name])
            predictions[candidate.name] = measures.Predictions.of(
                probabilities, labels
            )
        return predictions

    corrupted = config.EvaluateSettings(
        finetuning_settings.run_dir,
        corruptions="generated",
        corruption_severities=(_SEVERITY,),
        corruption_images=min(_CORRUPTED, run.source("test").num_examples),
    )
    unique = {selection.name: selection for selection in selections.values()}
    scores = robustness.Robustness(corrupted, run).measure(
        lambda part: classify(part, [*unique.values()])
    )
    key = "mean_corruption_error_unnormalized"
    errors = {name: scores[name][key] for name in unique}
    measured = {
        name: {
            "top_1": predictions.top_k(1),
            "ece": predictions.calibration_error(15),
            "nll": float(-np.log(predictions.likelihood).mean()),
        }
        for name, predictions in classify(test, tried).items()
    }
    return measured, errors


def _softmax(rows: object, kernel: object, bias: object) -> object:
    import tensorflow as tf

    return tf.nn.softmax(rows @ kernel + bias).numpy()


if __name__ == "__main__":
    harness.main(FinetuningBench)
