"""The page: what runs hold, in one self-contained HTML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import jinja2
from etils import epath

import supcon_tf
from supcon_tf import exceptions, files, palette, run_files
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
      view: what the template shows, from the runs; empty for nothing to show.
      needs: one of `contents.Run.parts`; a run without it has not made it.
      command: what makes it then.
      of_images: whether runs on texts have none, and cannot make any.
      of_classes: whether there is none where training saw no test class.
    """

    title: str
    view: Callable[[Sequence[contents.Run]], Collection[object]]
    needs: str = "settings"
    command: Callable[[contents.Run], str] = commands.evaluate
    of_images: bool = False
    of_classes: bool = False

    @property
    def name(self) -> str:
        """Its address on the page, and its template's name: the view's."""
        return self.view.__name__

    def shown(self, runs: Sequence[contents.Run]) -> Collection[object]:
        """What its template shows."""
        return self.view(runs)


class OfEach(Section):
    """A part whose view is of one run: shown are pairs of run and view."""

    def shown(self, runs: Sequence[contents.Run]) -> Collection[object]:
        """The runs that have what it needs, and the view of each."""
        return [(x, self.view(x)) for x in runs if self.needs in x.parts]


SECTIONS = (
    Section("Results", overview.results, "evaluation"),
    Section("Settings", overview.settings),
    Section("Learning curves", learning.curves, "epochs", commands.pretrain),
    Section("Augmented views", learning.views, "views", of_images=True),
    OfEach("Confusions", classification.confusions, "confusions"),
    Section("Recall of each class", classification.recall, "per_class_recall"),
    OfEach(
        "Calibration",
        classification.calibration,
        "calibration_bins",
        of_classes=True,
    ),
    OfEach(
        "Most confident mistakes",
        classification.mistakes,
        "predictions",
        of_classes=True,
    ),
    Section(
        "Corrupted images",
        robustness.robustness,
        "robustness",
        commands.corrupt,
        of_images=True,
        of_classes=True,
    ),
    Section("Representations", neighborhood.representations, "plane"),
    OfEach("Nearest neighbours", neighborhood.neighbors, "images"),
    OfEach(
        "Labels that neighbours contradict",
        neighborhood.issues,
        "issue_images",
        commands.label_issues,
    ),
    OfEach("Model card", overview.card, "card", commands.export),
    OfEach("Repeat it", commands.reproduction),
)

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("supcon_tf.reports"),
    # All text, but what `figures.to_svg` says to be SVG.
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
    runs: Sequence[str | os.PathLike[str]],
    file: str | os.PathLike[str],
    names: Sequence[str] | None = None,
) -> epath.Path:
    """Writes one self-contained HTML page on a run, or on several.

    Reads only what lies in the run directories: no data set, no checkpoint. The
    page leaves out what was not made, and says which command makes it. The same
    runs give the same bytes.

    Args:
      runs: run directories, or linear stages of them, local or gs://; the
        first is what the others are compared with.
      file: where the page goes, such as report.html of the run directory.
      names: what to call the runs, all different; None takes the ends of their
        paths.

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
    shown, left_out = [], {}
    for section in SECTIONS:
        # Who lacks it, if there are others, and what makes it.
        missing = tuple(
            (run.name if len(runs) > 1 else "", section.command(run))
            for run in runs
            if section.needs not in run.parts
            and not (section.of_images and run.is_of_texts)
            and not (section.of_classes and run.has_unseen_classes)
        )
        view = section.shown(runs)
        if view:
            shown.append({"section": section, "view": view, "missing": missing})
        elif missing:
            left_out.setdefault(missing, []).append(section.title)
    return _TEMPLATES.get_template("page.html").render(
        version=supcon_tf.__version__,
        runs=runs,
        examples=overview.examples(runs),
        descriptions=[*map(overview.describe, runs)],
        parts=shown,
        left_out=left_out,
    )


def _short_names(runs: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The fewest last parts of the paths that tell them apart.

    A linear stage is called after its run too, runs/mine/linear mine/linear.
    """
    parts = [epath.Path(run).parts for run in runs]
    least = [
        2 if run_files.RunDirectory(run).is_linear_stage() else 1
        for run in runs
    ]
    for count in range(1, max(map(len, parts)) + 1):
        names = tuple(
            "/".join(path[-max(count, few) :])
            for path, few in zip(parts, least, strict=True)
        )
        if len(set(names)) == len(names):
            return names
    return tuple(f"{name} ({i + 1})" for i, name in enumerate(names))
