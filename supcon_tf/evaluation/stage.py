"""All measures of one run on its test images."""

from __future__ import annotations

import io
import json

import numpy as np
import tensorflow as tf

from supcon_tf import config, data
from supcon_tf.measures import classifiers, metrics
from supcon_tf.training import (
    input_pipeline,
    report,
    representations,
    restoring,
    run_directory,
)


def evaluate(chosen: config.EvaluateSettings) -> dict[str, object]:
    """Classifies the test images of a run with three classifiers.

    The linear classifier of stage 2, and, without any training, k nearest
    neighbours and class prototypes among the training images. Each test image
    counts once. A run without a linear stage gets the other two.

    Args:
      chosen: the settings.

    Returns:
      What evaluation.json holds: the data, and per classifier top-1 and top-5
      accuracy and, for the linear one, the expected calibration error, all as
      shares in [0, 1]. Probabilities per image go to predictions.npz.

    Raises:
      ValueError: run_dir is no pretrained run, or the data has other classes.
    """
    run = run_directory.RunDirectory(chosen.run_dir)
    pretrained = run.pretrain_settings()
    checkpoint = run.latest_checkpoint()
    test = input_pipeline.source(pretrained, "test")
    run.check_classes(test.class_names)
    size = pretrained.image_size
    encoder = restoring.restored_encoder(run)
    report.print_header(test, size)
    report.print_done("encoder", checkpoint)

    def represent(images: data.Source) -> tuple[np.ndarray, np.ndarray]:
        return representations.represent(
            encoder, images, batch_size=chosen.batch_size, image_size=size
        )

    queries, labels = represent(test)
    bank, bank_labels = represent(input_pipeline.source(pretrained, "train"))
    scores = {
        "knn": classifiers.knn_predict(
            queries,
            bank,
            bank_labels,
            num_classes=len(test.class_names),
            k=chosen.knn_neighbors,
            temperature=chosen.knn_temperature,
        ),
        "prototype": classifiers.prototype_predict(
            queries, bank, bank_labels, num_classes=len(test.class_names)
        ),
    }
    results: dict[str, object] = {
        "dataset": test.name,
        "test_images": len(labels),
        "bank_images": len(bank_labels),
        "encoder": checkpoint,
        **{
            name: _accuracies(values, labels) for name, values in scores.items()
        },
    }
    if run.stage(chosen.linear_stage).settings_file.exists():
        probabilities = _linear_probabilities(run, chosen.linear_stage, queries)
        results["linear"] = {
            **_accuracies(probabilities, labels),
            "ece": metrics.expected_calibration_error(
                probabilities, labels, chosen.calibration_bins
            ),
        }
        _write_predictions(run, test, labels, probabilities)
    run_directory.write_atomically(
        run.evaluation_file, json.dumps(results, indent=1) + "\n"
    )
    return results


def results_table(columns: dict[str, dict[str, object]]) -> str:
    """Results of one or several runs side by side, as text.

    Args:
      columns: what `evaluate` returned, by the name of the run.
    """
    rows = {
        "linear top-1": ("linear", "top_1"),
        "linear top-5": ("linear", "top_5"),
        "linear ECE": ("linear", "ece"),
        "k-NN top-1": ("knn", "top_1"),
        "prototype top-1": ("prototype", "top_1"),
    }
    width = max(12, *(len(name) for name in columns))
    lines = [" " * 16 + "".join(f"{name:>{width + 2}}" for name in columns)]
    for title, (group, measure) in rows.items():
        values = [
            f"{results[group][measure]:.4f}" if group in results else "not run"
            for results in columns.values()
        ]
        lines.append(
            f"{title:<16}" + "".join(f"{v:>{width + 2}}" for v in values)
        )
    return "\n".join(lines)


def _linear_probabilities(
    run: run_directory.RunDirectory, stage: str, queries: np.ndarray
) -> np.ndarray:
    """[Q, classes] float32 of the stage's classifier, Sec. 3 of the paper."""
    classifier = restoring.restored_classifier(run, stage)
    return tf.nn.softmax(classifier.classifier(queries)).numpy()


def _accuracies(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Top-1 and top-5 accuracy."""
    return {
        f"top_{k}": metrics.top_k_accuracy(scores, labels, k) for k in (1, 5)
    }


def _write_predictions(
    run: run_directory.RunDirectory,
    test: data.Source,
    labels: np.ndarray,
    probabilities: np.ndarray,
) -> None:
    """Writes predictions.npz: ids, labels and probabilities per image."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        ids=np.array(test.ids or range(len(labels))),
        labels=labels,
        probabilities=probabilities,
        class_names=np.array(test.class_names),
    )
    run_directory.write_atomically(run.predictions_file, buffer.getvalue())
