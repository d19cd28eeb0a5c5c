"""The gains over cross-entropy, by training images and steps: the sweep map."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping

from matplotlib import figure
from scipy import stats

from supcon_tf import run_files
from supcon_tf.display import palette
from supcon_tf.sweeps import table

# The methods of the map: titles by objective and metric. The first is the
# method that the gains of the others refer to.
METHODS = {
    "ce method.top_1": "cross-entropy",
    "supcon method.top_1": "SupCon, linear",
    "supcon+ce method.top_1": "SupCon + cross-entropy, linear",
    "ce linear.top_1": "cross-entropy, linear",
}
_BASELINE, *_OTHERS = METHODS
_DRAWN = _OTHERS[:2]


@dataclasses.dataclass(frozen=True)
class Result:
    """The accuracy of a method in one training.

    Attributes:
      images: training images of each class.
      steps: of the optimizer.
      seed: of the training.
      method: a key of `METHODS`.
      top_1: accuracy on the test images, in [0, 1].
    """

    images: int
    steps: int
    seed: int
    method: str
    top_1: float


def list_results(cells: Iterable[Mapping[str, object]]) -> list[Result]:
    """Returns the results of finished cells of `grid.describe`."""
    results = []
    for cell in cells:
        settings = cell["settings"]["pretrain"]
        checkpoints = run_files.RunDirectory(cell["run_dir"]).checkpoints
        steps = max(run_files.steps_in(checkpoints))
        for method in METHODS:
            objective, metric = method.split()
            if objective == settings["objective"]:
                images, seed = settings["images_per_label"], settings["seed"]
                top_1 = cell["metrics"][metric]
                results.append(Result(images, steps, seed, method, top_1))
    return results


def gains(
    results: Iterable[Result], method: str
) -> dict[tuple[int, int], list[float]]:
    """Returns differences to cross-entropy of the same seed.

    Args:
      results: of `list_results`.
      method: a key of `METHODS`.

    Returns:
      By images of each class and steps, sorted: a difference of accuracies for
      each seed that both methods have, at least one.
    """
    accuracies = {
        (row.method, row.images, row.steps, row.seed): row.top_1
        for row in results
    }
    differences = {}
    for (name, *training), top_1 in sorted(accuracies.items()):
        baseline = accuracies.get((_BASELINE, *training))
        if name == method and baseline is not None:
            images, steps, _ = training
            differences.setdefault((images, steps), []).append(top_1 - baseline)
    return differences


def half_interval(differences: list[float]) -> float:
    """Half the 95 % interval of a mean, by Student's t; nan for one number."""
    count = len(differences)
    if count < 2:
        return math.nan
    error = statistics.stdev(differences) / math.sqrt(count)
    return float(stats.t.ppf(0.975, count - 1)) * error


def gains_table(results: Iterable[Result]) -> str:
    """Returns Markdown: a row for each number of images and steps.

    The second column has the mean accuracy of cross-entropy's own classifier.
    The others have the mean gain over this accuracy, in points, with half of
    its 95 % interval where there are several seeds, and "(of N)" for a gain of
    fewer seeds than the row has.

    Example:
      >>> from supcon_tf.sweeps import gains
      >>> results = [
      ...     gains.Result(100, 500, 0, "ce method.top_1", 0.5),
      ...     gains.Result(100, 500, 0, "supcon method.top_1", 0.52),
      ... ]
      >>> print(gains.gains_table(results).splitlines()[-1].split("|")[4])
             0.500
    """
    results = list(results)
    titles = "images per class", "steps", "seeds", *METHODS.values()
    rows = [list(titles)]
    differences = {method: gains(results, method) for method in _OTHERS}
    for images, steps in gains(results, _BASELINE):
        numbers = [
            row.top_1
            for row in results
            if (row.images, row.steps) == (images, steps)
            and row.method == _BASELINE
        ]
        texts = [f"{images:,}", f"{steps:,}", f"{len(numbers)}"]
        texts.append(f"{statistics.fmean(numbers):.3f}")
        for method in _OTHERS:
            points = differences[method].get((images, steps), [])
            texts.append(_points(points, len(numbers)))
        rows.append(texts)
    return "\n".join(table.markdown(rows, left=0))


def _points(differences: list[float], seeds: int) -> str:
    """Returns a mean gain in points, with half of its interval.

    Says how many pairs there are if they are fewer than the `seeds` of the row.
    """
    if not differences:
        return "-"
    mean = round(100 * statistics.fmean(differences), 1)
    text = f"{mean + 0.0:+.1f}"  # of -0.0, +0.0
    if len(differences) > 1:
        text += f" ± {100 * half_interval(differences):.1f}"
    if len(differences) < seeds:
        text += f" (of {len(differences)})"
    return text


def plot_gains(results: Iterable[Result]) -> figure.Figure:
    """Draws the gains over the steps: a panel per method, a line per images.

    Example:
      >>> from supcon_tf.sweeps import gains
      >>> results = [
      ...     gains.Result(100, 500, 0, method, 0.5) for method in gains.METHODS
      ... ]
      >>> [panel.get_title() for panel in gains.plot_gains(results).axes]
      ['SupCon, linear', 'SupCon + cross-entropy, linear']
    """
    results = list(results)
    fig = figure.Figure(layout="constrained", figsize=(8.5, 3.6))
    panels = fig.subplots(1, len(_DRAWN), sharey=True)
    panels[0].set_ylabel("points of top-1 over cross-entropy")
    sizes = sorted({row.images for row in results})
    step_counts = sorted({row.steps for row in results})
    ticks = sorted({float(f"{count:.1g}") for count in step_counts})
    for panel, method in zip(panels, _DRAWN, strict=True):
        panel.set_title(METHODS[method])
        panel.set_xlabel("steps")
        panel.set_xscale("log")
        panel.set_xlim(step_counts[0] / 1.5, step_counts[-1] * 1.5)
        panel.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        panel.minorticks_off()
        panel.axhline(0, color="black", linewidth=0.8)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        differences = gains(results, method)
        for index, size in enumerate(sizes):
            shift = 1.04 ** (index - (len(sizes) - 1) / 2)  # apart in the panel
            rows = {
                steps: [100 * number for number in numbers]
                for (images, steps), numbers in differences.items()
                if images == size
            }
            panel.errorbar(
                [shift * steps for steps in rows],
                [statistics.fmean(numbers) for numbers in rows.values()],
                yerr=[half_interval(numbers) for numbers in rows.values()],
                fmt="o-",
                capsize=3,
                color=palette.style(index)["color"],
                label=f"{size:,}",
            )
    legend = panels[0].get_legend_handles_labels()
    title = "images per class"
    fig.legend(*legend, loc="outside right upper", title=title, frameon=False)
    return fig
