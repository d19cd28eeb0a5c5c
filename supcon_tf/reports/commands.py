"""Command lines that go on with a run, measure or export it."""

from __future__ import annotations

from supcon_tf import run_files
from supcon_tf.host import trust
from supcon_tf.reports import contents


def pretrain(run: contents.Run) -> str:
    """The command that continues a pretraining, or a fine-tuning on texts."""
    return f"{run.files.commands()[0]} --resume"


def evaluate(run: contents.Run, more: str = "") -> str:
    """The command that evaluates a run, with more flags such as " --seed=1"."""
    line = run_files.command("evaluate", **_stage_flags(run)) + more
    if run.linear_stage or run.tool != "pretrain":
        return line
    linear = run_files.command("train_linear", **_stage_flags(run))
    return f"{linear} && {line}"


def export(run: contents.Run) -> str:
    """The command that exports a run, with its model card."""
    return run_files.command("export", **_stage_flags(run))


def reproduction(run: contents.Run) -> list[str]:
    """The commands that train and evaluate the run again."""
    return run.files.commands(run.linear_stage, "_again")[:-1]


def _stage_flags(run: contents.Run) -> dict[str, object]:
    """The flags that name a run, its modules and its linear stage."""
    flags = {"run_dir": run.files.path}
    if run.linear_stage not in ("", "linear"):
        flags["linear_stage"] = run.linear_stage
    return flags | trust.repeated(run.settings)
