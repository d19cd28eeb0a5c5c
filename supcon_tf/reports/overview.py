"""What was trained, how well it does, its settings, and how to repeat it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence

from supcon_tf import config, settings
from supcon_tf.reports import contents, markup, page, results

_OBJECTIVES = {
    "supcon": "the supervised contrastive loss",
    "simclr": "the SimCLR loss, which ignores labels,",
    "npairs": "the N-pairs loss",
    "triplet": "the triplet loss",
    "ce": "cross-entropy",
    "max_margin": "the large-margin softmax loss",
}
_WITH_TEMPERATURE = ("supcon", "simclr")
_FIELDS = {x.name: x for x in dataclasses.fields(config.PretrainSettings)}


def introduction(runs: Sequence[contents.Run]) -> str:
    """What each run is, in a line or two; HTML."""
    if len(runs) == 1:
        return f'<p class="lead">{_describe(runs[0])}</p>'
    items = "".join(
        f"<li>{markup.mark(index)}<b>{markup.name(run.name)}.</b> "
        f"{_describe(run)}</li>"
        for index, run in enumerate(runs)
    )
    return f'<ul class="lead">{items}</ul>'


def results_section(runs: Sequence[contents.Run]) -> page.Section:
    """The numbers that matter first, and all of them."""
    body = results.results_table(runs, results.KEY, "Key results")
    everything = results.results_table(
        runs, results.all_measures(runs), "All results"
    )
    if everything:
        body += markup.details("All numbers", everything)
    explanation = (
        "Every number is measured on test images that training never saw. "
        "Unless a row says otherwise it is of the linear classifier, which "
        "is trained on the frozen representations."
    )
    if len(runs) > 1:
        explanation += (
            " The best run of a row is marked ▸; the small figure is the "
            f"difference to {markup.name(runs[0].name)}, for percentages in "
            "points."
        )
    if len({_tested_on(run) for run in runs} - {None}) > 1:
        explanation += (
            " The runs were evaluated on different images: their numbers "
            "cannot be compared."
        )
    return page.Section(
        "results",
        "Results",
        explanation + _uncertainty(runs),
        body,
        absent(runs, [not run.evaluation for run in runs], evaluate),
    )


def settings_section(runs: Sequence[contents.Run]) -> page.Section:
    """What differs: from the other runs, or from the defaults."""
    flags = [*dict.fromkeys(flag for run in runs for flag in run.settings)]
    if len(runs) > 1:
        chosen = [
            flag
            for flag in flags
            if len({run.settings.get(flag) for run in runs}) > 1
            and flag != "run_dir"
        ]
        explanation = (
            "Settings of the pretraining in which the runs differ; a dash is "
            "a setting that was not given."
        )
        nothing = "The runs have the same settings."
    else:
        chosen = [flag for flag in flags if _is_changed(runs[0], flag)]
        explanation = (
            "Settings of the pretraining that are not the defaults, as flags "
            f"of {markup.code('tools/pretrain.py')}."
        )
        nothing = "Every setting has its default."
    body = _settings_table(runs, chosen) if chosen else f"<p>{nothing}</p>"
    body += markup.details("All settings", _settings_table(runs, flags))
    return page.Section("settings", "Settings", explanation, body)


def reproduction_section(runs: Sequence[contents.Run]) -> page.Section:
    """The commands that repeat the runs."""
    parts = []
    for run in runs:
        if len(runs) > 1:
            parts.append(f"<h3>{markup.name(run.name)}</h3>")
        lines = "".join(map(markup.command, _commands(run)))
        parts.append(f"<pre>{lines}</pre>")
        parts.append(_versions(run))
    return page.Section(
        "reproduction",
        "Repeat it",
        f"The same settings in a new directory. {markup.code('--seed')} makes "
        "weights, order and augmentation the same; results agree to the last "
        f"digit only with {markup.code('--deterministic')} on the same kind "
        "of machine.",
        "".join(parts),
    )


def evaluate(run: contents.Run) -> str:
    """The command that evaluates a run."""
    where = shlex.quote(str(run.path))
    line = f"python tools/evaluate.py --run_dir={where}"
    if run.linear_stage:
        return line
    return f"python tools/train_linear.py --run_dir={where} && {line}"


def absent(
    runs: Sequence[contents.Run],
    is_absent: Sequence[bool],
    command: Callable[[contents.Run], str] = evaluate,
    extra: str = "",
) -> str:
    """Sentences on what some runs lack; "" where none does.

    Args:
      runs: all runs.
      is_absent: which of them lack it.
      command: the function from a run to the command that makes it.
      extra: flags to add to that command.
    """
    sentences = []
    for run, lacks in zip(runs, is_absent, strict=True):
        if lacks:
            who = f" for {markup.name(run.name)}" if len(runs) > 1 else ""
            line = f"{command(run)} {extra}".strip()
            sentences.append(f"Not made yet{who}: {markup.command(line)}")
    return "<br>".join(sentences)


def _describe(run: contents.Run) -> str:
    """Encoder, objective and data of a run."""
    known = run.settings
    objective = known.get("objective", "supcon")
    loss = objective.removesuffix("+ce")
    how = _OBJECTIVES.get(loss, loss)
    if loss in _WITH_TEMPERATURE and "temperature" in known:
        how += f" at temperature {known['temperature']}"
    if objective.endswith("+ce"):
        how += " and cross-entropy together"
    encoder = known.get("architecture", "")
    if known.get("width", "1.0") != "1.0":
        encoder += f" of width {known['width']}"
    size = known.get("image_size") or run.evaluation.get("image_size")
    data = run.evaluation.get("dataset", known.get("dataset", "?"))
    tested = run.evaluation.get("test_images")
    return (
        f"Encoder {markup.escape(encoder)}, "
        f"{markup.escape(_training(run, how))}. "
        f"Data: {markup.name(data)}, {len(run.class_names)} classes"
        + (f", images of {markup.escape(size)} pixels" if size else "")
        + (f", {tested:,} of them for testing" if tested else "")
        + "."
    )


def _training(run: contents.Run, how: str) -> str:
    """How long the encoder was trained, and with which loss."""
    planned = run.settings.get("epochs", "?")
    if planned == "0":
        return "with random weights, not trained at all"
    done = str(int(run.epochs[-1]["epoch"])) if run.epochs else planned
    epochs = planned if done == planned else f"{done} of {planned}"
    return f"trained for {epochs} epochs with {how}"


def _tested_on(run: contents.Run) -> tuple | None:
    """What tells one set of test images from another; None without any."""
    if not run.evaluation:
        return None
    known = [run.evaluation.get(x) for x in ("dataset", "test_images")]
    return (*known, run.class_names)


def _uncertainty(runs: Sequence[contents.Run]) -> str:
    """A sentence on how much of a difference is chance."""
    widths = {}
    for run in runs:
        count, name = run.evaluation.get("test_images"), run.classifier("top_1")
        if count and name:
            share = run.evaluation[name]["top_1"]
            widths[run.name] = 100 * results.uncertainty(share, count)
    if not widths:
        return ""
    each = " and ".join(
        f"±{width:.1f} points"
        + (f" for {markup.name(name)}" if len(runs) > 1 else "")
        for name, width in widths.items()
    )
    return (
        f" With so many test images an accuracy is known to about {each} "
        "(95\N{NO-BREAK SPACE}% interval): a smaller difference may be chance."
    )


def _is_changed(run: contents.Run, flag: str) -> bool:
    """Whether a setting is not the default."""
    if flag == "run_dir":
        return False
    if flag not in _FIELDS:
        return True
    return run.settings[flag] != settings.to_text(_FIELDS[flag].default)


def _settings_table(runs: Sequence[contents.Run], flags: Sequence[str]) -> str:
    """A row per flag: what it is, and its value in each run."""
    head = ["setting", *(markup.name(run.name) for run in runs)]
    if len(runs) == 1:
        head = ["setting", "value"]
    rows = []
    for flag in flags:
        about = _FIELDS[flag].metadata["help"] if flag in _FIELDS else ""
        about = about.split(". ")[0].removesuffix(".")
        values = [run.settings.get(flag, "–") or "(none)" for run in runs]
        rows.append(
            [
                f"{markup.code(flag)}<small>{markup.escape(about)}</small>",
                *map(markup.name, values),
            ]
        )
    return markup.table(head, rows, "Settings", "settings")


def _commands(run: contents.Run) -> list[str]:
    """Pretraining, linear stage where there is one, evaluation."""
    again = shlex.quote(f"{run.path}_again")
    lines = [
        "python tools/pretrain.py "
        f"--flagfile={shlex.quote(str(run.path / 'settings.flags'))} "
        f"--run_dir={again}"
    ]
    if run.linear_stage:
        flagfile = run.path / run.linear_stage / "settings.flags"
        lines.append(
            "python tools/train_linear.py "
            f"--flagfile={shlex.quote(str(flagfile))} --run_dir={again}"
        )
    return [*lines, f"python tools/evaluate.py --run_dir={again}"]


def _versions(run: contents.Run) -> str:
    """What the evaluation ran on, where it says so."""
    versions = run.evaluation.get("versions")
    if not isinstance(versions, Mapping):
        return ""
    listed = ", ".join(f"{name} {which}" for name, which in versions.items())
    return f'<p class="quiet">Evaluated with {markup.escape(listed)}.</p>'
