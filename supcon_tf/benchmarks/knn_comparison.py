"""Searches side by side: ratios, agreement and the table."""

from __future__ import annotations

import statistics

from supcon_tf.benchmarks.processes import Point

# Float32 and float64 may order rows apart that are this similar.
_TOLERANCE = 1e-5


def compare(runs: dict[str, list[Point]]) -> list[Point]:
    """One point per implementation, with its speed and memory over the first.

    Args:
      runs: what each process of each round gave, by implementation; the last
        round has `error` where there is nothing.

    Returns:
      Points. Of those with status "measured", `time_over_ours` is the median
      over rounds of this point's time over that of `ours` in the same round,
      and `memory_over_ours` the ratio of their peaks; None without `ours`.
    """
    ours = runs.get("ours")
    if ours is not None and "seconds" not in ours[-1]:
        ours = None
    return [_point(name, rounds, ours) for name, rounds in runs.items()]


def _point(name: str, rounds: list[Point], ours: list[Point] | None) -> Point:
    """One point from its rounds and those of ours."""
    last = rounds[-1]
    if "seconds" not in last:
        reason = last["error"]
        return {"implementation": name, "status": "failed", "reason": reason}
    times = [run["seconds"] for run in rounds]
    peak_mb = max(run["peak_mb"] for run in rounds)
    point = {
        "implementation": name,
        **last,
        "status": "measured",
        "seconds": statistics.median(times),
        "seconds_of_rounds": times,
        "peak_mb": peak_mb,
        "time_over_ours": None,
        "memory_over_ours": None,
    }
    if ours:
        point["time_over_ours"] = statistics.median(
            run["seconds"] / own["seconds"]
            for run, own in zip(rounds, ours, strict=True)
        )
        peak_of_ours = max(own["peak_mb"] for own in ours)
        if peak_of_ours > 0:
            point["memory_over_ours"] = peak_mb / peak_of_ours
    return point


def find_disagreements(points: list[Point]) -> list[str]:
    """A line per point whose neighbours are not the nearest."""
    return [
        f"{point['implementation']}: a similarity is off by "
        f"{point['similarity_error']:.1e}, {point['agreement']:.4f} of the "
        "neighbours are those of float64"
        for point in points
        if point["status"] == "measured"
        and not point["similarity_error"] <= _TOLERANCE
    ]


def progress(point: Point) -> str:
    """One line about a point that has just been measured."""
    if point["status"] != "measured":
        return f"{point['implementation']}: {point['status']}, " + str(
            point["reason"]
        )
    return (
        f"{point['implementation']}: {point['seconds']:.2f} s, "
        f"{point['peak_mb']:.0f} MB"
    )


def knn_table(results: Point) -> str:
    """The results as lines of text, a row per implementation.

    The spread is the slowest round's time over the fastest's: where it is far
    from 1, something else was using the machine. Agreement is the share of the
    neighbours that a search in float64 finds too: less than 1 where two rows
    are closer than float32 can tell.
    """
    lines = [
        f"{'':20}{'s':>9}{'spread':>8}{'MB':>8}{'time/ours':>11}"
        f"{'memory/ours':>13}{'agreement':>11}"
    ]
    for point in results["points"]:
        name = point["implementation"]
        if point["status"] != "measured":
            lines.append(f"{name:20} {point['status']}: {point['reason']}")
            continue
        times = point["seconds_of_rounds"]
        lines.append(
            f"{name:20}{point['seconds']:9.2f}{max(times) / min(times):8.2f}"
            f"{point['peak_mb']:8.0f}{_ratio(point['time_over_ours']):>11}"
            f"{_ratio(point['memory_over_ours']):>13}"
            f"{point['agreement']:11.5f}"
        )
    lines += [f"DISAGREES: {line}" for line in results["disagreements"]]
    return "\n".join(lines)


def _ratio(value: float | None) -> str:
    """A ratio as text."""
    return "-" if value is None else f"{value:.2f}"
