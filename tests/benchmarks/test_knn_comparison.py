"""Ratios and the table of searches, from made-up measurements."""

from __future__ import annotations

from supcon_tf.benchmarks import knn_comparison


def rounds(*times, peak_mb=30.0, error=1e-7):
    return [
        {
            "seconds": seconds,
            "peak_mb": peak_mb + index,
            "agreement": 0.9995,
            "similarity_error": error,
        }
        for index, seconds in enumerate(times)
    ]


def test_ratios_are_taken_within_rounds():
    ours, other = knn_comparison.compare(
        {
            "ours": rounds(1.0, 4.0, 2.0),
            "sklearn_cosine": rounds(3.0, 4.0, 10.0, peak_mb=62.0),
        }
    )
    assert ours["seconds"] == 2.0 and ours["time_over_ours"] == 1.0
    assert ours["seconds_of_rounds"] == [1.0, 4.0, 2.0]
    assert ours["peak_mb"] == 32.0 and ours["memory_over_ours"] == 1.0
    # Of 3, 1 and 5; not 4 / 2.
    assert other["time_over_ours"] == 3.0 and other["memory_over_ours"] == 2.0


def test_without_ours_there_is_no_ratio():
    runs = {"ours": [{"error": "gone"}], "sklearn_cosine": rounds(3.0)}
    failed, other = knn_comparison.compare(runs)
    assert failed == {
        "implementation": "ours",
        "status": "failed",
        "reason": "gone",
    }
    assert other["time_over_ours"] is None and other["status"] == "measured"


def test_wrong_neighbours_are_named():
    points = knn_comparison.compare(
        {
            "ours": rounds(1.0, error=2e-3),
            "sklearn_cosine": rounds(1.0, error=float("nan")),
            "sklearn_euclidean": rounds(1.0),
        }
    )
    lines = knn_comparison.find_disagreements(points)
    assert len(lines) == 2
    assert lines[0].startswith("ours: a similarity is off by 2.0e-03, 0.9995")


def test_the_table_has_a_row_per_implementation():
    points = knn_comparison.compare(
        {
            "ours": rounds(2.0, 3.0),
            "sklearn_euclidean": rounds(6.0, 6.0, peak_mb=61.0),
            "sklearn_cosine": [{"error": "killed"}],
        }
    )
    results = {"points": points, "disagreements": ["ours is another"]}
    lines = knn_comparison.knn_table(results).splitlines()
    assert lines[0].split() == [
        *["s", "spread", "MB", "time/ours", "memory/ours", "agreement"]
    ]
    assert lines[1].split() == "ours 2.50 1.50 31 1.00 1.00 0.99950".split()
    assert lines[2].split()[1:6] == "6.00 1.00 62 2.50 2.00".split()
    assert lines[3].split() == ["sklearn_cosine", "failed:", "killed"]
    assert lines[4] == "DISAGREES: ours is another"
    assert knn_comparison.progress(points[0]) == "ours: 2.50 s, 31 MB"
    assert knn_comparison.progress(points[2]) == (
        "sklearn_cosine: failed, killed"
    )
