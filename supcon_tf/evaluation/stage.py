"""All measures of one run on its test images."""

from __future__ import annotations

import io

import numpy as np

from supcon_tf import config, distribute, files, measures
from supcon_tf.evaluation import (
    classifiers,
    projector,
    results,
    robustness,
    samples,
    splits,
)
from supcon_tf.training import (
    input_pipeline,
    report,
    representations,
    restoring,
    run_directory,
)


def evaluate(chosen: config.EvaluateSettings) -> dict[str, object]:
    """Measures a run on its test images, each of which counts once.

    Classifiers: the linear one of stage 2, the one that stage 1 trained with
    the encoder, if it did, and, without any training, k nearest neighbours and
    class prototypes among the training images. Then the representations
    themselves, by retrieval, alignment and uniformity, and, if asked for, the
    classifiers on corrupted images. A run without a linear stage gets the
    rest.

    Args:
      chosen: the settings.

    Returns:
      What evaluation.json holds: see `results`. Beside it go predictions.npz,
      representations.npz, samples.npz and TensorBoard's projector.

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      ValueError: run_dir is no pretrained run, the data has other classes, or
        the corruptions cannot be had or compared.
    """
    run = run_directory.RunDirectory(chosen.run_dir)
    pretrained = run.pretrain_settings()
    checkpoint = run.latest_checkpoint()
    test_images = input_pipeline.source(pretrained, "test")
    run.check_classes(test_images.class_names)
    run.check_unseen(test_images)
    classify = classifiers.probabilities_of(run, chosen.linear_stage)
    if chosen.corruptions != "none":
        robustness.check_corruptions(chosen, pretrained, test_images, classify)
    strategy = distribute.make_strategy(chosen.strategy, chosen.tpu)
    with strategy.scope():
        report.print_header(test_images, pretrained.image_size)
        report.print_done("encoder", checkpoint)
        represent = representations.representer(
            restoring.restored_encoder(run),
            batch_size=chosen.batch_size,
            image_size=pretrained.image_size,
            strategy=strategy,
        )

    test = splits.EncodedSplit(test_images, *represent(test_images))
    train_images = input_pipeline.source(pretrained, "train")
    bank = splits.EncodedSplit(train_images, *represent(train_images))
    probabilities = {
        name: function(test.representations)
        for name, function in classify.items()
    }
    found = {
        "dataset": test_images.name,
        "image_size": pretrained.image_size,
        "objective": pretrained.objective,
        "test_images": len(test.labels),
        "bank_images": len(bank.labels),
        "encoder": checkpoint,
        **_linear_checkpoint(run, chosen, classify),
        "versions": report.versions(),
        **_of_probabilities(chosen, test, probabilities),
        **classifiers.without_training(chosen, test, bank),
        **_of_representations(chosen, test),
    }
    if chosen.corruptions != "none":
        found["corruptions"] = robustness.evaluate_corruptions(
            chosen,
            pretrained,
            test_images,
            classifiers.on_images(represent, classify),
        )
    _write(run, chosen, pretrained, test, bank, probabilities, found)
    return found


def _linear_checkpoint(
    run: run_directory.RunDirectory,
    chosen: config.EvaluateSettings,
    classify: classifiers.Classifiers,
) -> dict[str, str]:
    """Which linear classifier is measured, if any."""
    if "linear" not in classify:
        return {}
    stage = run.stage(chosen.linear_stage)
    return {"linear_checkpoint": stage.latest_checkpoint()}


def _of_probabilities(
    chosen: config.EvaluateSettings,
    test: splits.EncodedSplit,
    probabilities: dict[str, np.ndarray],
) -> dict[str, object]:
    """Measures of the trained classifiers, by their names."""
    return {
        name: measures.classification_summary(
            values, test.labels, chosen.calibration_bins
        )
        for name, values in probabilities.items()
    }


def _of_representations(
    chosen: config.EvaluateSettings, test: splits.EncodedSplit
) -> dict[str, object]:
    """Measures that need no classifier, but a class with two images."""
    if np.bincount(test.labels).max() < 2:
        return {}
    return {
        "retrieval": measures.retrieval_summary(
            test.representations, test.labels, chosen.retrieval_at
        ),
        "representations": {
            "alignment": measures.alignment(test.representations, test.labels),
            "uniformity": measures.uniformity(test.representations),
        },
    }


def _write(
    run: run_directory.RunDirectory,
    chosen: config.EvaluateSettings,
    pretrained: config.PretrainSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    probabilities: dict[str, np.ndarray],
    found: dict[str, object],
) -> None:
    """Writes the numbers, and what is behind them, in place of earlier ones."""
    for file in (
        run.predictions_file,
        run.samples_file,
        run.representations_file,
        run.report_file,
    ):
        file.unlink(missing_ok=True)
    files.write_atomically(run.evaluation_file, results.to_json(found))
    best = probabilities.get("linear", probabilities.get("pretrained"))
    if best is not None:
        _write_predictions(run, test, best)
    samples.write_samples(run, chosen, pretrained, test, bank, best)
    projector.write_projector(run, chosen, pretrained, test, best)


def _write_predictions(
    run: run_directory.RunDirectory,
    test: splits.EncodedSplit,
    probabilities: np.ndarray,
) -> None:
    """Writes predictions.npz: ids, labels and probabilities per image."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        ids=np.array(test.source.ids or range(len(test.labels))),
        labels=test.labels,
        probabilities=probabilities,
        class_names=np.array(test.source.class_names),
    )
    files.write_atomically(run.predictions_file, buffer.getvalue())
