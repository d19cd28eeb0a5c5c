"""All measures of one run on its test images."""

from __future__ import annotations

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
    console,
    representations,
    runs,
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
    run = runs.Run.open(chosen.run_dir, chosen.linear_stage)
    pretrained, checkpoint = run.settings, run.checkpoint
    test_images = run.images("test")
    if chosen.corruptions != "none":
        robustness.check_corruptions(
            chosen, pretrained, test_images, run.classifiers
        )
    strategy = distribute.make_strategy(chosen.strategy, chosen.tpu)
    with strategy.scope():
        classify = classifiers.probabilities_of(run)
        console.print_header(test_images, pretrained.image_size)
        console.print_line("encoder", checkpoint)
        represent = representations.representer(
            run.encoder,
            batch_size=chosen.batch_size,
            image_size=pretrained.image_size,
            strategy=strategy,
        )

    test, bank = (
        splits.EncodedSplit(run.images(split), *represent(run.images(split)))
        for split in ("test", "train")
    )
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
        **(
            {"linear_checkpoint": run.classifier_checkpoint("linear")}
            if "linear" in classify
            else {}
        ),
        "versions": console.versions(),
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
    _write(run, chosen, test, bank, probabilities, found)
    return found


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
    run: runs.Run,
    chosen: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    probabilities: dict[str, np.ndarray],
    found: dict[str, object],
) -> None:
    """Writes the numbers, and what is behind them, in place of earlier ones."""
    for file in (
        run.files.predictions_file,
        run.files.samples_file,
        run.files.representations_file,
        run.files.report_file,
    ):
        file.unlink(missing_ok=True)
    files.write_atomically(run.files.evaluation_file, results.to_json(found))
    best = next(iter(probabilities.values()), None)
    if best is not None:
        run.files.write_predictions(
            best, test.labels, test.source.ids, test.source.class_names
        )
    samples.write_samples(run, chosen, test, bank, best)
    projector.write_projector(run, chosen, test, best)
