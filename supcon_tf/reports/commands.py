"""Command lines that make, go on with or repeat a run."""

from __future__ import annotations

import shlex

from supcon_tf.reports import contents


def pretrain(run: contents.Run) -> str:
    """The command that continues a pretraining."""
    flagfile = shlex.quote(str(run.path / "settings.flags"))
    return f"python tools/pretrain.py --flagfile={flagfile} --resume"


def evaluate(run: contents.Run) -> str:
    """The command that evaluates a run."""
    where = shlex.quote(str(run.path))
    line = f"python tools/evaluate.py --run_dir={where}"
    if run.linear_stage:
        return line
    return f"python tools/train_linear.py --run_dir={where} && {line}"


def corrupt(run: contents.Run) -> str:
    """The command that evaluates a run on corrupted images too."""
    return f"{evaluate(run)} --corruptions=generated"


def repeat(run: contents.Run) -> list[str]:
    """Pretraining, linear stage where there is one, evaluation: once more."""
    again = shlex.quote(f"{run.path}_again")
    stages = {"pretrain": run.path}
    if run.linear_stage:
        stages["train_linear"] = run.path / run.linear_stage
    lines = [
        f"python tools/{tool}.py --flagfile="
        f"{shlex.quote(str(path / 'settings.flags'))} --run_dir={again}"
        for tool, path in stages.items()
    ]
    return [*lines, f"python tools/evaluate.py --run_dir={again}"]
