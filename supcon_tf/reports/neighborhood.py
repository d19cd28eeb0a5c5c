"""The space of representations: its plane, its numbers, its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from supcon_tf import palette
from supcon_tf.reports import (
    contents,
    figures,
    markup,
    overview,
    page,
    pictures,
    results,
)

_MAX_LEGEND = len(palette.COLORS) * len(palette.MARKERS)
_METHODS = {
    "tsne": "t-SNE: neighbours stay near; distances between groups mean "
    "nothing",
    "pca": "PCA: the two directions of largest variance",
}


def representations_section(runs: Sequence[contents.Run]) -> page.Section:
    """The plane of each run, and the numbers of the space."""
    shown = [run for run in runs if "plane" in run.representations]
    body = ""
    if shown:
        body = f'<div class="panels few">{"".join(map(_plane, shown))}</div>'
        body += _class_legend(shown)
    body += results.results_table(
        runs,
        (
            results.KNN_TOP_1,
            results.PROTOTYPE,
            *results.recall_at(runs),
            results.MAP_AT_R,
            results.ALIGNMENT,
            results.UNIFORMITY,
        ),
        "Numbers of the space",
    )
    return page.Section(
        "representations",
        "Representations",
        "Each point is a test image, placed by its representation, the "
        "vector that the encoder makes of it; colour and mark are its class. "
        "Classes that the encoder tells apart form groups of their own.",
        body,
        overview.absent(
            runs, ["plane" not in run.representations for run in runs]
        ),
    )


def neighbors_section(runs: Sequence[contents.Run]) -> page.Section:
    """Test images with the training images most similar to them."""
    body = ""
    for run in runs:
        if "images" not in run.samples:
            continue
        if len(runs) > 1:
            body += f"<h3>{markup.name(run.name)}</h3>"
        body += "".join(
            _sample(run, index) for index in range(len(run.samples["images"]))
        )
    return page.Section(
        "neighbors",
        "Nearest neighbours",
        "On the left a test image, beside it the training images that the "
        "encoder finds most similar, with their similarity (the cosine, 1 at "
        "most). ✓ and ✗ say whether the class is that of the test image; "
        "wrong ones have a red frame.",
        body,
        overview.absent(runs, ["images" not in run.samples for run in runs]),
    )


def _plane(run: contents.Run) -> str:
    """The points of a run."""
    arrays = run.representations
    method = str(arrays["plane_method"])
    labels = arrays["labels"]
    drawing = figures.plot_plane(
        arrays["plane"],
        labels,
        f"Representations of {len(labels)} test images of {run.name} in the "
        f"plane, by class; {_METHODS.get(method, method)}",
    )
    note = f"{len(labels):,} test images; {_METHODS.get(method, method)}"
    if not arrays["plane"].any():
        note = "The representations are all the same, or fewer than three."
    return markup.figure(markup.name(run.name), drawing, note)


def _class_legend(runs: Sequence[contents.Run]) -> str:
    """Class names behind their marks, once for runs of the same classes."""
    legends = {}
    for run in runs:
        count = int(run.representations["labels"].max(initial=0)) + 1
        names = [run.class_name(index) for index in range(count)]
        legends[tuple(names)] = markup.legend(dict(enumerate(names)))
    if any(len(names) > _MAX_LEGEND for names in legends):
        return (
            '<p class="quiet">There are more classes than colours and marks: '
            "they repeat, and there is no legend.</p>"
        )
    return "".join(legends.values())


def _sample(run: contents.Run, index: int) -> str:
    """A test image and its neighbours."""
    samples = run.samples
    label, predicted = samples["labels"][index], samples["predicted"][index]
    name = run.class_name(int(label))
    words, key = markup.name(name), ""
    alternative = f"test image of {name}"
    if predicted >= 0:
        is_right = predicted == label
        key = "" if is_right else "wrong"
        guess = run.class_name(int(predicted))
        words = (
            f"<b>{words}</b><br>{_sign(is_right)} predicted "
            f"{markup.name(guess)}"
        )
        alternative += f", predicted {guess}"
    image = pictures.pictured(samples["images"][index], alternative, words, key)
    neighbors = zip(
        samples["neighbors"][index],
        samples["neighbor_labels"][index],
        samples["neighbor_similarities"][index],
        strict=True,
    )
    found = "".join(
        _neighbor(run, pixels, int(which), which == label, similarity)
        for pixels, which, similarity in neighbors
    )
    return f'<div class="sample">{image}<div class="strip">{found}</div></div>'


def _neighbor(
    run: contents.Run,
    pixels: np.ndarray,
    label: int,
    is_right: bool,
    similarity: float,
) -> str:
    """A training image with its class and similarity."""
    name = run.class_name(label)
    alternative = f"training image of {name}, similarity {similarity:.3f}"
    words = (
        f'<span class="words">{_sign(is_right)} {markup.name(name)}</span>'
        f"<small>{markup.number(float(similarity))}</small>"
    )
    key = "" if is_right else "wrong"
    return pictures.pictured(pixels, alternative, words, key)


def _sign(is_right: bool) -> str:
    """Right or wrong, told by more than colour."""
    if is_right:
        return '<span class="sign" role="img" aria-label="right">✓</span>'
    return '<span class="sign" role="img" aria-label="wrong">✗</span>'
