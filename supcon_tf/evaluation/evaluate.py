"""All measures of one run on its test images."""

from __future__ import annotations

import contextlib
import dataclasses

from supcon_tf import config, data, distribute, exceptions, run_files, scores
from supcon_tf.data import hierarchy, subsets
from supcon_tf.disk import files, locks
from supcon_tf.evaluation import (
    by_functions,
    classifying,
    clean,
    label_issues,
    projector,
    samples,
    splits,
    unknown,
    unseen_classes,
)
from supcon_tf.host import trust
from supcon_tf.measures import truncation
from supcon_tf.robustness import robustness
from supcon_tf.settings import to_texts
from supcon_tf.training import console, representations, runs


def evaluate(settings: config.EvaluateSettings) -> dict[str, object]:
    """Measures a run on its test images, each of which counts once.

    What is measured: the linear classifiers of stage 2 and of stage 1, where
    the run has them; k nearest neighbours and class prototypes; the
    representations themselves; and, if asked for, the classifiers on corrupted
    images.

    Example:
      >>> from supcon_tf import config, evaluation
      >>> settings = config.EvaluateSettings(
      ...     "runs/mine", sample_images=0, plotted_images=0  # no pictures
      ... )
      >>> measured = evaluation.evaluate(settings)
      >>> measured["test_examples"], measured["bank_examples"]
      (21, 48)
      >>> sorted(measured["prototype"])
      ['per_class_recall', 'top_1', 'top_5']

    Returns:
      What evaluation.json holds: docs/guides/evaluation.md has its keys. The
      file goes into the linear stage that was measured, without one into the
      run, and beside it predictions.npz, representations.npz, samples.npz and
      TensorBoard's projector.

    Raises:
      ImportError: the extra `corruptions` is not installed and needed.
      ValueError: run_dir is no pretrained run, or one that another process
        evaluates, the data has other classes, or the corruptions cannot be had
        or compared.
    """
    run = runs.open_run(
        settings.run_dir,
        settings.linear_stage,
        data_dir=settings.data_dir,
        train_file=settings.train_file,
        test_file=settings.test_file,
        drop_duplicates=settings.drop_duplicates,
        architecture=settings.architecture,
        dataset=settings.dataset,
    )
    files.check_writable("run_dir", run.files.encoded)
    owner = run.evaluation_owner.path
    with locks.held(owner, "evaluation"), run.reading():
        return _evaluate_run(settings, run)


def _evaluate_run(
    settings: config.EvaluateSettings, run: runs.Run
) -> dict[str, object]:
    """Writes the files of an evaluation; returns what `evaluate` does."""
    checkpoint, image_size = run.checkpoint, run.image_size
    unseen = run.has_unseen_classes
    corruptions, tree = _check(settings, run)
    unknown_images = unknown.read(settings, run)
    strategy = distribute.make_strategy(
        settings.strategy, settings.tpu, one_worker=True
    )
    with strategy.scope():
        names = () if unseen else run.classifiers
        others = run.files.linear_stages()
        classifiers = {name: run.classifier(name) for name in names}
        console.print_header(run.source("test"), image_size)
        console.print_line("encoder", checkpoint)
        console.print_duplicates(run.source("test"), run.source("train"))
        if unseen:
            console.print_unseen(run.source("test"), unseen_classes.MEASURED)
        elif others and "linear" not in names:
            console.print_line(
                "note",
                f"no linear stage is named {settings.linear_stage}: "
                f"--linear_stage={others[0]} evaluates one that is there",
            )
        represent = representations.representer(
            run.encoder, batch_size=settings.batch_size, image_size=image_size
        )
    classify = classifying.make_classify(classifiers, run.is_multi_label)
    test, bank = splits.encode(run, "test", represent), None
    judges_bank = settings.label_issues or settings.knn_leave_one_out
    if settings.bank_images != 0 and (judges_bank or not unseen):
        bank = splits.encode(run, "train", represent, settings.bank_images)
    test, probabilities, numbers = _measure(
        settings, run, test, bank, classify, tree
    )
    measured = _describe(settings, run, test, bank) | numbers
    measured |= by_functions.measure(settings.measures, test)
    if unknown_images is not None:
        with data.reading(lambda: [unknown_images]):
            measured["unknown"] = unknown.measure(
                settings, test, bank, unknown_images, represent, classify
            )
    if corruptions is not None:
        measured["corruptions"] = corruptions.measure(
            lambda images: classifying.by_classifiers(
                splits.EncodedSplit(images, *represent(images), image_size),
                classify,
            )[0]
        )
    _write(settings, run, test, bank, probabilities, measured)
    return measured


