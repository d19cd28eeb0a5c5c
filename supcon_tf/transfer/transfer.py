"""The encoder of a run on another data set: linear, fine-tuned, few-shot."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, data, distribute, exceptions, run_files, scores
from supcon_tf.data import subsets
from supcon_tf.disk import files, origins
from supcon_tf.measures import truncation
from supcon_tf.training import (
    console,
    devices,
    input_pipeline,
    jobs,
    loop,
    runs,
)
from supcon_tf.transfer import fine_tuning, linear_probe, selection

_METHODS = {
    "linear": linear_probe.LinearTransfer,
    "finetune": fine_tuning.FineTuning,
}
# Figures by which a sweep may be judged, the default first, and all in a table.
_CHOOSING = ("top_1", "mean_recall")
_FIGURES = (*_CHOOSING, "top_5", "ece", "nll", "brier")
_CHOOSING_LABELS = ("map", "map_11_point")
_FIGURES_OF_LABELS = (*_CHOOSING_LABELS, "micro_f1", "macro_f1", "ece", "nll")


@devices.restored_policy()
def transfer_encoder(settings: config.TransferSettings) -> dict[str, object]:
    """Takes the pretrained encoder of a run to another data set.

    The protocol of SimCLR's appendix B.8: a sweep is judged on validation
    images held out from the training images, the best value is then trained on
    all of these, and the test images are used once, at the end. Unlike
    SimCLR's, their centre crops are those of all of our evaluation. What can
    be wrong is found before the first training.

    Example:
      >>> from supcon_tf import config, transfer
      >>> settings = config.TransferSettings(
      ...     "runs/mine", dataset="digits", l2=1.0, overwrite=True
      ... )
      >>> measured = transfer.transfer_encoder(settings)
      >>> measured["pretrained_on"], measured["dataset"], measured["classes"]
      ('folder', 'digits', 10)

    Returns:
      What transfer.json holds: what was run, and `_over_draws`. Probabilities
      go to predictions.npz, [draws, images, classes] where there are several
      draws. Fine-tuning leaves the run directory `tuned`, of the first draw.

    Raises:
      ValueError: run_dir is no pretrained run, the name is taken, or the data
        cannot be read, or has too few images for the settings.
      FloatingPointError: every cell of a sweep, or the chosen one, diverged.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """
    run = runs.Run.open(settings.run_dir, architecture=settings.architecture)
    stage = run.files.stage(settings.name)
    measured = files.read_json(stage.transfer_file, {})
    size = settings.image_size or run.settings.image_size
    sized = dataclasses.replace(settings, image_size=size)
    if settings.resume and measured:
        recorded = stage.recorded(type(sized))
        stage.check_same(sized, recorded, is_finished=True)
        _check_encoder(measured, stage, run)
        return measured
    job = jobs.prepare(sized, functools.partial(_splits, run), stage)
    images, test = job.train, job.test
    labels = subsets.labels_of(images)
    draws = selection.make_draws(job.settings, images.class_names, labels)
    with loop.open_run(job), data.reading(lambda: (images, test)):
        with job.strategy.scope():
            console.print_header(images, size, job.settings)
            console.print_line("encoder", run.checkpoint)
            console.print_duplicates(test, images)
            console.print_pretrained_on(test, run.files)
            positions = np.unique(
                np.concatenate([draw.images for draw in draws])
            )
            make = _METHODS[settings.method]
            method = make(job.settings, run, images, test, positions)
        measured, probabilities = _measured(method, draws, labels)
        if distribute.is_chief(job.strategy):
            _write(stage, test, measured, probabilities)
    return measured


def _check_encoder(
    measured: dict[str, object],
    stage: run_files.RunDirectory,
    run: runs.Run,
) -> None:
    """Raises ValueError for results of another checkpoint of the run."""
    recorded = measured.get("made_of", {}).get("encoder")
    if recorded is None:  # of an earlier version: by its name
        name = epath.Path(measured["encoder"]).name
        recorded = run.identity | {"checkpoint": name}
    if recorded != run.identity:
        raise exceptions.InvalidValue(
            f"{stage.transfer_file} must be of "
            f"{origins.describe(run.identity, recorded)}, the checkpoint that "
            f"{run.files.path} has by now, got that of "
            f"{origins.describe(recorded, run.identity)}: --overwrite makes "
            "it anew"
        )


def transfer_table(measured: dict[str, object]) -> str:
    """The text of what `transfer_encoder` returned.

    Example:
      >>> from supcon_tf import transfer
      >>> names = "top_1", "mean_recall", "top_5", "ece", "nll", "brier"
      >>> measured = {
      ...     "dataset": "digits", "method": "linear", "classes": 10,
      ...     "draws": [{"training_images": 1437, "chosen": {"l2": 0.1}}],
      ...     "test_images": 360, "test": dict.fromkeys(names, 0.5),
      ... }
      >>> print(transfer.transfer_table(measured))
      digits, linear: 1,437 training and 360 test images of 10 classes
      l2 0.1
      top-1             0.5000
      mean recall       0.5000
      top-5             0.5000
      ECE               0.5000
      NLL               0.5000
      Brier             0.5000
    """
    draws, deviation = measured["draws"], measured.get("test_deviation")
    choosing, figures = _CHOOSING, _FIGURES
    if "map" in measured["test"]:
        choosing, figures = _CHOOSING_LABELS, _FIGURES_OF_LABELS
    few = f", mean of {len(draws)} draws" if deviation else ""
    lines = [
        f"{measured['dataset']}, {measured['method']}: "
        f"{draws[0]['training_images']:,} training and "
        f"{measured['test_images']:,} test images of {measured['classes']} "
        f"classes{few}"
    ]
    for draw in draws:
        text = ", ".join(f"{k} {v:.3g}" for k, v in draw["chosen"].items())
        if validation := draw.get("validation"):
            judged = ", ".join(
                f"{scores.find(name).label} {validation[name]:.4f}"
                for name in choosing
            )
            text += (
                f", of {len(draw['sweep'])} by {draw['validation_images']:,} "
                f"validation images: {judged}"
            )
        lines.append(text)
    for name in figures:
        line = f"{scores.find(name).label:<16}{measured['test'][name]:8.4f}"
        lines.append(line + (f" ± {deviation[name]:.4f}" if deviation else ""))
    return "\n".join(lines)


def _measured(
    method: selection.Method,
    draws: Sequence[selection.Draw],
    labels: np.ndarray,
) -> tuple[dict[str, object], list[np.ndarray]]:
    """What `transfer_encoder` returns, and each draw's probabilities."""
    settings, run, images = method.settings, method.run, method.images
    test_labels = subsets.labels_of(method.test)
    select_by = _select_by(settings, images.is_multi_label)
    records, probabilities = [], []
    for draw in draws:
        record = selection.train(method, draw, labels, select_by)
        probabilities.append(method.predict())
        record["test"] = selection.measure(probabilities[-1], test_labels)
        records.append(record)
    measured = {
        "dataset": images.name,
        "image_size": settings.image_size,
        "method": settings.method,
        "pretrained_on": run.settings.dataset,
        "encoder": run.checkpoint,
        "made_of": {"encoder": run.identity},
        "classes": len(images.class_names),
        "test_images": len(test_labels),
        "select_by": select_by,
        **_over_draws(records),
    }
    return measured, probabilities


