"""Training steps side by side: ratios, expected memory and the table."""

from __future__ import annotations

import statistics

from supcon_tf.benchmarks.processes import Point

# The two that every row of the table is compared with.
_COMPARED = ("ours", "torch_nchw")


def compare(runs: list[tuple[Point, list[Point]]]) -> list[Point]:
    """One point per measurement of a case, with its speed over the others.

    Args:
      runs: pairs of what was measured (`architecture`, `batch_size`,
        `implementation`, `chunks`) and what its process gave in each round;
        the last round has `error` or `skipped` where there is nothing.

    Returns:
      Points. Of those with status "measured", `speed_over` is a dict of
      implementation, in one chunk, to this point's speed over its speed.
    """
    others = {
        what["implementation"]: rounds
        for what, rounds in runs
        if what["chunks"] == 1 and "ms" in rounds[-1]
    }
    return [_point(what, rounds, others) for what, rounds in runs]


def _point(
    what: Point, rounds: list[Point], others: dict[str, list[Point]]
) -> Point:
    """One point from its rounds and those of the whole batch's."""
    last = rounds[-1]
    if "ms" not in last:
        status = "skipped" if "skipped" in last else "failed"
        reason = last.get("skipped", last.get("error"))
        return what | {"status": status, "reason": reason}
    times = [run["ms"] for run in rounds]
    ms = statistics.median(times)
    return {
        **what,
        **last,
        "status": "measured",
        "ms": ms,
        "ms_of_rounds": times,
        "views_per_second": 1e3 * last["rows"] / ms,
        "peak_mb": max(run["peak_mb"] for run in rounds),
        "speed_over": {
            name: statistics.median(
                b["ms"] / a["ms"] for a, b in zip(rounds, of, strict=True)
            )
            for name, of in others.items()
        },
    }


def find_disagreements(points: list[Point]) -> list[str]:
    """A line per point whose network has not the first one's parameters."""
    measured = [p for p in points if p["status"] == "measured"]
    return [
        f"{title(point)}: {point['parameters']:,} parameters, but "
        f"{measured[0]['implementation']} has {measured[0]['parameters']:,}"
        for point in measured[1:]
        if point["parameters"] != measured[0]["parameters"]
    ]


def expected_gb(what: Point, earlier: list[Point]) -> float:
    """Memory that a measurement may need, from the like of smaller batches.

    Memory is taken to grow with the images that pass the encoder at a time.

    Args:
      what: `architecture`, `batch_size`, `implementation` and `chunks`.
      earlier: points, of which the largest of the same network counts.

    Returns:
      10^9 bytes; 0 where nothing is known.
    """
    alike = [
        point
        for point in earlier
        if point["status"] == "measured"
        and point["architecture"] == what["architecture"]
        and point["implementation"] == what["implementation"]
    ]
    if not alike:
        return 0.0
    largest = max(alike, key=images_at_a_time)
    growth = images_at_a_time(what) / images_at_a_time(largest)
    return 1e-3 * largest["peak_mb"] * growth


def images_at_a_time(point: Point) -> int:
    """Images of a chunk, whose activations are in memory together."""
    return point["batch_size"] // point["chunks"]


def title(point: Point) -> str:
    """What was measured, in words."""
    chunks = point["chunks"]
    parts = "" if chunks == 1 else f" in {chunks} chunks"
    return (
        f"{point['architecture']}, {point['batch_size']} images, "
        f"{point['implementation']}{parts}"
    )


def progress(point: Point) -> str:
    """One line about a point that has just been measured."""
    if point["status"] != "measured":
        return f"{title(point)}: {point['status']}, {point['reason']}"
    return (
        f"{title(point)}: {point['ms']:.1f} ms, {point['peak_mb']:.0f} MB, "
        f"loss {point['loss']:.4f}"
    )


def step_table(results: Point) -> str:
    """The results as lines of text, a row per point.

    The spread is the slowest round's time over the fastest's: where it is far
    from 1, something else was using the machine. The last columns are the
    row's speed over that of ours and over that of PyTorch as published.
    """
    points = results["points"]
    lines = [
        f"{'':54}{'views/s':>9}{'ms':>10}{'spread':>8}{'MB':>8}"
        + "".join(f"{'over ' + name:>17}" for name in _COMPARED)
    ]
    for point in points:
        if point["status"] != "measured":
            lines.append(
                f"{title(point):54} {point['status']}: {point['reason']}"
            )
            continue
        times = point["ms_of_rounds"]
        lines.append(
            f"{title(point):54}{point['views_per_second']:9.1f}"
            f"{point['ms']:10.1f}{max(times) / min(times):8.2f}"
            f"{point['peak_mb']:8.0f}" + "".join(_ratios(point))
        )
    lines += _parameter_lines(points)
    lines += [f"DISAGREES: {line}" for line in results["disagreements"]]
    if results["left_out"]:
        names = ", ".join(results["left_out"])
        lines.append(f"left out, as torch is not installed: {names}")
    return "\n".join(lines)


def _ratios(point: Point) -> list[str]:
    """Cells of the speed over the compared implementations."""
    ratios = [point["speed_over"].get(name) for name in _COMPARED]
    return [
        f"{'-':>17}" if ratio is None else f"{ratio:17.2f}" for ratio in ratios
    ]


def _parameter_lines(points: list[Point]) -> list[str]:
    """Size of each network, as its first implementation has it."""
    counts = {}
    for point in points:
        if point["status"] == "measured":
            counts.setdefault(point["architecture"], point["parameters"])
    return [
        f"{architecture}: {count:,} parameters"
        for architecture, count in counts.items()
    ]