def _check(
    settings: config.EvaluateSettings, run: runs.Run
) -> tuple[robustness.Robustness | None, hierarchy.Tree | None]:
    """Checks all settings before any work; reads corruptions and parents."""
    for name in settings.measures:
        trust.import_function(name, "measures")
    if run.is_of_texts:
        _ = run.validation  # an error now, not after all sentences are encoded
    if run.has_unseen_classes:
        unseen_classes.check(settings, run)
    corruptions = tree = None
    if settings.corruptions != "none":
        run.check_rgb("corruptions")
        run.check_one_label("corruptions")
        corruptions = robustness.Robustness(settings, run)
    for name in ("label_issues", "knn_leave_one_out"):
        if getattr(settings, name):
            run.check_one_label(f"--{name}")
    parents = settings.hierarchy or run.data_settings.hierarchy
    if parents and not run.has_unseen_classes:
        run.check_one_label("--hierarchy")
        tree = hierarchy.read_tree(parents, run.class_names)
    return corruptions, tree


def _measure(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    classify: classifying.Classify,
    tree: hierarchy.Tree | None,
) -> tuple[
    splits.EncodedSplit, truncation.Probabilities | None, dict[str, object]
]:
    """The test split with predictions, probabilities to write, all measures."""
    if run.has_unseen_classes:
        return test, None, unseen_classes.measure(settings, test, bank)
    if run.is_multi_label:
        numbers, probabilities = clean.measure_several_labels(
            settings, test, bank, classify
        )
        return test, probabilities, numbers
    predictions, probabilities = classifying.by_classifiers(test, classify)
    first = next(iter(predictions.values()), None)
    test = dataclasses.replace(test, predictions=first)
    numbers = clean.measure_one_label(
        settings, run, test, bank, predictions, tree
    )
    return test, probabilities, numbers


def _describe(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
) -> dict[str, object]:
    """Data, checkpoints, settings and versions of an evaluation."""
    duplicates = len(subsets.duplicates(test.source, run.source("train")))
    measured = {
        "dataset": test.source.name,
        **({"image_size": test.image_size} if test.image_size else {}),
        "objective": run.settings.objective,
        "test_examples": len(test.labels),
        **({"test_duplicates": duplicates} if duplicates else {}),
        "bank_examples": 0 if bank is None else len(bank.labels),
        "encoder": run.checkpoint,
        "made_of": run.made_of("none"),
        "settings": to_texts(settings),
    }
    if "linear" in run.classifiers and not run.has_unseen_classes:
        measured["linear_checkpoint"] = run.classifier_checkpoint("linear")
        measured["made_of"] = run.made_of("linear")
    measured["versions"] = console.versions()
    if run.is_of_texts:
        measured["validation"] = run.validation
    return measured


def _write(
    settings: config.EvaluateSettings,
    run: runs.Run,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
    probabilities: truncation.Probabilities | None,
    measured: dict[str, object],
) -> None:
    """Replaces the files of an earlier evaluation by those of this one."""
    source = test.source
    with run.evaluation_owner.replaced_evaluation() as directory:
        if probabilities is not None:
            directory.write_predictions(
                probabilities.probabilities,
                test.labels,
                source.ids,
                source.class_names,
                probabilities.classes,
            )
        if not source.is_multi_label:  # whose page has no images of a class
            _write_examples(settings, run, directory, test, bank)
        text = scores.to_json(measured)
        files.write_atomically(directory.evaluation_file, text)
    # A damaged evaluation.json of the run, whatever it measured, stays.
    with contextlib.suppress(exceptions.InvalidValue):
        stage = run.files.measured_stage()
        if stage == run.linear_stage:  # by an earlier version
            run.files.remove_evaluation()


def _write_examples(
    settings: config.EvaluateSettings,
    run: runs.Run,
    directory: run_files.RunDirectory,
    test: splits.EncodedSplit,
    bank: splits.EncodedSplit | None,
) -> None:
    """Writes the examples that a page and TensorBoard show."""
    if settings.label_issues:
        issues = label_issues.find_issues(
            bank,
            classifying.neighbors(settings, bank),
            settings.knn_temperature,
        )
        count = settings.label_issues
        label_issues.write_label_issues(directory, bank, issues, count)
    neighbors = test if run.has_unseen_classes else bank
    if settings.sample_images and neighbors is not None:
        count = settings.sample_images
        samples.write_samples(run, directory, test, neighbors, count)
    if settings.plotted_images:
        positions = subsets.evenly(len(test.labels), settings.plotted_images)
        samples.write_representations(
            directory, test, positions, settings.plane
        )
        projector.write_projector(directory, test, positions)
