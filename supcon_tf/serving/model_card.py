"""The model card: what an export is, how it was made, how good it is.

The export writes the card once, from the records of the run: metadata.json
keeps its lines, for reports, and model_card.md is the same card in Markdown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from supcon_tf import scores, settings
from supcon_tf.text import files as text_files
from supcon_tf.training import runs

# By the name of a line, a text or command lines.
Lines = dict[str, str | list[str]]
Record = Mapping[str, object]

_LISTED = 20  # classes by name
_MEASURED_THRESHOLD = 0.5  # of `measures.multi_label_summary`
_RECIPE = (
    "images_per_label train_fraction imbalance label_noise train_examples "
    "epochs batch_size num_views optimizer learning_rate learning_rate_scaling "
    "schedule warmup_epochs weight_decay augmentation crop_area "
    "horizontal_flip mixing dropout precision seed"
)


def describe(
    run: runs.Run, record: Record, results: Record
) -> dict[str, Lines]:
    """The card of an export.

    Args:
      run: the run that was exported.
      record: metadata.json without the card.
      results: evaluation.json; {} where it is of another checkpoint.

    Returns:
      The lines of each section, by its title.
    """
    fields, names = dict(vars(run.settings)), run.class_names
    if fields.get("pooling") == "auto":
        del fields["pooling"]
    answer = record["signatures"]["represent"]["outputs"]["representation"]
    num_bytes = sum(file["bytes"] for file in record["files"].values())
    note = ", of which an image may have several" * run.is_multi_label
    listed = ", ".join((*names[:_LISTED], *["..."] * (len(names) > _LISTED)))
    model = {
        "Encoder": _join(
            fields, "architecture width image_size model pooling max_length"
        ),
        "Parameters": f"{record['parameters']:,}, with statistics of batch "
        "norm and what the export classifies by",
        "Input": f"{_noun(run)}; {record['preprocessing']}",
        "Representation": f"{answer['shape'][-1]:,} numbers, of unit length",
        "Objective": fields["objective"],
        "Classifier": record["classifier"],
        "Classes": f"{len(names):,}{note}: {listed}",
    }
    threshold = _threshold(run, record)
    if threshold is not None:
        model["Threshold"] = (
            f"a label is given from a probability of {threshold:g} on"
        )
    export = {
        "Size": f"{num_bytes / 1e6:.1f} MB",
        "Signatures": "; ".join(
            f"{name}: {', '.join(sides['inputs'])} to "
            f"{', '.join(sides['outputs'])}"
            for name, sides in record["signatures"].items()
        ),
        "Versions at export": _join(record["versions"], "supcon_tf TensorFlow"),
    }
    return {
        "Model": model,
        "Data": _data(run, results),
        "Training": _training(run, record),
        "Measures": _measures(run, record, results),
        "Export": export,
        "What it is not for": _limits(run, record, results),
    }


def to_markdown(name: str, card: Mapping[str, Lines]) -> str:
    """The card of the run of a name; what comes from data stays text."""

    def escaped(text: str) -> str:
        # An underscore inside of a word is one.
        marks = r"([\\`*\[\]<>&|~$]|(?<![^\W_])_|_(?![^\W_]))"
        return re.sub(marks, r"\\\1", " ".join(text.split()))

    lines = [f"# Model card of {escaped(name)}"]
    for title, section in card.items():
        lines += ["", f"## {title}", ""]
        for key, value in section.items():
            if isinstance(value, str):
                lines.append(f"- {key}: {escaped(value)}")
            else:
                fenced = (f"  {line}" for line in ("```", *value, "```"))
                lines += [f"- {key}:", "", *fenced]
    return "\n".join(lines) + "\n"


def _data(run: runs.Run, results: Record) -> Lines:
    fields = vars(run.settings)
    measured = results.get("dataset", fields.get("dataset"))
    data_set = _join(fields, "train_file test_file")  # of texts
    test_file = fields.get("test_file")
    if test_file and measured not in (None, text_files.name_of(test_file)):
        data_set += f"; measured on another file, {measured}"
    lines = {"Data set": data_set or measured}
    for split in ("train", "test"):
        count, sizes = run.files.example_counts(split)
        text = f"{count:,} {_noun(run)}" if count else "not counted so far"
        if sizes:
            text += f", {min(sizes):,} to {max(sizes):,} of a class"
        lines[f"Split {split}"] = text
    weights = _join(fields, "weights init_from model") or "random"
    if weights == "random" and not run.settings.epochs:
        weights += ", or imported: the run does not record it"
    return lines | {"Weights at the start": weights}


def _training(run: runs.Run, record: Record) -> Lines:
    note = ", the best epoch on validation" * run.is_of_texts
    # Other losses have none, whatever the flag.
    temperature = " temperature" * run.settings.traits.has_temperature
    lines = {
        "Stage 1": _join(vars(run.settings), _RECIPE + temperature),
        "Epochs done": f"{len(run.files.metrics())} of {run.settings.epochs}",
    }
    if tuning := run.files.finetuning():
        lines = {
            "Network": f"{tuning['chosen']}, which "
            f"{tuning['validation_images']:,} validation images chose among "
            f"{len(tuning['candidates'])}",
            "Tuned ones": lines["Stage 1"],
        }
    lines["Checkpoint"] = record["checkpoints"]["encoder"]["name"] + note
    if record["classifier"] == "linear":
        stage = record["settings"]["classifier"]
        lines["Linear stage"] = _join(stage, _RECIPE)
    return lines | {"Commands that repeat it": _commands(run, record, "_again")}


def _measures(run: runs.Run, record: Record, results: Record) -> Lines:
    if not results:
        commands = _commands(run, record)[-2:]
        return {"All": "not measured", "Commands that measure": commands}
    labels = "several" if run.is_multi_label else "one"
    classifier = record["classifier"]
    if run.files.tool == "finetune" and classifier == runs.STAGE_1:
        classifier, results = "linear", scores.linear_results(results)
    count = results["test_examples"]
    lines = {"Test examples": f"{count:,}; in brackets are 95 % intervals"}
    if duplicates := results.get("test_duplicates"):
        key = f"Test {_noun(run)} seen in training"
        lines[key] = f"{duplicates:,}, byte for byte"
    threshold = _threshold(run, record)
    if threshold not in (None, _MEASURED_THRESHOLD):
        lines["Threshold of micro F1 and exact match"] = (
            f"a probability of {_MEASURED_THRESHOLD:g}, not that of the export"
        )
    if names := results.get("test_classes"):
        labels = "unseen"
        lines["Test classes"] = f"{len(names):,}, which training never saw"
    # A classifier that is not in the export says nothing of it, nor that the
    # class is one of five, if there are no others.
    excluded = {"linear", "pretrained"} - {classifier}
    excluded |= {"corruptions"} if run.is_of_texts else set()
    excluded |= {"top_5"} if len(run.class_names) <= 5 else set()
    for score in scores.table(labels):
        if excluded.isdisjoint(score.path.split(".")):
            value = scores.value_at(results, score.path)
            lines[score.title] = _value(score, value, count)
    return lines


def _threshold(run: runs.Run, record: Record) -> float | None:
    """The probability from which the export gives a label; None for no such."""
    gives_labels = run.is_multi_label and record["classifier"] != "none"
    return record["threshold"] if gives_labels else None


def _value(score: scores.Score, value: float | None, count: int) -> str:
    if value is None or not math.isfinite(value):
        return "not measured"
    if score.unit != "share":
        return f"{value:.1f} %" if score.unit == "percent" else f"{value:.3f}"
    if not score.path.endswith(("top_1", "top_5", "exact_match")):
        return f"{value:.1%}"
    low, high = scores.interval(value, count)
    return f"{value:.1%} ({low:.1%} to {high:.1%})"


def _limits(run: runs.Run, record: Record, results: Record) -> Lines:
    evaluated, noun = run.files.evaluated(run.linear_stage), _noun(run)
    issues = evaluated.issues_list
    labels = "those of the training data were not checked"
    if issues.exists():
        count = len(issues.read_text().splitlines()) - 1
        labels = f"{issues.name} of the run lists {count:,} doubtful ones"
    scope = f"it knows those above alone, whatever {noun} show"
    origin = (
        "they, and how far probabilities can be trusted, are of the test split "
        "of the same source"
    )
    return {
        "Other classes": scope if record["classes"] else "it names no classes",
        "Other data": f"{noun} of another origin were not measured",
        "Measures": origin if results else "there are none",
        "People": "it was not evaluated on groups of people",
        "Labels": labels,
    }


def _noun(run: runs.Run) -> str:
    return "texts" if run.is_of_texts else "images"


def _join(fields: Record, names: str) -> str:
    """Names and values of the settings that are set; `names` has spaces."""
    return "; ".join(
        f"{name} {settings.to_text(fields[name])}"
        for name in names.split()
        if fields.get(name) not in (None, "none", ())
    )


def _commands(run: runs.Run, record: Record, end: str = "") -> list[str]:
    """The commands that train, evaluate and export the run again.

    `end` is appended to the name of the run directory.
    """
    linear = run.linear_stage if record["classifier"] == "linear" else ""
    return run.files.commands(linear, end)
