"""Descriptions, results and settings of runs, and the model card."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from supcon_tf import config, scores
from supcon_tf.reports import contents, numbers
from supcon_tf.settings import to_text

_FIELDS = {
    tool: {field.name: field for field in dataclasses.fields(kind)}
    for tool, kind in (
        ("pretrain", config.PretrainSettings),
        ("finetune", config.FinetuneSettings),
        ("finetune_text", config.FinetuneTextSettings),
    )
}
# Neither an abbreviation nor an ellipsis ends a sentence.
_SENTENCE = re.compile(r"(.*?(?<!Sec)(?<!Eq)(?<!\.\.))\.(?: |$)", re.DOTALL)


def describe(run: contents.Run) -> dict[str, object]:
    """Encoder, training and data of a run; None for an unknown value."""
    flags, evaluation = run.settings, run.evaluation
    encoder = flags.get("architecture", "")
    if flags.get("width", "1.0") != "1.0":
        encoder += f" of width {flags['width']}"
    if run.is_of_texts:
        encoder = flags.get("model", "")
    return {
        "encoder": encoder,
        "training": _training(run),
        "data": evaluation.get("dataset", flags.get("dataset", "?")),
        "image_size": flags.get("image_size") or evaluation.get("image_size"),
        "test_examples": evaluation.get("test_examples"),
        "test_duplicates": evaluation.get("test_duplicates"),
        "unseen_classes": (
            len(run.test_class_names) if run.has_unseen_classes else None
        ),
    }


def examples(runs: Sequence[contents.Run]) -> str:
    """The noun of the test examples: images, texts, or examples of both."""
    kinds = {run.is_of_texts for run in runs}
    if len(kinds) > 1:
        return "examples"
    return "texts" if kinds == {True} else "images"


def results(runs: Sequence[contents.Run]) -> dict[str, object]:
    """The key scores and all scores of the runs, a row each."""
    recalls = map(scores.recall_at, numbers.depths(runs))
    user_scores = scores.user_scores(run.evaluation for run in runs)
    rows = numbers.score_rows(runs, [*scores.SCORES, *recalls, *user_scores])
    test_sets = {
        (
            evaluation.get("dataset"),
            evaluation.get("test_examples"),
            run.test_class_names,
        )
        for run in runs
        if (evaluation := run.evaluation)
    }
    if not rows:
        return {}
    return {
        "key_rows": {
            score: cells
            for score, cells in rows.items()
            if score in scores.KEY_SCORES
        },
        "rows": rows,
        "has_unseen": any(run.has_unseen_classes for run in runs),
        "has_pretrained": any("pretrained" in run.evaluation for run in runs),
        "are_comparable": len(test_sets) < 2,
        "uncertainties": _uncertainties(runs),
    }


def settings(runs: Sequence[contents.Run]) -> list[dict[str, object]]:
    """All settings; `differs` marks those of unequal or non-default values."""
    flags = [*dict.fromkeys(flag for run in runs for flag in run.settings)]
    return [
        {
            "flag": flag,
            "about": _about(runs[0], flag),
            "values": [run.settings.get(flag, "–") or "(none)" for run in runs],
            "differs": flag != "run_dir" and _differs(runs, flag),
        }
        for flag in flags
    ]


def card(run: contents.Run) -> dict[str, dict[str, str | list[str]]]:
    """The model card of the newest export: its lines by section and name."""
    return run.card


def _training(run: contents.Run) -> str:
    """The epochs and the loss of the encoder's training, in words."""
    flags = run.settings
    planned = flags.get("epochs", "?")
    count = len(run.finetuning.get("candidates", ()))
    if planned == "0":
        training = "with random weights, not trained at all"
        return (
            "frozen, with the weights that it came with" if count else training
        )
    done = str(int(run.epochs[-1]["epoch"])) if run.epochs else planned
    if count:
        done = planned  # of each candidate that was trained
    epochs = planned if done == planned else f"{done} of {planned}"
    objective = flags.get("objective", "supcon")
    loss = objective.removesuffix("+ce")
    # A run of another version may have a loss that this one lacks.
    traits = config.OBJECTIVES.get(loss)
    training = traits.title if traits else loss
    if traits and traits.has_temperature and "temperature" in flags:
        training += f" at temperature {flags['temperature']}"
    if objective.endswith("+ce"):
        training += " and cross-entropy together"
    training = f"trained for {epochs} epochs with {training}"
    if not count:
        return training
    return (
        f"{run.finetuning['chosen']}, which validation images chose among "
        f"{count} networks: the frozen one, and those {training}"
    )


def _uncertainties(runs: Sequence[contents.Run]) -> list[tuple[str, float]]:
    """Half the 95 % interval of each run's accuracy, in points."""
    points = []
    for run in runs:
        count, name = (
            run.evaluation.get("test_examples"),
            run.classifier("top_1"),
        )
        if count and name:
            share = run.evaluation[name]["top_1"]
            low, high = scores.interval(share, count)
            points.append((run.name, 50 * (high - low)))
    return points


def _about(run: contents.Run, flag: str) -> str:
    """The first sentence of a flag's help."""
    fields = _FIELDS[run.tool]
    help_text = fields[flag].metadata["help"] if flag in fields else ""
    sentence = _SENTENCE.match(help_text)
    return sentence[1] if sentence else help_text


def _differs(runs: Sequence[contents.Run], flag: str) -> bool:
    """Whether the runs have several values, or the only run no default."""
    values = {run.settings.get(flag) for run in runs}
    if len(runs) > 1:
        return len(values) > 1
    fields = _FIELDS[runs[0].tool]
    if flag not in fields:
        return True
    return values != {to_text(fields[flag].default)}
