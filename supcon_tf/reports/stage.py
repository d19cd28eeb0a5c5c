"""From run directories to report.html."""

from __future__ import annotations

import os
from collections.abc import Sequence

from etils import epath

from supcon_tf import exceptions, files
from supcon_tf.reports import (
    classification,
    contents,
    learning,
    neighborhood,
    overview,
    page,
    robustness,
)

_SECTIONS = (
    overview.results_section,
    overview.settings_section,
    learning.curves_section,
    learning.views_section,
    classification.confusion_section,
    classification.recall_section,
    classification.calibration_section,
    classification.mistakes_section,
    robustness.robustness_section,
    neighborhood.representations_section,
    neighborhood.neighbors_section,
    overview.reproduction_section,
)


def write_report(
    runs: Sequence[str | os.PathLike[str]],
    file: str | os.PathLike[str],
    names: Sequence[str] | None = None,
) -> epath.Path:
    """Writes one self-contained HTML page on a run, or on several.

    Reads only what lies in the run directories: no data set, no checkpoint. A
    part that was not made is left out, with the command that makes it. The same
    runs give the same bytes.

    Args:
      runs: run directories, local or gs://; the first is what the others are
        compared with.
      file: where the page goes, such as report.html of the run directory.
      names: what to call the runs, all different; None takes the ends of their
        paths.

    Returns:
      The path of the page, written whole or not at all.

    Raises:
      ValueError: there are no `runs` or one is no run directory, or `names`
        does not fit them.
    """
    if not runs:
        raise exceptions.InvalidValue(
            "`runs` must name at least one run directory, got none"
        )
    names = _short_names(runs) if names is None else tuple(names)
    if len(names) != len(runs) or len(set(names)) < len(names):
        raise exceptions.InvalidValue(
            f"`names` must be {len(runs)} different names, one per run, got "
            f"{', '.join(names)}"
        )
    read = [
        contents.read_run(run, name)
        for run, name in zip(runs, names, strict=True)
    ]
    document = page.render(
        "Report of a run" if len(runs) == 1 else f"Report of {len(runs)} runs",
        " and ".join(names) if len(names) < 4 else f"{len(names)} runs",
        overview.introduction(read),
        [section(read) for section in _SECTIONS],
    )
    path = epath.Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(path, document.encode("utf-8", "replace"))
    return path


def _short_names(runs: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The fewest last parts of the paths that tell them apart."""
    parts = [epath.Path(run).parts for run in runs]
    for count in range(1, max(map(len, parts)) + 1):
        names = tuple("/".join(path[-count:]) for path in parts)
        if len(set(names)) == len(names):
            return names
    return tuple(f"{name} ({i + 1})" for i, name in enumerate(names))
