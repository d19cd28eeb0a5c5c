"""Input pipelines side by side: medians, ratios and the table."""

from __future__ import annotations

import statistics

from supcon_tf.benchmarks.processes import Point

_BASELINE = "ours"
_NAMES = ("ours", "tfm", "pil", "twice")


def compare(case: Point, runs: dict[str, list[Point]]) -> list[Point]:
    """One point per implementation of a case, with our speed over its own.

    Args:
      case: `input`, `size` and `policy`.
      runs: name to what its process gave in each round; the last entry has
        `error` where it failed.
    """
    points = []
    for name, rounds in runs.items():
        last = rounds[-1]
        point = {**case, "implementation": name}
        points.append(point)
        if "error" in last:
            point |= {"status": "failed", "reason": last["error"]}
            continue
        rates = _rates(rounds)
        point |= last | {
            "status": "measured",
            "images_per_second": statistics.median(rates),
            "images_per_second_of_rounds": rates,
        }
        ours = runs.get(_BASELINE, [{"error": "not measured"}])
        if "error" not in ours[-1]:
            ratios = [a / b for a, b in zip(_rates(ours), rates, strict=True)]
            point["ours_over_this"] = statistics.median(ratios)
    return points


def progress(points: list[Point]) -> str:
    """One line about a case that has just been measured."""
    told = ", ".join(
        f"{point['implementation']} {_speed(point)}" for point in points
    )
    return f"{_title(points[0])}: {told or 'nothing measured'}"


def input_table(results: Point) -> str:
    """The results as lines of text, a row per case; images per second.

    With two views per image these are pairs per second. The spread is the
    fastest round over the slowest, the largest of the row: where it is far
    from 1, something else was using the machine.
    """
    cases = {}
    for point in results["points"]:
        cases.setdefault(_title(point), {})[point["implementation"]] = point
    present = {point["implementation"] for point in results["points"]}
    names = [name for name in _NAMES if name in present]
    others = [name for name in names if name != _BASELINE]
    lines = [
        f"{'images/s':36}"
        + "".join(f"{name:>9}" for name in names)
        + f"{'spread':>8}"
        + "".join(f"{'ours/' + name:>12}" for name in others)
    ]
    for title, points in cases.items():
        speeds = "".join(f"{_speed(points.get(name)):>9}" for name in names)
        ratios = "".join(f"{_ratio(points.get(name)):>12}" for name in others)
        line = f"{title:36}{speeds}{_spread(points):>8}{ratios}"
        lines.append(line.rstrip())
    lines += [
        f"FAILED: {_title(point)}, {point['implementation']}: {point['reason']}"
        for point in results["points"]
        if point["status"] == "failed"
    ]
    return "\n".join(lines)


def _rates(rounds: list[Point]) -> list[float]:
    """Images per second of each round."""
    return [run["images_per_second"] for run in rounds]


def _title(point: Point) -> str:
    """The case in words."""
    told = {"memory": "in memory", "jpeg": "from JPEG", "views": "pairs/s"}
    return f"{point['size']} px {told[point['input']]}, {point['policy']}"


def _speed(point: Point | None) -> str:
    """Images per second, or pairs; in words where there is no number."""
    if point is None:
        return "-"
    if point["status"] != "measured":
        return "failed"
    pair = 2 if point["input"] == "views" else 1
    return f"{point['images_per_second'] / pair:.0f}"


def _ratio(point: Point | None) -> str:
    """Our speed over this one's."""
    ratio = (point or {}).get("ours_over_this")
    return "-" if ratio is None else f"{ratio:.2f}"


def _spread(points: dict[str, Point]) -> str:
    """Fastest over slowest round, the largest of the implementations."""
    rounds = [
        point["images_per_second_of_rounds"]
        for point in points.values()
        if point["status"] == "measured"
    ]
    if not rounds:
        return "-"
    return f"{max(max(rates) / min(rates) for rates in rounds):.2f}"
