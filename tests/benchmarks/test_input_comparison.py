"""Ratios and the table of input pipelines, from made-up measurements."""

from __future__ import annotations

from supcon_tf.benchmarks import input_comparison


def rounds(*rates):
    return [{"images_per_second": rate, "batches": 9} for rate in rates]


def case(of="memory", size=32, policy="randaugment"):
    return {"input": of, "size": size, "policy": policy}


def test_ratios_are_taken_within_rounds():
    ours, tfm = input_comparison.compare(
        case(),
        {
            "ours": rounds(300.0, 100.0, 500.0),
            "tfm": rounds(100.0, 10.0, 100.0),
        },
    )
    assert ours["images_per_second"] == 300.0 and ours["ours_over_this"] == 1
    assert tfm["images_per_second"] == 100.0
    assert tfm["ours_over_this"] == 5.0  # Of 3, 10 and 5; not 300 / 100.
    assert tfm["images_per_second_of_rounds"] == [100.0, 10.0, 100.0]
    assert tfm["status"] == "measured" and tfm["policy"] == "randaugment"


def test_failures_have_a_reason_and_no_ratio():
    ours, tfm = input_comparison.compare(
        case(),
        {
            "ours": [*rounds(300.0), {"error": "gone"}],
            "tfm": rounds(100.0, 100.0),
        },
    )
    assert ours["status"] == "failed" and ours["reason"] == "gone"
    assert "images_per_second" not in ours and "ours_over_this" not in tfm
    (alone,) = input_comparison.compare(case(), {"tfm": rounds(100.0)})
    assert alone["status"] == "measured" and "ours_over_this" not in alone


def test_the_table_has_a_row_per_case():
    runs = {
        "ours": rounds(400.0, 500.0),
        "tfm": rounds(100.0, 250.0),
        "pil": [{"error": "no Pillow"}],
    }
    points = input_comparison.compare(case(), runs)
    del runs["pil"], runs["tfm"]
    points += input_comparison.compare(case("jpeg", 224, "simclr"), runs)
    runs["twice"] = rounds(300.0, 400.0)
    points += input_comparison.compare(case("views", 224), runs)
    assert input_comparison.progress(points[:3]) == (
        "32 px in memory, randaugment: ours 450, tfm 175, pil failed"
    )
    lines = input_comparison.input_table({"points": points}).splitlines()
    assert (
        lines[0].split()
        == (
            "images/s ours tfm pil twice spread ours/tfm ours/pil ours/twice"
        ).split()
    )
    title, numbers = lines[1][:36], lines[1][36:].split()
    assert title.strip() == "32 px in memory, randaugment"
    assert numbers == "450 175 failed - 2.50 3.00 - -".split()
    assert lines[2][36:].split() == "450 - - - 1.25 - - -".split()
    # Two views per image: half as many pairs.
    assert lines[3].split()[:4] == "224 px pairs/s, randaugment".split()
    assert lines[3][36:].split() == "225 - - 175 1.33 - - 1.29".split()
    assert lines[4:] == ["FAILED: 32 px in memory, randaugment, pil: no Pillow"]