def _write(
    stage: run_files.RunDirectory,
    test: data.Source,
    measured: dict[str, object],
    probabilities: list[np.ndarray],
) -> None:
    """Writes the stage; transfer.json, by which it is complete, last."""
    several = len(probabilities) > 1
    every = np.stack(probabilities) if several else probabilities[0]
    stored = truncation.truncate(every, every.size // every.shape[-1])
    stage.write_predictions(
        stored.probabilities,
        subsets.labels_of(test),
        test.ids,
        test.class_names,
        stored.classes,
    )
    files.write_atomically(stage.transfer_file, scores.to_json(measured))
    stage.trainings.rmtree(missing_ok=True)


def _splits(
    run: runs.Run,
    settings: config.TransferSettings,
    strategy: tf.distribute.Strategy,
) -> dict[str, data.Source]:
    """The training and the test images, which suit the encoder of the run."""
    exceptions.require(  # several workers would have nothing to share
        distribute.num_workers(strategy) == 1 or settings.method == "finetune",
        "--strategy must be one_device or mirrored with --method=linear where "
        "TF_CONFIG names several workers",
        settings.strategy,
    )
    exceptions.require(
        settings.channels == run.settings.channels,
        f"--channels must be {run.settings.channels}, as the encoder has them",
        settings.channels,
    )
    images, test = (
        input_pipeline.source(settings, split) for split in ("train", "test")
    )
    _check_labels(settings, images, test)
    folder, folder_of_run = (
        part.data_dir and os.path.realpath(part.data_dir)
        for part in (settings, run.data_settings)
    )
    if folder == folder_of_run:
        run.check_unseen(test)
    _select_by(settings, images.is_multi_label)  # a wrong one is an error now
    return {"train": images, "test": test}


def _check_labels(
    settings: config.TransferSettings, images: data.Source, test: data.Source
) -> None:
    """Raises ValueError for classes or labels that cannot be learnt."""
    classes, test_classes = images.class_names, test.class_names
    exceptions.require(
        classes == test_classes and len(classes) >= 2,
        f"{images.name} must have two classes or more, the same in both splits",
        f"{len(classes)} and {len(test_classes)}, such as {classes[0]} and "
        f"{test_classes[0]}",
    )
    exceptions.require(
        not images.is_multi_label
        or not (settings.images_per_label or settings.label_smoothing),
        "--images_per_label and --label_smoothing must be left out for images "
        "of several labels",
        "one of them",
    )


def _select_by(settings: config.TransferSettings, is_multi_label: bool) -> str:
    choices = _CHOOSING_LABELS if is_multi_label else _CHOOSING
    chosen = settings.select_by or choices[0]
    exceptions.require(
        chosen in choices,
        f"--select_by must be {' or '.join(choices)} for images of "
        f"{'several labels' if is_multi_label else 'one label'}",
        chosen,
    )
    return chosen


def _over_draws(records: list[dict[str, object]]) -> dict[str, object]:
    """The part of transfer.json that is of each drawing of training images.

    There is one, unless few-shot. In "draws", the sweep, what was chosen, and
    all measures on the validation and test images; in "test", the means of the
    draws' figures, and in "test_deviation" their standard deviation (that of a
    sample).
    """
    figures = [selection.figures(record["test"]) for record in records]
    columns = {name: [draw[name] for draw in figures] for name in figures[0]}
    means = {"test": {k: float(np.mean(v)) for k, v in columns.items()}}
    if len(records) > 1:
        means["test_deviation"] = {
            k: float(np.std(v, ddof=1)) for k, v in columns.items()
        }
    return {**means, "draws": records}
