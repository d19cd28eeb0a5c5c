"""Ratios and the table of training steps, from made-up measurements."""

from __future__ import annotations

from supcon_tf.benchmarks import step_comparison


def what(name="ours", chunks=1, batch_size=64):
    return {
        "architecture": "resnet18",
        "batch_size": batch_size,
        "implementation": name,
        "chunks": chunks,
    }


def rounds(*times, peak_mb=2000.0, parameters=1234567):
    return [
        {
            "ms": ms,
            "rows": 128,
            "peak_mb": peak_mb + index,
            "loss": 0.5,
            "parameters": parameters,
        }
        for index, ms in enumerate(times)
    ]


def test_ratios_are_taken_within_rounds():
    ours, chunked, torch = step_comparison.compare(
        [
            (what(), rounds(100.0, 400.0, 200.0)),
            (what(chunks=4), rounds(200.0, 400.0, 300.0)),
            (what("torch_nchw"), rounds(300.0, 400.0, 1000.0)),
        ]
    )
    assert ours["ms"] == 200.0 and ours["ms_of_rounds"] == [100.0, 400.0, 200.0]
    assert ours["views_per_second"] == 640.0
    assert ours["peak_mb"] == 2002.0
    # Of 3, 1 and 5; not 400 / 200.
    assert ours["speed_over"] == {"ours": 1.0, "torch_nchw": 3.0}
    assert chunked["speed_over"]["ours"] == 2 / 3
    assert chunked["chunks"] == 4 and chunked["status"] == "measured"
    assert torch["speed_over"] == {"ours": 1 / 3, "torch_nchw": 1.0}


def test_failures_have_a_reason_and_no_ratio():
    failed, skipped, torch = step_comparison.compare(
        [
            (what(), [*rounds(100.0), {"error": "gone"}]),
            (what(chunks=2), [{"skipped": "about 9 GB"}]),
            (what("torch_nchw"), rounds(300.0, 300.0)),
        ]
    )
    assert failed == what() | {"status": "failed", "reason": "gone"}
    assert skipped == what(chunks=2) | {
        "status": "skipped",
        "reason": "about 9 GB",
    }
    assert torch["speed_over"] == {"torch_nchw": 1.0}


def test_another_network_is_named():
    points = step_comparison.compare(
        [
            (what(), rounds(1.0)),
            (what("torch_nchw"), rounds(1.0, parameters=1234568)),
            (what("torch_channels_last"), [{"error": "gone"}]),
        ]
    )
    assert step_comparison.find_disagreements(points) == [
        "resnet18, 64 images, torch_nchw: 1,234,568 parameters, but ours has "
        "1,234,567"
    ]
    assert step_comparison.find_disagreements([points[2]]) == []


def test_memory_is_expected_to_grow_with_the_images_of_a_chunk():
    earlier = step_comparison.compare(
        [
            (what(), rounds(1.0, peak_mb=2000.0)),
            (what(chunks=4), rounds(1.0, peak_mb=900.0)),
            (what("torch_nchw"), rounds(1.0, peak_mb=5000.0)),
            (what("torch_channels_last"), [{"error": "gone"}]),
        ]
    )

    def expected(**changes):
        return step_comparison.expected_gb(what(**changes), earlier)

    assert expected(batch_size=256) == 8.0
    assert expected(batch_size=256, chunks=4) == 2.0
    assert expected(name="torch_nchw", batch_size=128) == 10.0
    assert expected(name="torch_channels_last") == 0.0
    other = what() | {"architecture": "resnet50"}
    assert step_comparison.expected_gb(other, earlier) == 0.0


def test_the_table_has_a_row_per_point():
    points = step_comparison.compare(
        [
            (what(), rounds(400.0, 500.0)),
            (what(chunks=4), rounds(900.0, 900.0)),
            (what("torch_nchw"), [{"error": "no torch"}]),
        ]
    )
    told = [step_comparison.progress(point) for point in points]
    assert told == [
        "resnet18, 64 images, ours: 450.0 ms, 2001 MB, loss 0.5000",
        "resnet18, 64 images, ours in 4 chunks: 900.0 ms, 2001 MB, loss 0.5000",
        "resnet18, 64 images, torch_nchw: failed, no torch",
    ]
    results = {
        "points": points,
        "disagreements": ["one is another"],
        "left_out": ["torch_channels_last"],
    }
    lines = step_comparison.step_table(results).splitlines()
    assert lines[0].split() == [
        *["views/s", "ms", "spread", "MB"],
        *["over", "ours", "over", "torch_nchw"],
    ]
    assert lines[1][:54].strip() == "resnet18, 64 images, ours"
    assert lines[1][54:].split() == "284.4 450.0 1.25 2001 1.00 -".split()
    assert lines[2][54:].split() == "142.2 900.0 1.00 2001 0.50 -".split()
    assert lines[3].split(maxsplit=4)[4] == "failed: no torch"
    assert lines[4:] == [
        "resnet18: 1,234,567 parameters",
        "DISAGREES: one is another",
        "left out, as torch is not installed: torch_channels_last",
    ]
