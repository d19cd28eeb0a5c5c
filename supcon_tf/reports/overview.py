"""What was trained, how well it does, and its settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from supcon_tf import config, scores
from supcon_tf.reports import contents, numbers
from supcon_tf.settings import to_text

_FIELDS = {
    tool: {x.name: x for x in dataclasses.fields(kind)}
    for tool, kind in (
        ("pretrain", config.PretrainSettings),
        ("finetune", config.FinetuneSettings),
        ("finetune_text", config.FinetuneTextSettings),
    )
}
# An abbreviation is the end of no sentence, nor are three dots.
_SENTENCE = re.compile(r"(.*?(?<!Sec)(?<!Eq)(?<!\.\.))\.(?: |$)", re.DOTALL)


def describe(run: contents.Run) -> dict[str, object]:
    """Encoder, training and data of a run; None where it is not known."""
    known, evaluation = run.settings, run.evaluation
    encoder = known.get("architecture", "")
    if known.get("width", "1.0") != "1.0":
        encoder += f" of width {known['width']}"
    if run.is_of_texts:
        encoder = known.get("model", "")
    return {
        "encoder": encoder,
        "training": _training(run),
        "data": evaluation.get("dataset", known.get("dataset", "?")),
        "image_size": known.get("image_size") or evaluation.get("image_size"),
        "test_examples": evaluation.get("test_examples"),
        "test_duplicates": evaluation.get("test_duplicates"),
        "unseen_classes": (
            len(run.test_class_names) if run.has_unseen_classes else None
        ),
    }


def examples(runs: Sequence[contents.Run]) -> str:
    """What the runs were tested on: images, texts, or examples of both."""
    kinds = {run.is_of_texts for run in runs}
    if len(kinds) > 1:
        return "examples"
    return "texts" if kinds == {True} else "images"


def results(runs: Sequence[contents.Run]) -> dict[str, object]:
    """The numbers that matter first, and all of them."""
    recalls = map(scores.recall_at, numbers.depths(runs))
    user_scores = scores.user_scores(run.evaluation for run in runs)
    rows = numbers.score_rows(runs, [*scores.SCORES, *recalls, *user_scores])
    test_sets = {
        (x.get("dataset"), x.get("test_examples"), run.test_class_names)
        for run in runs
        if (x := run.evaluation)
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
    """What differs: from the other runs, or from the defaults."""
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
    """How long the encoder was trained, and with which loss."""
    known = run.settings
    planned = known.get("epochs", "?")
    count = len(run.finetuning.get("candidates", ()))
    if planned == "0":
        how = "with random weights, not trained at all"
        return "frozen, with the weights that it came with" if count else how
    done = str(int(run.epochs[-1]["epoch"])) if run.epochs else planned
    if count:
        done = planned  # of each training, of which some may have none
    epochs = planned if done == planned else f"{done} of {planned}"
    objective = known.get("objective", "supcon")
    loss = objective.removesuffix("+ce")
    # A run of another version may have a loss that this one lacks.
    traits = config.OBJECTIVES.get(loss)
    how = traits.title if traits else loss
    if traits and traits.has_temperature and "temperature" in known:
        how += f" at temperature {known['temperature']}"
    if objective.endswith("+ce"):
        how += " and cross-entropy together"
    how = f"trained for {epochs} epochs with {how}"
    if not count:
        return how
    return (
        f"{run.finetuning['chosen']}, which validation images chose among "
        f"{count} networks: the frozen one, and those {how}"
    )


def _uncertainties(runs: Sequence[contents.Run]) -> list[tuple[str, float]]:
    """How much of a difference between accuracies is chance, in points."""
    known = []
    for run in runs:
        count, name = (
            run.evaluation.get("test_examples"),
            run.classifier("top_1"),
        )
        if count and name:
            share = run.evaluation[name]["top_1"]
            low, high = scores.interval(share, count)
            known.append((run.name, 50 * (high - low)))
    return known


def _about(run: contents.Run, flag: str) -> str:
    """The first sentence of a flag's help."""
    fields = _FIELDS[run.tool]
    known = fields[flag].metadata["help"] if flag in fields else ""
    sentence = _SENTENCE.match(known)
    return sentence[1] if sentence else known


def _differs(runs: Sequence[contents.Run], flag: str) -> bool:
    """Whether runs have several values, or one run not the default."""
    values = {run.settings.get(flag) for run in runs}
    if len(runs) > 1:
        return len(values) > 1
    fields = _FIELDS[runs[0].tool]
    if flag not in fields:
        return True
    return values != {to_text(fields[flag].default)}
