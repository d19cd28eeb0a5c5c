"""Ratios, agreement and the table, from made-up measurements."""

from __future__ import annotations

from supcon_tf.benchmarks import loss_comparison


def measured(ms, peak_mb, loss=0.5, norm=0.1, raw=0.2):
    return {
        "rows": 512,
        "ms": ms,
        "peak_mb": peak_mb,
        "loss": loss,
        "tangent_norm": norm,
        "gradient_norm": raw,
    }


def test_ratios_are_taken_within_rounds():
    points = loss_comparison.compare(
        {
            "tiled": [measured(1.0, 10.0), measured(10.0, 12.0)],
            "dense": [measured(3.0, 20.0), measured(50.0, 60.0)],
        }
    )
    dense = points[1]
    assert dense["ms"] == 26.5 and dense["ms_of_rounds"] == [3.0, 50.0]
    assert dense["time_ratio"] == 4.0  # Of 3 and 5, not 26.5 / 5.5.
    assert dense["peak_mb"] == 60.0
    assert dense["memory_ratio"] == 3.5


def test_no_memory_ratio_over_nothing_and_none_without_baseline():
    tiled, dense = loss_comparison.compare(
        {"tiled": [measured(1.0, 0.0)], "dense": [measured(2.0, 9.0)]}
    )
    assert dense["time_ratio"] == 2.0 and "memory_ratio" not in dense
    tiled, dense = loss_comparison.compare(
        {
            "tiled": [{"rows": 512, "error": "ended by SIGKILL"}],
            "dense": [measured(2.0, 9.0)],
        }
    )
    assert tiled["status"] == "failed" and tiled["reason"] == "ended by SIGKILL"
    assert "time_ratio" not in dense


def test_a_failure_in_a_later_round_is_a_failure():
    (point,) = loss_comparison.compare(
        {"dense": [measured(1.0, 1.0), {"rows": 512, "error": "gone"}]}
    )
    assert point["status"] == "failed" and "ms" not in point


def test_disagreements():
    points = loss_comparison.compare(
        {
            "floor": [measured(1.0, 1.0, loss=99.0)],
            "supcontrast": [measured(1.0, 1.0, loss=0.50004)],
            "pml": [measured(1.0, 1.0, raw=0.1)],
            "official": [measured(1.0, 1.0, loss=0.5001, raw=float("nan"))],
            "tiled": [measured(1.0, 1.0)],
        }
    )
    lines = loss_comparison.find_disagreements(points)
    assert lines == [
        "official at 512 rows: loss 0.5001, but tiled has 0.5",
        "official at 512 rows: gradient norm nan, but tiled has 0.2",
    ]


def test_the_table_has_a_row_per_point():
    points = loss_comparison.compare(
        {
            "tiled": [measured(1.25, 10.0)],
            "dense": [measured(2.5, 40.0)],
            "pml": [{"rows": 512, "skipped": "about 12 GB"}],
        }
    )
    results = {
        "points": points,
        "disagreements": [],
        "accuracy": {"tiled": 4e-7},
        "accuracy_rows": 2048,
    }
    lines = loss_comparison.loss_table(results).splitlines()
    assert (
        lines[0].split() == "rows ms spread MB time/tiled memory/tiled".split()
    )
    assert lines[1].split() == "512 tiled 1.25 1.00 10.0 1.00 1.00".split()
    assert lines[2].split() == "512 dense 2.50 1.00 40.0 2.00 4.00".split()
    assert lines[3] == "    512  pml          skipped: about 12 GB"
    assert lines[4].endswith("over largest entry: 4.0e-07")
    assert lines[5] == "losses and gradients agree within 0.0001"
    results["points"] = points[:1]
    assert "agree" not in loss_comparison.loss_table(results)
