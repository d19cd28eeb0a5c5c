"""The report on runs: one self-contained HTML page."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import jinja2
from etils import epath

import supcon_tf
from supcon_tf import exceptions, run_files
from supcon_tf.disk import files
from supcon_tf.display import palette
from supcon_tf.reports import (
    classification,
    commands,
    contents,
    figures,
    learning,
    neighborhood,
    numbers,
    overview,
    robustness,
)


class Section(NamedTuple):
    """A part of the page.

    Attributes:
      title: a few words.
      view: from the runs to the values of the template; empty for no section.
      needs: one of `contents.Run.parts`, which a run may lack.
      command: from a run that lacks it to the command line that makes it.
      images_only: whether the section is not for runs on texts.
      seen_classes_only: whether the section is not for runs whose training saw
        no test class.
    """

    title: str
    view: Callable[[Sequence[contents.Run]], Collection[object]]
    needs: str = "settings"
    command: Callable[[contents.Run], str] = commands.evaluate
    images_only: bool = False
    seen_classes_only: bool = False

    @property
    def name(self) -> str:
        """The name of the view, of its template, and of its HTML id."""
        return self.view.__name__

    def content(self, runs: Sequence[contents.Run]) -> Collection[object]:
        """The values of the template."""
        return self.view(runs)


class RunSection(Section):
    """A section whose view is of one run; its content is (run, view) pairs."""

    def content(self, runs: Sequence[contents.Run]) -> Collection[object]:
        """Each run that has the part `needs`, with its view."""
        return [
            (run, self.view(run)) for run in runs if self.needs in run.parts
        ]


def _evaluate_with(flag: str) -> Callable[[contents.Run], str]:
    return functools.partial(commands.evaluate, more=f" --{flag}")


SECTIONS = (
    Section("Results", overview.results, "evaluation"),
    Section("Settings", overview.settings),
    Section("Learning curves", learning.curves, "epochs", commands.pretrain),
    Section("Augmented views", learning.views, "views", images_only=True),
    RunSection("Confusions", classification.confusions, "confusions"),
    Section("Recall of each class", classification.recall, "per_class_recall"),
    RunSection(
        "Calibration",
        classification.calibration,
        "calibration_bins",
        seen_classes_only=True,
    ),
    RunSection(
        "Most confident mistakes",
        classification.mistakes,
        "predictions",
        seen_classes_only=True,
    ),
    Section(
        "Corrupted images",
        robustness.robustness,
        "robustness",
        _evaluate_with("corruptions=generated"),
        images_only=True,
        seen_classes_only=True,
    ),
    RunSection(
        "Unknown images",
        classification.unknown,
        "unknown",
        _evaluate_with("unknown_data=DIR"),
        images_only=True,
        seen_classes_only=True,
    ),
    Section("Representations", neighborhood.representations, "plane"),
    RunSection("Nearest neighbours", neighborhood.neighbors, "images"),
    RunSection(
        "Labels that neighbours contradict",
        neighborhood.issues,
        "issue_images",
        _evaluate_with("label_issues=1000"),
    ),
    RunSection("Model card", overview.card, "card", commands.export),
    RunSection("Repeat it", commands.reproduction),
)

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("supcon_tf.reports"),
    # Everything but the markup of `figures.to_svg`.
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
)
_TEMPLATES.filters |= {
    "number": numbers.number,
    "percent": numbers.percent,
    "data_uri": figures.data_uri,
}
_TEMPLATES.globals |= {"colors": palette.COLORS, "markers": palette.MARKERS}


def write_report(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    file: str | os.PathLike[str],
    names: Sequence[str] | None = None,
) -> epath.Path:
    """Writes one self-contained HTML page on a run, or on several.

    Reads the files of the run directories: no data set, no checkpoint. The page
    leaves out sections whose files are missing, and names the command that
    makes them. The same runs give the same bytes.

    Args:
      runs: run directories, or linear stages of them, local or gs://; the
        first is what the others are compared with. A single path is one run.
      file: where the page goes, such as report.html of the run directory.
      names: of the runs on the page, all different; None takes the ends of
        their paths.

    Example:
      >>> from supcon_tf import reports
      >>> page = reports.write_report(["runs/mine"], "report.html", ["SupCon"])
      >>> page.name, page.read_text().startswith("<!DOCTYPE html>")
      ('report.html', True)

    Returns:
      The path of the page, written whole or not at all.

    Raises:
      ValueError: there are no `runs` or one is no run directory, or `names`
        does not fit them.
    """
    runs = [runs] if isinstance(runs, str | os.PathLike) else runs
    exceptions.require(
        runs, "`runs` must name at least one run directory", "none"
    )
    names = _short_names(runs) if names is None else tuple(names)
    if len(names) != len(runs) or len(set(names)) < len(names):
        raise exceptions.InvalidValue(
            f"`names` must be {len(runs)} different names, one per run, got "
            f"{', '.join(names)}"
        )
    document = render(
        [contents.read_run(*pair) for pair in zip(runs, names, strict=True)]
    )
    path = epath.Path(files.expanded(file, "file"))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, document.encode("utf-8", "replace"))
    return path


def render(runs: Sequence[contents.Run]) -> str:
    """The whole page, HTML."""
    parts, omitted = [], {}
    for section in SECTIONS:
        # The runs that lack the part, and the commands that make it.
        missing = tuple(
            (run.name if len(runs) > 1 else "", section.command(run))
            for run in runs
            if section.needs not in run.parts
            and not (section.images_only and run.is_of_texts)
            and not (section.seen_classes_only and run.has_unseen_classes)
        )
        view = section.content(runs)
        if view:
            parts.append({"section": section, "view": view, "missing": missing})
        elif missing:
            omitted.setdefault(missing, []).append(section.title)
    return _TEMPLATES.get_template("page.html").render(
        version=supcon_tf.__version__,
        runs=runs,
        examples=overview.examples(runs),
        descriptions=[*map(overview.describe, runs)],
        parts=parts,
        omitted=omitted,
    )


def _short_names(runs: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Ends of the paths, as short as different names can be.

    The name of a linear stage has its run: mine/linear of runs/mine/linear. A
    run that is given twice gets numbers.
    """
    # Whole: the working directory is ".", which has no name.
    parts = [epath.Path(files.whole(os.fspath(run))).parts for run in runs]
    min_counts = [
        2 if run_files.RunDirectory(run).is_linear_stage() else 1
        for run in runs
    ]

    def ends(count: int) -> tuple[str, ...]:
        return tuple(
            "/".join(path[-max(count, min_count) :])
            for path, min_count in zip(parts, min_counts, strict=True)
        )

    for count in range(1, max(map(len, parts)) + 1):
        if len(set(ends(count))) == len(runs):
            return ends(count)
    return tuple(f"{name} ({i + 1})" for i, name in enumerate(ends(1)))
