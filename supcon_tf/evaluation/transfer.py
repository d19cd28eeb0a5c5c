"""The encoder of a run on another data set: linear, fine-tuned, few-shot."""

from __future__ import annotations

import dataclasses

import numpy as np

from supcon_tf import config, data, distribute, exceptions, files
from supcon_tf.data import subsets
from supcon_tf.evaluation import (
    fine_tuning,
    linear_probe,
    results,
    selection,
)
from supcon_tf.training import console, devices, input_pipeline, runs

_TITLES = {
    "top_1": "top-1",
    "mean_recall": "mean recall",
    "top_5": "top-5",
    "ece": "ECE",
    "nll": "NLL",
    "brier": "Brier",
}


def transfer_encoder(settings: config.TransferSettings) -> dict[str, object]:
    """Takes the pretrained encoder of a run to another data set.

    The protocol of SimCLR's appendix B.8: a sweep is judged on validation
    images held out from the training images, the best value is then trained on
    all of these, and the test images are used once, at the end. Unlike
    SimCLR's, their centre crops are those of all of our evaluation.

    Everything that can be wrong with settings, directory and data is found
    before the first training.

    Args:
      settings: which encoder, which data, and how it is taken there.

    Returns:
      What transfer.json holds: the data; in "draws", for each drawing of
      training images (one, unless few-shot), the sweep, what was chosen, and
      all measures on the validation and test images; in "test", the means of
      the draws' figures, and in "test_deviation" their standard deviation
      (that of a sample). Probabilities go to predictions.npz, [draws, images,
      classes] where there are several draws. Fine-tuning leaves a checkpoint
      of encoder and classifier, of the first draw.

    Raises:
      ValueError: run_dir is no pretrained run, the name is taken, or the data
        cannot be read, or has too few images for the settings.
      FloatingPointError: every cell of the sweep, or the chosen one on all
        training images, diverged.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """
    run = runs.Run.open(settings.run_dir)
    stage_1, checkpoint = run.settings, run.checkpoint
    stage = run.files.stage(settings.name)
    stage.check_free(settings.overwrite)
    strategy = devices.set_up(settings)
    exceptions.require(  # several workers would have nothing to share
        distribute.num_workers(strategy) == 1,
        "--strategy must be one_device or mirrored where TF_CONFIG names "
        "several workers",
        "auto",
    )
    settings, images, test = _data(settings, stage_1)
    if settings.data_dir == stage_1.data_dir:
        run.files.check_unseen(test.ids)
    labels, test_labels = map(subsets.labels_of, (images, test))
    draws = selection.make_draws(settings, images.class_names, labels)
    stage.create(settings, images.class_names, images.ids, images.skipped)

    with strategy.scope():
        console.print_header(images, settings.image_size, settings)
        console.print_line("encoder", checkpoint)
        if settings.method == "finetune":
            method = fine_tuning.FineTuning(
                settings, run.encoder, checkpoint, images, test
            )
        else:
            used = np.unique(np.concatenate([draw.images for draw in draws]))
            method = linear_probe.LinearTransfer(
                settings, run.encoder, images, test, used
            )
    records, probabilities = [], []
    for draw in draws:
        record = selection.train(method, draw, labels, settings.select_by)
        probabilities.append(method.predict())
        record["test"] = selection.measure(probabilities[-1], test_labels)
        records.append(record)
        if settings.method == "finetune" and draw is draws[0]:
            method.save(stage.checkpoints)
    measured = {
        "dataset": images.name,
        "image_size": settings.image_size,
        "method": settings.method,
        "pretrained_on": stage_1.dataset,
        "encoder": checkpoint,
        "classes": len(images.class_names),
        "test_images": len(test_labels),
        "select_by": settings.select_by,
        **_over_draws([record["test"] for record in records]),
        "draws": records,
    }
    stage.write_predictions(
        np.stack(probabilities) if len(draws) > 1 else probabilities[0],
        test_labels,
        test.ids,
        test.class_names,
    )
    files.write_atomically(stage.transfer_file, results.to_json(measured))
    return measured


def transfer_table(measured: dict[str, object]) -> str:
    """The text of what `transfer_encoder` returned."""
    draws, deviation = measured["draws"], measured.get("test_deviation")
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
            text += (
                f", of {len(draw['sweep'])} by {draw['validation_images']:,} "
                f"validation images: top-1 {validation['top_1']:.4f}, mean "
                f"recall {validation['mean_recall']:.4f}"
            )
        lines.append(text)
    for name, title in _TITLES.items():
        line = f"{title:<16}{measured['test'][name]:8.4f}"
        lines.append(line + (f" ± {deviation[name]:.4f}" if deviation else ""))
    return "\n".join(lines)


def _data(
    settings: config.TransferSettings, stage_1: config.PretrainSettings
) -> tuple[config.TransferSettings, data.Source, data.Source]:
    """Resolved settings, and the training and the test images."""
    size = settings.image_size or stage_1.image_size
    settings = dataclasses.replace(settings, image_size=size)
    images, test = (
        input_pipeline.source(settings, split) for split in ("train", "test")
    )
    classes, test_classes = images.class_names, test.class_names
    exceptions.require(
        classes == test_classes and len(classes) >= 2,
        f"{images.name} must have two classes or more, the same in both splits",
        f"{len(classes)} and {len(test_classes)}",
    )
    return input_pipeline.resolved(settings, images), images, test


def _over_draws(tests: list[dict[str, object]]) -> dict[str, object]:
    """Mean of each figure and, of several draws, standard deviation."""
    figures = [selection.figures(measured) for measured in tests]
    columns = {name: [x[name] for x in figures] for name in figures[0]}
    means = {"test": {k: float(np.mean(v)) for k, v in columns.items()}}
    if len(tests) > 1:
        means["test_deviation"] = {
            k: float(np.std(v, ddof=1)) for k, v in columns.items()
        }
    return means
