"""The table of a sweep: a row per combination, repetitions taken together."""

from __future__ import annotations

import dataclasses
import statistics

from scipy import stats

from supcon_tf import config, scores
from supcon_tf.display import text_table

# The table shows these metrics too, where a cell has them.
_OTHER_METRICS = ("linear.top_1", "linear.ece", "pretrained.top_1", "knn.top_1")
_LEAST_P = 0.001  # smaller ones would be shown as zero
# Digits of a mean of differences: signs that give the same mean count as equal,
# although sums of shares are rounded.
_DIGITS = 12


@dataclasses.dataclass(frozen=True)
class Group:
    """The cells of one combination, which differ in repetitions alone."""

    values: dict[str, object]  # by axis, without seeds and draws
    cells: list[dict[str, object]]  # of sweep.json

    def numbers(self, metric: str) -> list[float]:
        """Returns the metric of each cell that has it."""
        return [*self._by_repetition(metric).values()]

    def differences(self, metric: str, first: Group) -> list[float]:
        """Returns the metric minus that of `first`, by common repetition."""
        numbers, first_numbers = (
            group._by_repetition(metric) for group in (self, first)
        )
        return [
            numbers[key] - first_numbers[key]
            for key in numbers
            if key in first_numbers
        ]

    def _by_repetition(self, metric: str) -> dict[tuple[object, ...], float]:
        """Returns the metric by the values of seeds and draws."""
        numbers = {}
        for cell in self.cells:
            items = cell["values"].items()
            key = tuple(seed for name, seed in items if name not in self.values)
            if cell["metrics"].get(metric) is not None:
                numbers[key] = cell["metrics"][metric]
        return numbers


def sweep_table(results: dict[str, object]) -> str:
    """Returns a sweep as Markdown: settings, metrics, time; failed cells.

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
    axis_names = _axis_names(results)
    has_repetitions = len(axis_names) < len(results["axes"])
    groups, metric = group(results), results["metric"]
    metrics = [metric] + [
        name
        for name in _OTHER_METRICS
        if name != metric and any(row.numbers(name) for row in groups)
    ]
    best = _best(groups, metric)
    labels = [scores.find(metric).label for metric in metrics]
    has_differences = has_repetitions and len(groups) > 1
    if has_differences:
        labels.insert(1, "to the first")
    published = results.get("published")
    titles = ["published"] * bool(published) + ["runs"] * has_repetitions
    rows = [[*axis_names, *titles, *labels, "time"]]
    for index, row in enumerate(groups):
        texts = [config.axis_text(row.values[axis]) for axis in axis_names]
        if published:
            texts.append(f"{published[index] or '-'}")
        if has_repetitions:
            texts.append(_runs(row))
        numbers = [_number(row, metric) for metric in metrics]
        if row is best:
            numbers[0] = f"**{numbers[0]}**"
        if has_differences:
            differences = row.differences(metric, groups[0]) if index else []
            numbers.insert(1, _difference(differences))
        rows.append([*texts, *numbers, _time(row)])
    lines = markdown(rows, left=len(axis_names))
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
    """Returns groups of cells, each of cells that differ in seeds alone."""
    axis_names = _axis_names(results)
    groups: dict[tuple[object, ...], Group] = {}
    for cell in results["cells"]:
        values = {axis: cell["values"][axis] for axis in axis_names}
        key = tuple(values.values())
        groups.setdefault(key, Group(values, [])).cells.append(cell)
    return list(groups.values())


def _axis_names(results: dict[str, object]) -> list[str]:
    """Returns the names of the axes that are no repetitions."""
    return [
        axis["name"] for axis in results["axes"] if not axis["is_repetition"]
    ]


def number_text(number: float | None) -> str:
    """Returns a metric as the table shows it."""
    return "-" if number is None else f"{number:.4f}"


def duration(seconds: float) -> str:
    """Returns a time in its two largest units."""
    minutes, remainder = divmod(round(seconds), 60)
    if not minutes:
        return f"{remainder} s"
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes} min" if hours else f"{minutes} min {remainder} s"
    )


def _best(groups: list[Group], metric: str) -> Group | None:
    """Returns the group with the best mean of a metric, or None without one."""
    candidates = [row for row in groups if row.numbers(metric)]
    better = scores.find(metric).better
    if not candidates or better is None:
        return None
    choose = max if better == "higher" else min
    return choose(
        candidates, key=lambda row: statistics.fmean(row.numbers(metric))
    )


def _number(row: Group, metric: str) -> str:
    """Returns the mean of a metric ± its standard deviation."""
    numbers = row.numbers(metric)
    if not numbers:
        return "-"
    text = number_text(statistics.fmean(numbers))
    if len(numbers) > 1:
        text += f" ± {number_text(statistics.stdev(numbers))}"
    return text


def _difference(differences: list[float]) -> str:
    """Returns the mean of differences, with its p where there are several."""
    if not differences:
        return "-"
    text = f"{statistics.fmean(differences):+.4f}"
    if len(differences) < 2:
        return text
    test = stats.permutation_test(
        (differences, [0.0] * len(differences)),
        lambda first, second: round(
            statistics.fmean(first) - statistics.fmean(second), _DIGITS
        ),
        permutation_type="samples",
        random_state=0,
    )
    if test.pvalue < _LEAST_P:
        return f"{text}, p < {_LEAST_P}"
    return f"{text}, p {test.pvalue:.3f}"


def _runs(row: Group) -> str:
    """Returns the number of finished repetitions, and of all if it differs."""
    count = len(row.cells)
    finished = sum(cell["status"] == "finished" for cell in row.cells)
    return str(finished) if finished == count else f"{finished}/{count}"


def _time(row: Group) -> str:
    """Returns the time of all cells, or their state if none is finished."""
    states = {cell["status"] for cell in row.cells}
    if "finished" in states:
        return duration(sum(cell["seconds"] for cell in row.cells))
    return "failed" if "failed" in states else min(states)


def markdown(rows: list[list[str]], left: int) -> list[str]:
    """Returns a table with aligned columns, the first `left` leftwards."""
    rule = ["---"] * left + ["--:"] * (len(rows[0]) - left)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, rule, *rows = text_table.lined_up([rows[0], rule, *rows[1:]], left)
    rule = [cell.replace(" ", "-") for cell in rule]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
