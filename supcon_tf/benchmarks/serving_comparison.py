"""SavedModels side by side: ratios, agreement and the table."""

from __future__ import annotations

import statistics

from supcon_tf.benchmarks.processes import Point

# Those whose time that of files is compared with: the network alone.
_COMPARED = ("ours_images", "keras_resnet50")
_MEDIANS = ("images_per_second", "p50_ms", "p99_ms", "cpu_ms")
# Probabilities of the same view; one level of one pixel gives more.
_TOLERANCE = 1e-5


def compare(case: Point, runs: dict[str, list[Point]]) -> list[Point]:
    """One point per implementation of a case, with its time over the others'.

    Args:
      case: `images` per request and `clients`.
      runs: what each process of each round gave, by implementation; the last
        round has `error` where there is nothing.

    Returns:
      Points. Of those with status "measured", `images_per_second`, `p50_ms`,
      `p99_ms` and `cpu_ms` are medians over rounds, and `time_over` is a dict
      of implementation to this point's time per image over its time, the
      median of the ratios within rounds.
    """
    others = {
        name: runs[name]
        for name in _COMPARED
        if name in runs and "error" not in runs[name][-1]
    }
    return [_point(case, name, runs[name], others) for name in runs]


def _point(
    case: Point, name: str, rounds: list[Point], others: dict[str, list[Point]]
) -> Point:
    """One point from its rounds and those of the compared."""
    last = rounds[-1]
    point = {**case, "implementation": name}
    if "error" in last:
        return point | {"status": "failed", "reason": last["error"]}
    point |= last | {"status": "measured"}
    for key in _MEDIANS:
        point[key] = statistics.median(run[key] for run in rounds)
    point["images_per_second_of_rounds"] = _rates(rounds)
    point["time_over"] = {
        other: statistics.median(
            of / own
            for of, own in zip(_rates(of_other), _rates(rounds), strict=True)
        )
        for other, of_other in others.items()
    }
    if "difference" in last:
        point["difference"] = max(run["difference"] for run in rounds)
    return point


def find_disagreements(points: list[Point]) -> list[str]:
    """A line per point whose answers to files are not those to their views."""
    return [
        f"{_title(point)}: a probability is off by {point['difference']:.1e}"
        for point in points
        if point["status"] == "measured"
        and "difference" in point
        and not point["difference"] <= _TOLERANCE
    ]


def progress(points: list[Point]) -> str:
    """One line about a case that has just been measured."""
    told = ", ".join(
        f"{point['implementation']} {_speed(point)}" for point in points
    )
    return f"{_case(points[0])}, images/s: {told}"


def serving_table(results: Point) -> str:
    """The results as a table in Markdown, a row per point.

    The spread is the fastest round's images per second over the slowest's:
    where it is far from 1, something else was using the machine. CPU is the
    time of all cores per image. The last columns say how much more time an
    image takes than with the network alone: for files, that is the cost of
    preprocessing.
    """
    titles = ["", "images", "clients", "images/s", "spread", "p50 ms"]
    titles += ["p99 ms", "CPU ms", *(f"over {name}" for name in _COMPARED)]
    rows = [
        _cells(point)
        for point in results["points"]
        if point["status"] == "measured"
    ]
    widths = [
        max(map(len, column)) for column in zip(titles, *rows, strict=True)
    ]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [_line(row, widths) for row in (titles, rule, *rows)]
    lines += [
        f"FAILED: {_title(point)}: {point['reason']}"
        for point in results["points"]
        if point["status"] == "failed"
    ]
    lines += [f"DISAGREES: {line}" for line in results["disagreements"]]
    return "\n".join(lines)


def _rates(rounds: list[Point]) -> list[float]:
    """Images per second of each round."""
    return [run["images_per_second"] for run in rounds]


def _speed(point: Point) -> str:
    """Images per second; in words where there is no number."""
    if point["status"] != "measured":
        return f"failed ({point['reason']})"
    return f"{point['images_per_second']:.1f}"


def _case(point: Point) -> str:
    """The case in words."""
    return f"images {point['images']}, clients {point['clients']}"


def _title(point: Point) -> str:
    """Case and implementation in words."""
    return f"{_case(point)}, {point['implementation']}"


def _cells(point: Point) -> list[str]:
    """The row of a point."""
    rates = point["images_per_second_of_rounds"]
    return [
        point["implementation"],
        f"{point['images']}",
        f"{point['clients']}",
        f"{point['images_per_second']:.1f}",
        f"{max(rates) / min(rates):.2f}",
        f"{point['p50_ms']:.1f}",
        f"{point['p99_ms']:.1f}",
        f"{point['cpu_ms']:.1f}",
        *(_cost(point, name) for name in _COMPARED),
    ]


def _cost(point: Point, other: str) -> str:
    """Time beyond that of another implementation, in percent."""
    ratio = point["time_over"].get(other)
    if ratio is None or other == point["implementation"]:
        return "-"
    return f"{100 * (ratio - 1):+.1f} %"


def _line(cells: list[str], widths: list[int]) -> str:
    """A row of the table: the first cell to the left, numbers to the right."""
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1])]
    padded += [cell.rjust(width) for cell, width in rest]
    return f"| {' | '.join(padded)} |"
