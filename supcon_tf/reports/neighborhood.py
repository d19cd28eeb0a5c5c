"""The space of representations: its plane, its numbers, its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supcon_tf import scores
from supcon_tf.display import palette
from supcon_tf.reports import contents, figures, numbers, overview

_METHODS = {
    "tsne": "t-SNE: neighbours stay near; distances between groups mean "
    "nothing",
    "pca": "PCA: the two directions of largest variance",
}


def representations(runs: Sequence[contents.Run]) -> dict[str, object]:
    """The plane of each run, and the numbers of the space."""
    planes, legends = [], {}
    for run in runs:
        arrays = run.representations
        if "plane" not in arrays:
            continue
        method = str(arrays["plane_method"])
        method = _METHODS.get(method, method)
        labels, kind = arrays["labels"], overview.examples([run])
        drawing = figures.plot_plane(
            arrays["plane"],
            labels,
            f"Representations of {len(labels)} test {kind} of {run.name} in "
            f"the plane, by class; {method}",
        )
        note = f"{len(labels):,} test {kind}; {method}"
        if not arrays["plane"].any():
            note = "The representations are all the same, or fewer than three."
        planes.append({"run": run.name, "note": note, "drawing": drawing})
        # Runs of the same classes share a legend.
        count = int(labels.max(initial=0)) + 1
        names = [run.test_class_name(index) for index in range(count)]
        legends[tuple(names)] = dict(enumerate(names))
    table = scores.table("space", numbers.depths(runs))
    rows = numbers.score_rows(runs, table)
    if not planes and not rows:
        return {}
    return {
        "planes": planes,
        "legends": [*legends.values()],
        "has_legend": all(
            len(names) <= palette.MOST_CLASSES for names in legends
        ),
        "rows": rows,
    }


def neighbors(run: contents.Run) -> Iterator[dict[str, object]]:
    """Test examples with the training examples most similar to them."""
    arrays = run.samples
    for index, label in enumerate(arrays["labels"]):
        predicted = int(arrays["predicted"][index])
        # -1 where no classifier was evaluated
        guess = run.test_class_name(predicted) if predicted >= 0 else None
        neighbors = zip(
            arrays["neighbors"][index],
            arrays["neighbor_labels"][index],
            arrays["neighbor_similarities"][index],
            strict=True,
        )
        yield {
            "input": arrays["images"][index],
            "class": run.test_class_name(int(label)),
            "predicted": guess,
            "is_right": predicted == label,
            "neighbors": [
                (
                    neighbor_input,
                    run.test_class_name(int(neighbor_label)),
                    neighbor_label == label,
                    float(similarity),
                )
                for neighbor_input, neighbor_label, similarity in neighbors
            ],
        }


def issues(run: contents.Run) -> list[tuple[str, str, str, object]]:
    """Name, label and suggestion of contradicted labels, and their pictures."""
    arrays = run.issues
    return [
        (
            str(arrays["issue_ids"][index]),
            run.class_name(int(label)),
            run.class_name(int(arrays["issue_suggestions"][index])),
            arrays["issue_images"][index],
        )
        for index, label in enumerate(arrays["issue_labels"])
    ]
