"""All measures of one run on its test images."""

from __future__ import annotations

import dataclasses

import numpy as np

from supcon_tf import config, distribute, files, measures
from supcon_tf.data import hierarchy
from supcon_tf.evaluation import (
    classifying,
    label_issues,
    projector,
    results,
    robustness,
    samples,
    splits,
)
from supcon_tf.settings import to_texts
from supcon_tf.training import console, representations, runs

_LONG_TAIL = 2  # images of the largest class over those of the smallest


def evaluate(settings: config.EvaluateSettings) -> dict[str, object]:
    """Measures a run on its test images, each of which counts once.

    The linear classifier of stage 2 and that of stage 1, where there are such;
    k nearest neighbours and class prototypes; the representations themselves;
    and, if asked for, the classifiers on corrupted images.

    Example:
      >>> from supcon_tf import config, evaluation
      >>> own = config.EvaluateSettings(
      ...     "runs/mine", sample_images=0, plotted_images=0  # no pictures
      ... )
      >>> measured = evaluation.evaluate(own)
      >>> measured["test_examples"], measured["bank_examples"]
      (21, 48)
      >>> sorted(measured["prototype"])
      ['per_class_recall', 'top_1', 'top_5']

    Returns:
      What evaluation.json holds: see `results`. It goes into the linear stage
      that was measured, without one into the run, and beside it
      predictions.npz, representations.npz, samples.npz and TensorBoard's
      projector.

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      ValueError: run_dir is no pretrained run, the data has other classes, or
        the corruptions cannot be had or compared.
    """
    run = runs.open_run(settings.run_dir, settings.linear_stage)
    checkpoint, image_size = run.checkpoint, run.image_size
    test_source = run.source("test")
    corrupted = None
    if settings.corruptions != "none":
        run.check_rgb("corruptions")
        run.check_one_label("corruptions")
        corrupted = robustness.Robustness(settings, run)
    if settings.label_issues:
        run.check_one_label("--label_issues")
    ancestors = None
    if parents := settings.hierarchy or run.settings.hierarchy:
        run.check_one_label("--hierarchy")
        ancestors = hierarchy.read_ancestors(parents, run.class_names)
    with distribute.make_strategy(settings.strategy, settings.tpu).scope():
        classifiers = {name: run.classifier(name) for name in run.classifiers}
        console.print_header(test_source, image_size)
        console.print_line("encoder", checkpoint)
        represent = representations.representer(
            run.encoder, batch_size=settings.batch_size, image_size=image_size
        )
    classify = classifying.make_classify(classifiers, run.is_multi_label)
    test, bank = splits.encode(run, "test", represent), None
    if settings.bank_images != 0:
        bank = splits.encode(run, "train", represent, settings.bank_images)
    measured = _described(settings, run, test, bank)
    if run.is_multi_label:
        numbers, kept = _of_several_labels(settings, test, bank, classify)
        measured |= numbers
    else:
        predictions, kept = classifying.by_classifiers(test, classify)
        first = next(iter(predictions.values()), None)
        test = dataclasses.replace(test, predictions=first)
        measured |= _of_one_label(
            settings, run, test, bank, predictions, ancestors
        )
    if corrupted is not None:
        measured["corruptions"] = corrupted.measure(
            lambda images: classifying.by_classifiers(
                splits.EncodedSplit(images, *represent(images), image_size),
                classify,
            )[0]
        )
    _write(settings, run, test, bank, kept, measured)
    return measured


def _described(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
) -> dict[str, object]:
    """What was measured of what."""
    measured = {
        "dataset": test.source.name,
        **({"image_size": test.image_size} if test.image_size else {}),
        "objective": run.settings.objective,
        "test_examples": len(test.labels),
        "bank_examples": 0 if bank is None else len(bank.labels),
        "encoder": run.checkpoint,
        "settings": to_texts(settings),
    }
    if "linear" in run.classifiers:
        measured["linear_checkpoint"] = run.classifier_checkpoint("linear")
    measured["versions"] = console.versions()
    if run.is_of_texts:
        measured["validation"] = run.validation
    return measured


def _of_one_label(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    predictions: dict[str, measures.Predictions],
    ancestors: np.ndarray | None,
) -> dict[str, object]:
    """All measures of the clean images, where each has one label."""
    num_classes, bins = len(test.source.class_names), settings.calibration_bins
    measured = {
        name: measures.summarize(found, num_classes, bins)
        for name, found in predictions.items()
    }
    if bank is not None:
        numbers, found = _without_training(settings, test, bank)
        measured |= numbers
        predictions = {**predictions, "knn": found}
    counts = _training_counts(run, bank)
    if counts is not None and counts.max() >= _LONG_TAIL * counts.min():
        for name in (*predictions, *(["prototype"] if bank else [])):
            measured[name]["shots"] = measures.shot_summary(
                measured[name]["per_class_recall"], counts, settings.shots
            )
    if ancestors is not None:
        for name, found in predictions.items():
            measured[name]["hierarchy"] = measures.level_summary(
                found.predicted, test.labels, ancestors
            )
    return measured | _of_space(settings, test)


