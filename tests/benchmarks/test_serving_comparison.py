"""Ratios and the table of serving, from made-up measurements."""

from __future__ import annotations

from supcon_tf.benchmarks import serving_comparison

CASE = {"images": 8, "clients": 4}


def rounds(*rates, **more):
    return [
        {
            "images_per_second": rate,
            "p50_ms": 8e3 / rate,
            "p99_ms": 16e3 / rate,
            "cpu_ms": 4.0,
            **more,
        }
        for rate in rates
    ]


def test_times_are_compared_within_rounds():
    bytes_, images, keras = serving_comparison.compare(
        CASE,
        {
            "ours_bytes": rounds(40.0, 80.0, 10.0, difference=1e-7),
            "ours_images": rounds(50.0, 80.0, 40.0),
            "keras_resnet50": rounds(80.0, 40.0, 10.0),
        },
    )
    assert bytes_["images_per_second"] == 40.0 and bytes_["p50_ms"] == 200.0
    assert bytes_["images_per_second_of_rounds"] == [40.0, 80.0, 10.0]
    # Of 1.25, 1 and 4, and of 2, 0.5 and 1; not 50 / 40 of the medians.
    assert bytes_["time_over"] == {"ours_images": 1.25, "keras_resnet50": 1.0}
    assert images["time_over"]["ours_images"] == 1.0
    assert keras["clients"] == 4 and "difference" not in keras


def test_what_failed_is_compared_with_nothing():
    failed, keras = serving_comparison.compare(
        CASE, {"ours_images": [{"error": "gone"}], "keras_resnet50": rounds(9)}
    )
    assert failed == {
        **CASE,
        "implementation": "ours_images",
        "status": "failed",
        "reason": "gone",
    }
    assert keras["time_over"] == {"keras_resnet50": 1.0}


def test_other_answers_are_named_whatever_the_round():
    runs = {"ours_bytes": rounds(1.0, difference=2e-3)}
    runs["ours_bytes"] += rounds(1.0, difference=0.0)
    points = serving_comparison.compare(CASE, runs)
    points += serving_comparison.compare(
        CASE, {"ours_bytes": rounds(1.0, difference=float("nan"))}
    )
    points += serving_comparison.compare(
        CASE, {"ours_bytes": rounds(1.0, difference=1e-6)}
    )
    lines = serving_comparison.find_disagreements(points)
    assert len(lines) == 2
    assert lines[0] == (
        "images 8, clients 4, ours_bytes: a probability is off by 2.0e-03"
    )


def test_the_table_has_a_row_per_point():
    points = serving_comparison.compare(
        CASE,
        {
            "ours_bytes": rounds(20.0, 40.0),
            "ours_images": [{"error": "killed"}],
            "keras_resnet50": rounds(24.0, 36.0),
        },
    )
    results = {"points": points, "disagreements": ["another"]}
    lines = serving_comparison.serving_table(results).splitlines()
    assert len({len(line) for line in lines[:4]}) == 1
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert cells[0][2:6] == ["images", "clients", "images/s", "spread"]
    assert cells[0][6:-1] == [
        *("p50 ms", "p99 ms", "CPU ms"),
        *("over ours_images", "over keras_resnet50"),
    ]
    assert set(cells[1][2:-1]) <= {"-" * n + ":" for n in range(3, 30)}
    assert cells[2][1:-1] == [
        *("ours_bytes", "8", "4", "30.0", "2.00", "300.0", "600.0", "4.0"),
        *("-", "+5.0 %"),
    ]
    assert cells[3][1] == "keras_resnet50" and cells[3][-3:-1] == ["-", "-"]
    assert lines[4] == ("FAILED: images 8, clients 4, ours_images: killed")
    assert lines[5] == "DISAGREES: another"
