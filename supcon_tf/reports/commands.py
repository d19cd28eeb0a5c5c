"""Command lines that make, go on with or repeat a run."""

from __future__ import annotations

import shlex

from supcon_tf.reports import contents


def pretrain(run: contents.Run) -> str:
    """The command that continues a pretraining, or a fine-tuning on texts."""
    tool = _first_tool(run)
    return f"{_line(tool, flagfile=run.files.settings_file)} --resume"


def evaluate(run: contents.Run) -> str:
    """The command that evaluates a run."""
    line = _line("evaluate", run_dir=run.files.path)
    if run.linear_stage or run.is_of_texts:
        return line
    return f"{_line('train_linear', run_dir=run.files.path)} && {line}"


def corrupt(run: contents.Run) -> str:
    """The command that evaluates a run on corrupted images too."""
    return f"{evaluate(run)} --corruptions=generated"


def label_issues(run: contents.Run) -> str:
    """The command that evaluates a run, and lists contradicted labels."""
    return f"{evaluate(run)} --label_issues=1000"


def export(run: contents.Run) -> str:
    """The command that exports a run, with its model card."""
    return _line("export", run_dir=run.files.path)


def reproduction(run: contents.Run) -> list[str]:
    """Pretraining, linear stage where there is one, evaluation: once more."""
    again = f"{run.files.path}_again"
    stages = {_first_tool(run): run.files}
    if run.linear_stage:
        stages["train_linear"] = run.files.stage(run.linear_stage)
    lines = [
        _line(tool, flagfile=stage.settings_file, run_dir=again)
        for tool, stage in stages.items()
    ]
    return [*lines, _line("evaluate", run_dir=again)]


def _first_tool(run: contents.Run) -> str:
    return "finetune_text" if run.is_of_texts else "pretrain"


def _line(tool: str, **paths: object) -> str:
    flags = (f"--{k}={shlex.quote(str(v))}" for k, v in paths.items())
    return f"python tools/{tool}.py {' '.join(flags)}"