def _of_space(
    settings: config.EvaluateSettings, test: splits.EncodedSplit
) -> dict[str, object]:
    """Retrieval among the test images, and how they lie on the sphere."""
    if np.bincount(test.labels).max() < 2:  # no image has a positive
        return {}
    rows, labels = test.representations, test.labels
    return {
        "retrieval": measures.retrieval_summary(
            rows, labels, settings.retrieval_at
        ),
        "representations": {
            "alignment": measures.alignment(rows, labels),
            "uniformity": measures.uniformity(rows),
        },
    }


def _training_counts(
    run: runs.Run, bank: splits.EncodedSplit | None
) -> np.ndarray | None:
    """Training images of each class, where they are known."""
    labels = run.source("train").labels
    if labels is None and bank is not None and bank.places is None:
        labels = bank.labels
    if labels is None:
        return None
    return np.bincount(labels, minlength=len(run.class_names))


def _of_several_labels(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    classify: classifying.Classify,
) -> tuple[dict[str, object], classifying.Kept | None]:
    """The classifiers and k-NN, where images have several labels.

    Labels are a matrix of all classes, and so are the probabilities here. What
    is kept of the first classifier comes with the measures.
    """
    predictions, measured = classify(test.representations), {}
    first = next(iter(predictions.values()), None)
    kept = None if first is None else classifying.keep(first, len(first))
    if bank is not None:
        nearest = measures.nearest_neighbors(
            test.representations,
            bank.representations,
            _neighbors(settings, bank),
        )
        predictions["knn"] = measures.share_of_neighbors(
            *nearest, bank.labels, settings.knn_temperature
        )
        measured["knn"] = {"k": nearest[0].shape[1]}
    for name, values in predictions.items():
        measured[name] = measured.get(name, {}) | measures.multi_label_summary(
            values, test.labels, settings.calibration_bins
        )
    return measured, kept


def _without_training(
    settings: config.EvaluateSettings,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit,
) -> tuple[dict[str, dict[str, object]], measures.Predictions]:
    """k-NN, weighted and by majority, and prototypes among the training images.

    And, if asked for, k-NN on the training images, each left out of its own
    neighbours. The predictions of weighted k-NN come with them.
    """
    num_classes, bins = len(test.source.class_names), settings.calibration_bins
    found = _by_neighbors(settings, test, bank)
    k = min(_neighbors(settings, bank), len(bank.labels))
    measured = {
        name: {"k": k} | measures.summarize(own, num_classes, bins)
        for name, own in found.items()
    }
    measured["knn"]["temperature"] = settings.knn_temperature
    predicted, ranks = classifying.by_prototypes(test, bank)
    measured["prototype"] = {
        **{f"top_{k}": float(np.mean(ranks < k)) for k in (1, 5)},
        "per_class_recall": measures.per_class_recall(
            predicted, test.labels, num_classes
        ),
    }
    if settings.knn_leave_one_out:
        others = _by_neighbors(settings, bank, bank, leave_one_out=True)
        measured["knn_leave_one_out"] = {
            "top_1": others["knn"].top_k(1),
            "top_5": others["knn"].top_k(5),
            "majority_top_1": others["knn_majority"].top_k(1),
        }
    return measured, found["knn"]


def _by_neighbors(
    settings: config.EvaluateSettings,
    queries: splits.EncodedSplit,
    bank: splits.EncodedSplit,
    leave_one_out: bool = False,
) -> dict[str, measures.Predictions]:
    """k-NN predictions, weighted and by majority."""
    return measures.knn_predictions(
        queries.representations,
        queries.labels,
        bank.representations,
        bank.labels,
        num_classes=len(bank.source.class_names),
        k=_neighbors(settings, bank),
        temperature=settings.knn_temperature,
        leave_one_out=leave_one_out,
    )


def _neighbors(
    settings: config.EvaluateSettings, bank: splits.EncodedSplit
) -> int:
    """k, that of the data where none is given."""
    return settings.knn_neighbors or measures.default_neighbors(bank.labels)


def _write(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    kept: classifying.Kept | None,
    measured: dict[str, object],
) -> None:
    """Writes the numbers, and what is behind them, in place of earlier ones."""
    owner, source = run.evaluation_owner, test.source
    owner.remove_evaluation()
    if run.files.measured_stage() == run.linear_stage:  # by an earlier version
        run.files.remove_evaluation()
    if kept is not None:
        owner.write_predictions(
            kept.probabilities,
            test.labels,
            source.ids,
            source.class_names,
            kept.classes,
        )
    if not source.is_multi_label:  # whose page has no images of a class
        _write_examples(settings, run, test, bank)
    files.write_atomically(owner.evaluation_file, results.to_json(measured))


def _write_examples(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
) -> None:
    """Writes what a page and TensorBoard show of single examples."""
    if settings.label_issues:
        issues = label_issues.find_issues(
            bank, _neighbors(settings, bank), settings.knn_temperature
        )
        count = settings.label_issues
        label_issues.write_label_issues(run, bank, issues, count)
    if settings.sample_images and bank is not None:
        samples.write_samples(run, test, bank, settings.sample_images)
    if settings.plotted_images:
        positions = splits.evenly(len(test.labels), settings.plotted_images)
        samples.write_representations(run, test, positions, settings.plane)
        projector.write_projector(run, test, positions)
