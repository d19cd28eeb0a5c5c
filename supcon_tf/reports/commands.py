"""Command lines that go on with a run, measure or export it."""

from __future__ import annotations

import dataclasses
import shlex

from supcon_tf import config, run_files
from supcon_tf.host import trust
from supcon_tf.reports import contents
from supcon_tf.settings import to_texts


def pretrain(run: contents.Run) -> str:
    """The command that continues a pretraining, or a fine-tuning on texts."""
    return f"{run.files.commands()[0]} --resume"


def evaluate(run: contents.Run, more: str = "") -> str:
    """The command that evaluates a run, with more flags such as " --seed=1".

    The new evaluation replaces an earlier one, so that the flags of the earlier
    one are repeated: without --corruptions, hours of work would be lost. Not
    repeated are flags that leave a part out, which may be the missing part.
    """
    repeated = {
        name: value
        for name, value in _evaluation_flags(run).items()
        if value != "0" and f" --{name}=" not in more
    }
    line = run_files.command("evaluate", **_stage_flags(run))
    line += _text(repeated) + more
    if run.linear_stage or run.tool != "pretrain":
        return line
    linear = run_files.command("train_linear", **_stage_flags(run))
    return f"{linear} && {line}"


def export(run: contents.Run) -> str:
    """The command that exports a run, with its model card."""
    return run_files.command("export", **_stage_flags(run))


def reproduction(run: contents.Run) -> list[str]:
    """The commands that train and evaluate the run again."""
    *lines, line, _ = run.files.commands(run.linear_stage, "_again")
    return [*lines, line + _text(_evaluation_flags(run))]


def _stage_flags(run: contents.Run) -> dict[str, object]:
    """The flags that name a run, its modules and its linear stage."""
    flags = {"run_dir": run.files.path}
    if run.linear_stage not in ("", "linear"):
        flags["linear_stage"] = run.linear_stage
    return flags | trust.repeated(run.settings)


def _evaluation_flags(run: contents.Run) -> dict[str, str]:
    """The flags of the run's evaluation that are no defaults, by name."""
    names = {
        field.name for field in dataclasses.fields(config.EvaluateSettings)
    }
    defaults = to_texts(config.EvaluateSettings(str(run.files.path)))
    # Another version may have recorded other flags.
    return {
        name: value
        for name, value in run.evaluation.get("settings", {}).items()
        if name in names - {"linear_stage"} and value != defaults.get(name)
    }


def _text(flags: dict[str, str]) -> str:
    """Flags as a part of a command line, each after a blank."""
    return "".join(f" --{k}={shlex.quote(str(v))}" for k, v in flags.items())
