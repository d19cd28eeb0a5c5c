"""The model card: what an export is, how it was made, how good it is.

Made once, of what the run recorded: metadata.json keeps it, for reports, and
model_card.md beside it has it in Markdown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from supcon_tf import scores, settings
from supcon_tf.training import runs

# By the name of a line, a text or command lines.
Lines = dict[str, str | list[str]]
Record = Mapping[str, object]

_SHOWN = 20  # classes by name
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
      record: what metadata.json holds beside the card.
      results: evaluation.json; {} where it is of another checkpoint.

    Returns:
      The lines of each section, by its title.
    """
    own, names = vars(run.settings), run.class_names
    own = {k: v for k, v in own.items() if (k, v) != ("pooling", "auto")}
    answer = record["signatures"]["represent"]["outputs"]["representation"]
    size = sum(file["bytes"] for file in record["files"].values())
    several = ", of which an image may have several" * run.is_multi_label
    shown = ", ".join((*names[:_SHOWN], *["..."] * (len(names) > _SHOWN)))
    model = {
        "Encoder": _listed(
            own, "architecture width image_size model pooling max_length"
        ),
        "Parameters": f"{record['parameters']:,}, with statistics of batch "
        "norm and what the export classifies by",
        "Input": f"{_kind(run)}; {record['preprocessing']}",
        "Representation": f"{answer['shape'][-1]:,} numbers, of unit length",
        "Objective": own["objective"],
        "Classifier": record["classifier"],
        "Classes": f"{len(names):,}{several}: {shown}",
    }
    export = {
        "Size": f"{size / 1e6:.1f} MB",
        "Signatures": "; ".join(
            f"{name}: {', '.join(x['inputs'])} to {', '.join(x['outputs'])}"
            for name, x in record["signatures"].items()
        ),
        "Versions at export": _listed(
            record["versions"], "supcon_tf TensorFlow"
        ),
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
    own = vars(run.settings)
    named = _listed(own, "train_file test_file")  # of texts
    lines = {"Data set": named or results.get("dataset", own.get("dataset"))}
    for split in ("train", "test"):
        count, of_classes = run.files.example_counts(split)
        text = f"{count:,} {_kind(run)}" if count else "not counted so far"
        if of_classes:
            text += f", {min(of_classes):,} to {max(of_classes):,} of a class"
        lines[f"Split {split}"] = text
    start = _listed(own, "weights init_from model") or "random"
    if start == "random" and not run.settings.epochs:
        start += ", or imported: the run does not record it"
    return lines | {"Weights at the start": start}


def _training(run: runs.Run, record: Record) -> Lines:
    own = run.settings
    best = ", the best epoch on validation" * run.is_of_texts
    # Other losses have none, whatever the flag.
    tau = " temperature" * own.traits.has_temperature
    lines = {
        "Stage 1": _listed(vars(own), _RECIPE + tau),
        "Epochs done": f"{len(run.files.metrics())} of {own.epochs}",
    }
    if found := run.files.finetuning():
        lines = {
            "Network": f"{found['chosen']}, which "
            f"{found['validation_images']:,} validation images chose among "
            f"{len(found['candidates'])}",
            "Tuned ones": lines["Stage 1"],
        }
    lines["Checkpoint"] = record["checkpoints"]["encoder"]["name"] + best
    if record["classifier"] == "linear":
        stage = record["settings"]["classifier"]
        lines["Linear stage"] = _listed(stage, _RECIPE)
    return lines | {"Commands that repeat it": _commands(run, record, "_again")}


def _measures(run: runs.Run, record: Record, results: Record) -> Lines:
    if not results:
        commands = _commands(run, record)[-2:]
        return {"All": "not measured", "Commands that measure": commands}
    labels = "several" if run.is_multi_label else "one"
    classifier = record["classifier"]
    if run.files.tool == "finetune" and classifier == runs.STAGE_1:
        classifier, results = "linear", scores.as_linear(results)
    count = results["test_examples"]
    lines = {"Test examples": f"{count:,}; in brackets are 95 % intervals"}
    if seen := results.get("test_duplicates"):
        lines["Test images seen in training"] = f"{seen:,}, byte for byte"
    if names := results.get("test_classes"):
        labels = "unseen"
        lines["Test classes"] = f"{len(names):,}, which training never saw"
    # A classifier that is not in the export says nothing of it, nor that the
    # class is one of five, if there are no others.
    absent = {"linear", "pretrained"} - {classifier}
    absent |= {"corruptions"} if run.is_of_texts else set()
    absent |= {"top_5"} if len(run.class_names) <= 5 else set()
    for score in scores.table(labels):
        if absent.isdisjoint(score.path.split(".")):
            value = scores.value_at(results, score.path)
            lines[score.title] = _value(score, value, count)
    return lines


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
    evaluated, kind = run.files.evaluated(run.linear_stage), _kind(run)
    issues = evaluated.issues_list
    labels = "those of the training data were not checked"
    if issues.exists():
        count = len(issues.read_text().splitlines()) - 1
        labels = f"{issues.name} of the run lists {count:,} doubtful ones"
    names = f"it knows those above alone, whatever {kind} show"
    of_test = (
        "they, and how far probabilities can be trusted, are of the test split "
        "of the same source"
    )
    return {
        "Other classes": names if record["classes"] else "it names no classes",
        "Other data": f"{kind} of another origin were not measured",
        "Measures": of_test if results else "there are none",
        "People": "it was not evaluated on groups of people",
        "Labels": labels,
    }


def _kind(run: runs.Run) -> str:
    return "texts" if run.is_of_texts else "images"


def _listed(known: Record, names: str) -> str:
    """Those of the named settings that say something."""
    return "; ".join(
        f"{name} {settings.to_text(known[name])}"
        for name in names.split()
        if known.get(name) not in (None, "none", ())
    )


def _commands(run: runs.Run, record: Record, end: str = "") -> list[str]:
    """What makes, measures and exports it, in a directory with this end."""
    linear = run.linear_stage if record["classifier"] == "linear" else ""
    return run.files.commands(linear, end)
