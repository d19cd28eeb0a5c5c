"""Fine-tunings on draws of a folder, and what the table has of them."""

import pytest

from benchmarks import finetuning, results
from supcon_tf import models


@pytest.mark.slow
def test_every_row_is_measured(measure, image_folder, tmp_path, monkeypatch):
    small = {"width": 0.1, "hidden_dims": (8,)}
    part = {"images_per_label": 4, "epochs": 1, "learning_rates": (0.01,)}
    monkeypatch.setattr(finetuning, "_part", lambda images: part | small)
    encoder = models.Encoder("vgg8", width=0.1)
    encoder.build((None, 32, 32, 3))
    encoder.save_weights(tmp_path / "vgg8.weights.h5")
    text, written = measure(
        "finetuning",
        implementations=("ce",),
        data_dir=str(image_folder),
        weights_path=str(tmp_path / "vgg8.weights.h5"),
        architecture="vgg8",
        sizes=("4",),
        draws=1,
        test_images=5,
        image_size=32,
    )
    (point,) = written["points"]
    assert point["job"]["images"] == "4" and "error" not in point
    rows = {name: row["chosen"] for name, row in point["rows"].items()}
    assert list(rows) == ["frozen", "ce", "ce, means", "ce, kept"]
    assert rows["frozen"] == "frozen" and rows["ce"] == "tuned at 0.01"
    assert rows["ce, means"].startswith("tuned at 0.01")
    names = [row["name"] for row in point["candidates"]]
    assert names[0] == "frozen" and set(rows.values()) <= set(names)
    for row in point["rows"].values():
        # Five test images of each of three classes.
        assert row["top_1"] * 15 == pytest.approx(round(row["top_1"] * 15))
        assert 0 <= row["ece"] <= 1 and 0 <= row["corruption_error"] <= 1
    assert "| images 4 |    frozen |" in text


def test_a_frozen_network_is_one_row():
    def point(name, draw, top_1):
        rows = {
            "frozen": {"top_1": top_1, "ece": 0.0, "corruption_error": 0.5},
            name: {"top_1": 1.0, "ece": 0.0, "corruption_error": 0.5},
        }
        job = {"implementation": name, "draw": draw, "images": "20"}
        return {"job": job, "rows": rows}

    bench = finetuning.FinetuningBench()
    points = [
        point(name, draw, top_1)
        for draw, top_1 in enumerate((0.5, 0.7))
        for name in ("supcon+ce", "ce")
    ]
    (case,) = bench.cases_of(points).values()
    assert list(case) == ["frozen", "supcon+ce", "ce"]
    line = results.summarize(bench, case["frozen"], case)
    assert line["top-1"] == "0.600" and line["± top-1"] == "0.141"


@pytest.mark.parametrize(
    ("images", "part"),
    [
        ("all", {}),
        ("20", {"images_per_label": 20}),
        (
            "long_tail",
            {
                "images_per_label": 500,
                "imbalance": "exponential",
                "imbalance_ratio": 50.0,
            },
        ),
    ],
)
def test_how_many_images(images, part):
    assert finetuning._part(images) == part
    with pytest.raises(ValueError, match="long_tail or all"):
        finetuning.FinetuningBench(sizes=("few",))
