"""Which classes are confused or missed, and whether confidence is honest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf.reports import (
    contents,
    figures,
    markup,
    overview,
    page,
    pictures,
)

_MAX_MATRIX = 30  # classes; more are a list of pairs
_MANY = 12  # classes whose matrix takes the whole width
_NUM_PAIRS = 15
_NUM_PAIRS_BELOW_MATRIX = 3
_NUM_RECALLS = 20  # classes before the rest is folded
_NUM_MISTAKES = 10
_RIGHT = (63, 144, 218)  # of the palette: blue
_WRONG = (231, 99, 0)  # orange


def confusion_section(runs: Sequence[contents.Run]) -> page.Section:
    """Confusion matrices, or the most confused pairs of many classes."""
    shown = [(run, run.classifier("confusion_matrix")) for run in runs]
    bodies = [_confusion(run, name) for run, name in shown if name]
    explanation = (
        "A row holds the test images of a class, a column what they were "
        "taken for. Blue, on the diagonal, is right; orange is wrong, and "
        "deeper for a larger share of its row."
    )
    if any(name and len(_matrix(x, name)) > _MAX_MATRIX for x, name in shown):
        explanation = (
            "The pairs of classes that are confused most: how many test "
            "images of one class were taken for another."
        )
    return page.Section(
        "confusions",
        "Confusions",
        explanation,
        f'<div class="panels">{"".join(bodies)}</div>' if bodies else "",
        overview.absent(runs, [name is None for _, name in shown]),
    )


def recall_section(runs: Sequence[contents.Run]) -> page.Section:
    """Recall of every class, the lowest first."""
    names = [run.classifier("per_class_recall") for run in runs]
    # Runs of different classes have a list each.
    groups: dict[tuple[str, ...], list[tuple[int, contents.Run, str]]] = {}
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        if name:
            groups.setdefault(run.class_names, []).append((index, run, name))
    body = "".join(_recalls(shown, len(runs)) for shown in groups.values())
    return page.Section(
        "recall",
        "Recall of each class",
        "The share of a class's test images that are recognised, the lowest "
        "first: an overall accuracy can hide a class that is missed.",
        body,
        overview.absent(runs, [name is None for name in names]),
    )


def calibration_section(runs: Sequence[contents.Run]) -> page.Section:
    """Reliability diagrams side by side."""
    drawn, names = [], []
    for run in runs:
        name = run.classifier("calibration_bins")
        names.append(name)
        if name is None:
            continue
        ece = contents.value_at(run.evaluation, name, "ece")
        drawing = figures.plot_reliability(
            run.evaluation[name]["calibration_bins"],
            f"Reliability diagram of {run.name}: accuracy against confidence; "
            f"calibration error {markup.number(ece)}",
        )
        title = f"{markup.name(run.name)}: {contents.CLASSIFIERS[name]}"
        note = f"ECE {markup.number(ece)}"
        drawn.append(markup.figure(title, drawing, note))
    return page.Section(
        "calibration",
        "Calibration",
        "When the classifier says 80 %, is it right in 80 % of the cases? "
        "The bold line on a bar is its accuracy at that confidence; on the "
        "dashed line confidence would be honest, and the red part is the gap. "
        "Below it claims too much, above too little. The grey bars count the "
        "images, so they say which gaps matter; the calibration error (ECE) "
        "is the mean gap over all images.",
        markup.panels(drawn) if drawn else "",
        overview.absent(runs, [name is None for name in names]),
    )


def mistakes_section(runs: Sequence[contents.Run]) -> page.Section:
    """The wrong predictions of the highest confidence."""
    bodies = [_mistakes(run) for run in runs if run.predictions]
    return page.Section(
        "mistakes",
        "Most confident mistakes",
        "Test images that the classifier is surest of and wrong on. "
        "Look at them first: often the label is wrong, or the image shows "
        "two things.",
        f'<div class="panels few">{"".join(bodies)}</div>' if bodies else "",
        overview.absent(runs, [not run.predictions for run in runs]),
    )


def _matrix(run: contents.Run, name: str) -> np.ndarray:
    """[classes, classes] counts; a row per true class."""
    return np.asarray(run.evaluation[name]["confusion_matrix"])


def _confusion(run: contents.Run, name: str) -> str:
    """Matrix or pairs of a run."""
    matrix = _matrix(run, name)
    title = f"{markup.name(run.name)}: {contents.CLASSIFIERS[name]}"
    pairs = _confused_pairs(matrix)
    if len(matrix) > _MAX_MATRIX:
        rows = [
            [
                markup.name(run.class_name(true)),
                markup.name(run.class_name(taken)),
                f"{matrix[true, taken]:,}",
                markup.percent(matrix[true, taken] / matrix[true].sum()),
            ]
            for true, taken in pairs[:_NUM_PAIRS]
        ]
        head = ["class", "taken for", "images", "of the class"]
        label = f"Most confused pairs of {run.name}"
        return markup.figure(title, markup.table(head, rows, label))
    note = "; ".join(
        f"{markup.name(run.class_name(true))} taken for "
        f"{markup.name(run.class_name(taken))}: {matrix[true, taken]:,} of "
        f"{matrix[true].sum():,}"
        for true, taken in pairs[:_NUM_PAIRS_BELOW_MATRIX]
    )
    note = f"Most often: {note}." if note else "No test image is confused."
    key = "large" if len(matrix) > _MANY else ""
    return markup.figure(title, _heat_map(run, matrix), note, key)


def _confused_pairs(matrix: np.ndarray) -> list[tuple[int, int]]:
    """Pairs of different classes with any image, the most frequent first."""
    wrong = matrix - np.diag(np.diag(matrix))
    order = np.argsort(-wrong, axis=None, kind="stable")
    pairs = [divmod(int(place), len(matrix)) for place in order[:_NUM_PAIRS]]
    return [pair for pair in pairs if wrong[pair]]


def _heat_map(run: contents.Run, matrix: np.ndarray) -> str:
    """The matrix as a table with coloured cells."""
    names = [run.class_name(index) for index in range(len(matrix))]
    long = ' class="long"' if max(map(len, names)) > 3 else ""
    head = "".join(
        f'<th scope="col"{long} title="{markup.escape(name)}"><span>'
        f"{markup.name(name)}</span></th>"
        for name in names
    )
    lines = []
    totals = np.maximum(matrix.sum(axis=1), 1)
    for true, (name, row) in enumerate(zip(names, matrix, strict=True)):
        cells = "".join(
            _cell(int(count), count / totals[true], taken == true)
            for taken, count in enumerate(row)
        )
        title = markup.escape(name)
        lines.append(
            f'<tr><th scope="row" title="{title}">{markup.name(name)}</th>'
            f"{cells}</tr>"
        )
    return markup.scroll_box(
        f'<table class="confusion"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table>",
        f"Confusion matrix of {run.name}: a row per true class, a column per "
        "predicted class",
    )


def _cell(count: int, share: float, is_right: bool) -> str:
    """A cell of the matrix; an empty one for no image."""
    if not count:
        return "<td></td>"
    # Errors are few: the root keeps the hundredth visible.
    depth = share if is_right else 0.15 + 0.85 * share**0.5
    color = _RIGHT if is_right else _WRONG
    mixed = [round(255 - depth * (255 - part)) for part in color]
    paint = "#" + "".join(f"{part:02x}" for part in mixed)
    return f'<td style="background:{paint}">{count}</td>'


def _recalls(
    shown: Sequence[tuple[int, contents.Run, str]], num_runs: int
) -> str:
    """A line per class, a mark per run; the rest folded."""
    recalls = np.array(
        [
            np.asarray(run.evaluation[name]["per_class_recall"], float)
            for _, run, name in shown
        ]
    )  # [runs, classes], NaN for a class without test images
    known = np.isfinite(recalls).any(axis=0)
    means = np.full(recalls.shape[1], np.inf)
    means[known] = np.nanmean(recalls[:, known], axis=0)
    order = np.argsort(means, kind="stable")[: known.sum()]
    lines = [_recall_line(int(label), recalls, shown) for label in order]
    marks = "".join(
        f"<span>{markup.mark(index)}</span>" for index, _, _ in shown
    )
    head = (
        '<li class="head" aria-hidden="true"><span></span><span class="track">'
        f"<span>0</span><span>{markup.percent(0.5, 0)}</span>"
        f"<span>{markup.percent(1, 0)}</span></span>"
        f'<span class="values">{marks if num_runs > 1 else ""}</span></li>'
    )
    text = f'<ul class="recall">{head}{"".join(lines[:_NUM_RECALLS])}</ul>'
    if num_runs > 1:
        names = {index: run.name for index, run, _ in shown}
        text = markup.legend(names) + text
    rest = lines[_NUM_RECALLS:]
    if rest:
        text += markup.details(
            f"The other {len(rest)} classes",
            f'<ul class="recall">{head}{"".join(rest)}</ul>',
        )
    return text


def _recall_line(
    label: int,
    recalls: np.ndarray,
    shown: Sequence[tuple[int, contents.Run, str]],
) -> str:
    """A class: its name, a mark per run between 0 and 100 %, the numbers."""
    marks, values = "", ""
    for (index, _, _), recall in zip(shown, recalls[:, label], strict=True):
        text = markup.percent(float(recall))
        values += f"<span>{text}</span>"
        if np.isfinite(recall):
            place = f'<svg style="left:{100 * recall:.1f}%" '
            marks += markup.mark(index).replace("<svg ", place, 1)
    run, name = shown[0][1:]
    matrix = run.evaluation[name].get("confusion_matrix")
    count = f" <small>{sum(matrix[label]):,}</small>" if matrix else ""
    return (
        f'<li><span class="class">{markup.name(run.class_name(label))}{count}'
        f'</span><span class="track">{marks}</span>'
        f'<span class="values">{values}</span></li>'
    )


def _mistakes(run: contents.Run) -> str:
    """The most confident mistakes of a run: pictures where they are stored."""
    labels = run.predictions["labels"]
    probabilities = run.predictions["probabilities"]
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    order = wrong[np.argsort(-confidence[wrong], kind="stable")]
    rows = [
        (
            run.predictions["ids"][index],
            run.class_name(int(labels[index])),
            run.class_name(int(predicted[index])),
            markup.percent(float(confidence[index])),
        )
        for index in order[:_NUM_MISTAKES]
    ]
    note = f"{len(wrong):,} of {len(labels):,} test images are wrong"
    classifier = contents.CLASSIFIERS[run.classifier("top_1") or "linear"]
    title = f"{markup.name(run.name)}: {classifier}"
    # Without sample images, and in runs of earlier versions, there are none.
    stored = run.samples.get("mistake_positions", np.array([]))
    if rows and np.array_equal(stored, order[: len(rows)]):
        images = zip(run.samples["mistakes"], rows, strict=True)
        shown = "".join(_mistake(pixels, *row) for pixels, row in images)
        body = f'<div class="mistakes">{shown}</div>'
        return markup.figure(title, body, note, "large")
    head = ["image", "class", "taken for", "confidence"]
    cells = [
        [markup.path(file), markup.name(true), markup.name(taken), share]
        for file, true, taken, share in rows
    ]
    label = f"Most confident mistakes of {run.name}"
    return markup.figure(title, markup.table(head, cells, label), note)


def _mistake(
    pixels: np.ndarray, file: str, true: str, taken: str, share: str
) -> str:
    """A picture with its class, what it was taken for and how surely."""
    return pictures.pictured(
        pixels,
        f"{file}: {true}, taken for {taken}, confidence {share}",
        f"<b>{markup.name(true)}</b><br>taken for {markup.name(taken)}, {share}"
        f"<br><small>{markup.path(file)}</small>",
    )
