"""The table of a sweep: a row per combination, repetitions taken together."""

from __future__ import annotations

import dataclasses
import statistics

from scipy import stats

from supcon_tf import config, scores, text_table

# Shown beside the metric of the sweep, where there are any.
_OTHERS = ("linear.top_1", "linear.ece", "pretrained.top_1", "knn.top_1")


@dataclasses.dataclass(frozen=True)
class Group:
    """The cells of one combination, which differ in repetitions alone."""

    values: dict[str, object]  # by axis, without seeds and draws
    cells: list[dict[str, object]]  # of sweep.json

    def numbers(self, metric: str) -> list[float]:
        """The metric of the cells that have it."""
        return [*self._by_repetition(metric).values()]

    def differences(self, metric: str, first: Group) -> list[float]:
        """This one's metric less the first one's, of repetitions of both."""
        own, others = (x._by_repetition(metric) for x in (self, first))
        return [own[key] - others[key] for key in own if key in others]

    def _by_repetition(self, metric: str) -> dict[tuple[object, ...], float]:
        """The metric by the values of seeds and draws."""
        known = {}
        for cell in self.cells:
            values = cell["values"].items()
            key = tuple(v for name, v in values if name not in self.values)
            if cell["metrics"].get(metric) is not None:
                known[key] = cell["metrics"][metric]
        return known


def sweep_table(results: dict[str, object]) -> str:
    """A sweep as Markdown: settings, metrics, time; then what failed.

    A row per combination in the order of the grid. Over repetitions, seeds and
    draws, it gives mean and standard deviation, and the mean difference of
    `metric` to the first row in pairs of the same repetition, with its p: how
    often signs at random make it as large (a two-sided permutation test, exact
    for up to 13 pairs). The best by `metric` is in bold type. Published
    numbers, in percent, come before it. `results` are those of
    `grid.describe`.

    Example:
      >>> from supcon_tf import config, sweeps
      >>> own = config.SweepSettings("runs/grid", sweep=("temperature=0.1,1",))
      >>> results = sweeps.grid.describe(own, sweeps.list_cells(own))
      >>> for cell, accuracy in zip(results["cells"], (0.75, 0.5)):
      ...     cell["metrics"] = {"linear.top_1": accuracy}
      >>> print(sweeps.sweep_table(results))
      | temperature | linear top-1 |    time |
      | ----------- | -----------: | ------: |
      | 0.1         |   **0.7500** | pending |
      | 1.0         |       0.5000 | pending |
    """
    axes = [a["name"] for a in results["axes"] if not a["is_repetition"]]
    repeats = len(axes) < len(results["axes"])
    groups, metric = group(results), results["metric"]
    metrics = [metric] + [
        other
        for other in _OTHERS
        if other != metric and any(one.numbers(other) for one in groups)
    ]
    best = _best(groups, metric)
    labels = [scores.find(metric).label for metric in metrics]
    compares = repeats and len(groups) > 1
    if compares:
        labels.insert(1, "to the first")
    published = results.get("published")
    first = ["published"] * bool(published) + ["runs"] * repeats
    rows = [[*axes, *first, *labels, "time"]]
    for place, one in enumerate(groups):
        of_paper = [f"{published[place] or '-'}"] if published else []
        runs = [_runs(one)] if repeats else []
        numbers = [_number(one, metric) for metric in metrics]
        if one is best:
            numbers[0] = f"**{numbers[0]}**"
        if compares:
            numbers.insert(1, _difference(one.differences(metric, groups[0])))
        values = [config.axis_text(one.values[axis]) for axis in axes]
        rows.append([*values, *of_paper, *runs, *numbers, _time(one)])
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
    """The cells of sweep.json, those together that differ in seeds alone."""
    axes = [a["name"] for a in results["axes"] if not a["is_repetition"]]
    groups: dict[tuple[object, ...], Group] = {}
    for cell in results["cells"]:
        values = {axis: cell["values"][axis] for axis in axes}
        one = groups.setdefault(tuple(values.values()), Group(values, []))
        one.cells.append(cell)
    return list(groups.values())


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
    measured = [one for one in groups if one.numbers(metric)]
    better = scores.find(metric).better
    if not measured or better is None:
        return None
    choose = max if better == "higher" else min
    return choose(measured, key=lambda x: statistics.fmean(x.numbers(metric)))


def _number(one: Group, metric: str) -> str:
    """Mean, and standard deviation where there are several."""
    numbers = one.numbers(metric)
    if not numbers:
        return "-"
    text = number_text(statistics.fmean(numbers))
    if len(numbers) > 1:
        text += f" ± {number_text(statistics.stdev(numbers))}"
    return text


def _difference(pairs: list[float]) -> str:
    """The mean of differences, and its p where there are several."""
    if not any(pairs):
        return "-"
    text = f"{statistics.fmean(pairs):+.4f}"
    if len(pairs) < 2:
        return text
    test = stats.permutation_test(
        (pairs, [0.0] * len(pairs)),
        lambda own, others: statistics.fmean(own) - statistics.fmean(others),
        permutation_type="samples",
        random_state=0,
    )
    return f"{text}, p {test.pvalue:.3f}"


def _runs(one: Group) -> str:
    """How many of the repetitions are finished."""
    done = sum(cell["status"] == "finished" for cell in one.cells)
    return str(done) if done == len(one.cells) else f"{done}/{len(one.cells)}"


def _time(one: Group) -> str:
    """Time of all cells; what they are, where none is finished."""
    states = {cell["status"] for cell in one.cells}
    if "finished" in states:
        return duration(sum(cell["seconds"] for cell in one.cells))
    return "failed" if "failed" in states else min(states)


def _markdown(rows: list[list[str]], left: int) -> list[str]:
    """A table whose columns line up as text too, the first `left` leftwards."""
    rule = ["---"] * left + ["--:"] * (len(rows[0]) - left)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    head, rule, *rows = text_table.lined_up([rows[0], rule, *rows[1:]], left)
    rule = [cell.replace(" ", "-") for cell in rule]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
