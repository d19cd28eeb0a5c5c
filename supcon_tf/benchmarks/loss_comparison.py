"""Points side by side: ratios, agreement of losses and gradients, the table."""

from __future__ import annotations

import statistics

from supcon_tf.benchmarks.processes import Point

# What an implementation is compared with, where it is among them.
_BASELINE = "tiled"
_TOLERANCE = 1e-4


def compare(runs: dict[str, list[Point]]) -> list[Point]:
    """One point per implementation of a size, with its ratios to the baseline.

    Args:
      runs: name to what its process gave in each round; one entry with
        `skipped` or `error` where there is nothing to compare.
    """
    measured = {name for name, of in runs.items() if "ms" in of[-1]}
    baseline = _BASELINE if _BASELINE in runs else next(iter(runs))
    points = []
    for name, rounds in runs.items():
        last = rounds[-1]
        point = {"implementation": name, "rows": last["rows"]}
        points.append(point)
        if name not in measured:
            status = "skipped" if "skipped" in last else "failed"
            reason = last.get("skipped", last.get("error"))
            point |= {"status": status, "reason": reason}
            continue
        times = [run["ms"] for run in rounds]
        peaks = [run["peak_mb"] for run in rounds]
        point |= last | {"status": "measured", "baseline": baseline}
        point |= {"ms": statistics.median(times), "ms_of_rounds": times}
        point |= {"peak_mb": max(peaks), "peak_mb_of_rounds": peaks}
        if baseline in measured:
            point |= _ratios(rounds, runs[baseline])
    return points


def find_disagreements(points: list[Point]) -> list[str]:
    """A line per implementation of a size with another loss or gradient.

    All are to be tau times the mean over samples. The gradient is compared
    without its part along the projections; with it, too, except for
    pytorch-metric-learning, which normalises inside. The floor is no loss.
    """
    compared = _comparable(points, points[0]["rows"])
    compared.sort(key=lambda point: point["implementation"] != _BASELINE)
    lines = []
    for point in compared[1:]:
        keys = ["loss", "tangent_norm", "gradient_norm"]
        if "pml" in (
            point["implementation"],
            compared[0]["implementation"],
        ):
            keys.remove("gradient_norm")
        for key in keys:
            got, expected = point[key], compared[0][key]
            # Written so that NaN disagrees.
            if not abs(got - expected) <= _TOLERANCE * abs(expected):
                lines.append(
                    f"{point['implementation']} at {point['rows']} rows: "
                    f"{key.replace('_', ' ')} {got:.6g}, but "
                    f"{compared[0]['implementation']} has {expected:.6g}"
                )
    return lines


def loss_table(results: dict[str, object]) -> str:
    """The results as lines of text, a row per point.

    The spread is the slowest round's time over the fastest's: where it is far
    from 1, something else was using the machine.
    """
    points = results["points"]
    baseline = next((p["baseline"] for p in points if "baseline" in p), "")
    lines = [
        f"{'rows':>7}  {'':12} {'ms':>10} {'spread':>7} {'MB':>9}   "
        f"time/{baseline} memory/{baseline}".rstrip()
    ]
    for point in points:
        start = f"{point['rows']:7}  {point['implementation']:12}"
        if point["status"] != "measured":
            lines.append(f"{start} {point['status']}: {point['reason']}")
            continue
        ratios = "".join(
            f"{value:>11.2f}" if value is not None else f"{'-':>11}"
            for value in (point.get("time_ratio"), point.get("memory_ratio"))
        )
        times = point["ms_of_rounds"]
        lines.append(
            f"{start} {point['ms']:10.2f} {max(times) / min(times):7.2f} "
            f"{point['peak_mb']:9.1f} {ratios}"
        )
    for name, error in results["accuracy"].items():
        text = f"{error:.1e}" if isinstance(error, float) else error
        lines.append(
            f"gradient of {name}, {results['accuracy_rows']} rows, largest "
            f"error over largest entry: {text}"
        )
    wrong = results["disagreements"]
    lines += [f"DISAGREES: {line}" for line in wrong]
    if not wrong and any(
        len(_comparable(points, rows)) > 1
        for rows in {p["rows"] for p in points}
    ):
        lines.append(f"losses and gradients agree within {_TOLERANCE:g}")
    return "\n".join(lines)


def _comparable(points: list[Point], rows: int) -> list[Point]:
    """Points of this size that have a loss; the floor is none."""
    return [
        point
        for point in points
        if point["rows"] == rows
        and point["status"] == "measured"
        and point["implementation"] != "floor"
    ]


def _ratios(rounds: list[Point], others: list[Point]) -> Point:
    """Time and peak memory over the baseline's, medians of the rounds'."""
    pairs = list(zip(rounds, others, strict=True))
    ratios = {
        "time_ratio": statistics.median(a["ms"] / b["ms"] for a, b in pairs)
    }
    # Below 1 MB the allocator had it all already: no ratio says anything.
    if min(b["peak_mb"] for b in others) >= 1:
        ratios["memory_ratio"] = statistics.median(
            a["peak_mb"] / b["peak_mb"] for a, b in pairs
        )
    return ratios
