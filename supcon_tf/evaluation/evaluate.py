"""All measures of one run on its test images."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, distribute, files, measures
from supcon_tf.evaluation import (
    classifiers,
    projector,
    results,
    robustness,
    samples,
    splits,
)
from supcon_tf.training import console, representations, runs


def evaluate(settings: config.EvaluateSettings) -> dict[str, object]:
    """Measures a run on its test images, each of which counts once.

    Classifiers: the linear one of stage 2, the one that stage 1 trained with
    the encoder, if it did, and, without any training, k nearest neighbours and
    class prototypes among the training images. Then the representations
    themselves, by retrieval, alignment and uniformity, and, if asked for, the
    classifiers on corrupted images. A run without a linear stage gets the
    rest.

    Args:
      settings: which run, and what is measured.

    Returns:
      What evaluation.json holds: see `results`. Beside it go predictions.npz,
      representations.npz, samples.npz and TensorBoard's projector.

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      ValueError: run_dir is no pretrained run, the data has other classes, or
        the corruptions cannot be had or compared.
    """
    run = runs.Run.open(settings.run_dir, settings.linear_stage)
    checkpoint, image_size = run.checkpoint, run.settings.image_size
    test_images = run.images("test")
    corrupted = None
    if settings.corruptions != "none":
        corrupted = robustness.Robustness(settings, run)
    strategy = distribute.make_strategy(settings.strategy, settings.tpu)
    with strategy.scope():
        logits = {name: run.classifier(name) for name in run.classifiers}
        console.print_header(test_images, image_size)
        console.print_line("encoder", checkpoint)
        represent = representations.representer(
            run.encoder,
            batch_size=settings.batch_size,
            image_size=image_size,
            strategy=strategy,
        )

    def classify(encoded: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities [n, classes] of each trained classifier."""
        rows = tf.convert_to_tensor(encoded)
        return {
            name: tf.nn.softmax(of(rows)).numpy() for name, of in logits.items()
        }

    def classify_images(
        images: data.Source,
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        encoded, labels = represent(images)
        return classify(encoded), labels

    test, bank = (
        splits.EncodedSplit(images, *represent(images), image_size)
        for images in (test_images, run.images("train"))
    )
    probabilities = classify(test.representations)
    first = next(iter(probabilities.values()), None)
    test = dataclasses.replace(test, probabilities=first)
    measured = _measure(settings, run, test, bank, probabilities)
    if corrupted is not None:
        measured["corruptions"] = corrupted.measure(classify_images)
    _write(settings, run, test, bank, measured)
    return measured


def _measure(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    probabilities: dict[str, np.ndarray],
) -> dict[str, object]:
    """What was measured of what, and all measures of the clean images."""
    measured = {
        "dataset": test.source.name,
        "image_size": test.image_size,
        "objective": run.settings.objective,
        "test_images": len(test.labels),
        "bank_images": len(bank.labels),
        "encoder": run.checkpoint,
    }
    if "linear" in probabilities:
        measured["linear_checkpoint"] = run.classifier_checkpoint("linear")
    measured["versions"] = console.versions()
    for name, values in probabilities.items():
        measured[name] = measures.classification_summary(
            values, test.labels, settings.calibration_bins
        )
    measured |= classifiers.without_training(settings, test, bank)
    if np.bincount(test.labels).max() > 1:  # or no image has a positive
        measured["retrieval"] = measures.retrieval_summary(
            test.representations, test.labels, settings.retrieval_at
        )
        measured["representations"] = {
            "alignment": measures.alignment(test.representations, test.labels),
            "uniformity": measures.uniformity(test.representations),
        }
    return measured


def _write(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    measured: dict[str, object],
) -> None:
    """Writes the numbers, and what is behind them, in place of earlier ones."""
    for file in (
        run.files.predictions_file,
        run.files.samples_file,
        run.files.representations_file,
        run.files.report_file,
    ):
        file.unlink(missing_ok=True)
    files.write_atomically(run.files.evaluation_file, results.to_json(measured))
    if test.probabilities is not None:
        run.files.write_predictions(
            test.probabilities,
            test.labels,
            test.source.ids,
            test.source.class_names,
        )
    samples.write_samples(run, settings, test, bank)
    projector.write_projector(run, settings, test)
