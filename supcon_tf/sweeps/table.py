"""The table of a sweep: a row per combination, repetitions taken together."""

from __future__ import annotations

import dataclasses
import statistics

from scipy import stats

from supcon_tf import config, scores
from supcon_tf.display import text_table

# The table shows them too, where a cell has them.
_OTHER_METRICS = ("linear.top_1", "linear.ece", "pretrained.top_1", "knn.top_1")


@dataclasses.dataclass(frozen=True)
class Group:
    """The cells of one combination, which differ in repetitions alone."""

    values: dict[str, object]  # by axis, without seeds and draws
    cells: list[dict[str, object]]  # of sweep.json

    def numbers(self, metric: str) -> list[float]:
        """The metric of the cells that have it."""
        return [*self._by_repetition(metric).values()]

    def differences(self, metric: str, first: Group) -> list[float]:
        """The metric less that of `first`, of the repetitions of both."""
        numbers, baseline = (
            group._by_repetition(metric) for group in (self, first)
        )
        return [
            numbers[key] - baseline[key] for key in numbers if key in baseline
        ]

    def _by_repetition(self, metric: str) -> dict[tuple[object, ...], float]:
        """The metric by the values of seeds and draws."""
        numbers = {}
        for cell in self.cells:
            items = cell["values"].items()
            key = tuple(seed for name, seed in items if name not in self.values)
            if cell["metrics"].get(metric) is not None:
                numbers[key] = cell["metrics"][metric]
        return numbers


def sweep_table(results: dict[str, object]) -> str:
    """A sweep as Markdown: settings, metrics, time; then failed cells.

    A row per combination in the order of the grid. Over repetitions, seeds and
    draws, it gives mean and standard deviation, and the mean difference of
    `metric` to the first row in pairs of the same repetition, with its p: how
    often signs at random make it as large (a two-sided permutation test, exact
    for up to 13 pairs). The best by `metric` is in bold type. Published
    numbers, in percent, come before it. `results` are those of
    `grid.describe`.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> grid = "temperature=0.1,1"
      >>> sweep = config.SweepSettings("runs/grid", sweep=(grid,))
      >>> results = sweeps.grid.describe(sweep, sweeps.list_cells(sweep))
      >>> for cell, accuracy in zip(results["cells"], (0.75, 0.5)):
      ...     cell["metrics"] = {"linear.top_1": accuracy}
      >>> print(sweeps.sweep_table(results))
      | temperature | linear top-1 |    time |
      | ----------- | -----------: | ------: |
      | 0.1         |   **0.7500** | pending |
      | 1.0         |       0.5000 | pending |
    """
    axes = _axes(results)
    repeats = len(axes) < len(results["axes"])
    groups, metric = group(results), results["metric"]
    metrics = [metric] + [
        other
        for other in _OTHER_METRICS
        if other != metric and any(row.numbers(other) for row in groups)
    ]
    best = _best(groups, metric)
    labels = [scores.find(metric).label for metric in metrics]
    compares = repeats and len(groups) > 1
    if compares:
        labels.insert(1, "to the first")
    published = results.get("published")
    titles = ["published"] * bool(published) + ["runs"] * repeats
    rows = [[*axes, *titles, *labels, "time"]]
    for index, row in enumerate(groups):
        cells = [config.axis_text(row.values[axis]) for axis in axes]
        if published:
            cells.append(f"{published[index] or '-'}")
        if repeats:
            cells.append(_runs(row))
        numbers = [_number(row, metric) for metric in metrics]
        if row is best:
            numbers[0] = f"**{numbers[0]}**"
        if compares:
            numbers.insert(1, _difference(row.differences(metric, groups[0])))
        rows.append([*cells, *numbers, _time(row)])
    lines = _markdown(rows, left=len(axes))
    failures = [
        f"- {cell['name']}, {cell['part'] or 'at its start'}: "
        f"{cell['error']}; {cell['log']}"
        for cell in results["cells"]
        if cell["status"] == "failed"
    ]
    if failures:
        lines += ["", f"{len(failures)} failed:", "", *failures]
    return "\n".join(lines)


def group(results: dict[str, object]) -> list[Group]:
    """The cells of sweep.json; those that differ in seeds alone are a group."""
    axes = _axes(results)
    groups: dict[tuple[object, ...], Group] = {}
    for cell in results["cells"]:
        values = {axis: cell["values"][axis] for axis in axes}
        key = tuple(values.values())
        groups.setdefault(key, Group(values, [])).cells.append(cell)
    return list(groups.values())


def _axes(results: dict[str, object]) -> list[str]:
    """The names of the axes that are no repetitions."""
    return [
        axis["name"] for axis in results["axes"] if not axis["is_repetition"]
    ]


def number_text(number: float | None) -> str:
    """A metric as the table shows it."""
    return "-" if number is None else f"{number:.4f}"


def duration(seconds: float) -> str:
    """A time in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _best(groups: list[Group], metric: str) -> Group | None:
    """The best mean of the metric; None where there is none, or none yet."""
    measured = [row for row in groups if row.numbers(metric)]
    better = scores.find(metric).better
    if not measured or better is None:
        return None
    choose = max if better == "higher" else min
    return choose(
        measured, key=lambda row: statistics.fmean(row.numbers(metric))
    )


def _number(row: Group, metric: str) -> str:
    """The mean of a metric, and its standard deviation over repetitions."""
    numbers = row.numbers(metric)
    if not numbers:
        return "-"
    text = number_text(statistics.fmean(numbers))
    if len(numbers) > 1:
        text += f" ± {number_text(statistics.stdev(numbers))}"
    return text


def _difference(differences: list[float]) -> str:
    """The mean of differences, and its p where there are several."""
    if not any(differences):
        return "-"
    text = f"{statistics.fmean(differences):+.4f}"
    if len(differences) < 2:
        return text
    test = stats.permutation_test(
        (differences, [0.0] * len(differences)),
        lambda a, b: statistics.fmean(a) - statistics.fmean(b),
        permutation_type="samples",
        random_state=0,
    )
    return f"{text}, p {test.pvalue:.3f}"


def _runs(row: Group) -> str:
    """How many of the repetitions are finished."""
    count = len(row.cells)
    finished = sum(cell["status"] == "finished" for cell in row.cells)
    return str(finished) if finished == count else f"{finished}/{count}"


def _time(row: Group) -> str:
    """The time of all cells; their state, where none is finished."""
    states = {cell["status"] for cell in row.cells}
    if "finished" in states:
        return duration(sum(cell["seconds"] for cell in row.cells))
    return "failed" if "failed" in states else min(states)


def _markdown(rows: list[list[str]], left: int) -> list[str]:
    """A table whose columns line up as text too, the first `left` leftwards."""
    rule = ["---"] * left + ["--:"] * (len(rows[0]) - left)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, rule, *rows = text_table.lined_up([rows[0], rule, *rows[1:]], left)
    rule = [cell.replace(" ", "-") for cell in rule]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
