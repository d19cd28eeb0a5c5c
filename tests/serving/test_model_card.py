"""The model card of a real run, before and after its evaluation."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest

from supcon_tf import config, evaluation, run_files, scores
from supcon_tf.disk import files, origins
from supcon_tf.serving import metadata, model_card
from supcon_tf.settings import from_flagfile
from supcon_tf.training import runs
from tests import model_server
from tests import runs as shared_runs


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy that is not evaluated."""
    outputs = ("evaluation.json", "encoded", "export", "label_issues.*")
    ignore = shutil.ignore_patterns(*outputs)
    path = shutil.copytree(finished_run.path, tmp_path / "a_run", ignore=ignore)
    return run_files.RunDirectory(path)


@pytest.fixture
def written(run, small_run):
    """The card in metadata.json, and model_card.md, of a new export."""

    def write(classifier="linear"):
        directory = run.export / "1"
        directory.rmtree(missing_ok=True)
        shutil.copytree(small_run / "export" / "1", directory)
        metadata.write_metadata(
            directory,
            runs.open_run(run.path),
            config.ExportSettings(str(run.path)),
            classifier,
            num_parameters=1234,
            signatures=model_server.tensor_specs(directory),
        )
        record = json.loads((directory / metadata.FILE).read_text("utf-8"))
        assert metadata.CARD in record["files"]
        text = (directory / metadata.CARD).read_text("utf-8")
        assert text == model_card.to_markdown("a_run", record["card"])
        return record["card"], text

    return write


def test_before_evaluation_nothing_is_claimed(run, written):
    card, text = written()
    path = run.path
    assert card["Measures"] == {
        "All": "not measured",
        "Commands that measure": [
            f"python tools/{tool}.py --run_dir={path}"
            for tool in ("evaluate", "export")
        ],
    }
    assert card["What it is not for"]["Measures"] == "there are none"
    assert card["Data"] == {
        "Data set": "folder",
        "Split train": "48 images",
        "Split test": "not counted so far",
        "Weights at the start": "random",
    }
    assert "- All: not measured\n- Commands that measure:\n\n  ```\n" in text


def test_the_card_describes_model_and_training(run, written):
    card, text = written()
    model, training = card["Model"], card["Training"]
    assert model["Encoder"] == "architecture vgg8; width 0.1; image_size 16"
    assert model["Parameters"].startswith("1,234, with")
    assert model["Representation"].startswith("26 numbers")
    assert model["Classes"] == "3: bright, dark, mid"
    assert training["Epochs done"] == "2 of 2"
    for part in (
        *("batch_size 16", "augmentation identity", "temperature 0.1"),
        *("optimizer ", "learning_rate 1.0", "precision float32", "seed 0"),
    ):
        assert part in training["Stage 1"]
    assert training["Linear stage"].startswith("epochs 20; batch_size 16")
    assert "represent: image_bytes to rep" in card["Export"]["Signatures"]
    record = json.loads((run.export / "1" / metadata.FILE).read_text())
    size = sum(
        file["bytes"]
        for name, file in record["files"].items()
        if name != metadata.CARD
    )
    assert card["Export"]["Size"] == f"{size / 1e6:.1f} MB"
    assert "## What it is not for\n\n- Other classes: it knows those" in text
    kinds = config.PretrainSettings, config.LinearSettings
    commands = map(shlex.split, training["Commands that repeat it"])
    for kind, (_, tool, flagfile, *more) in zip(kinds, commands, strict=False):
        assert tool in ("tools/pretrain.py", "tools/train_linear.py")
        repeated = from_flagfile(kind, flagfile.partition("=")[2], *more)
        assert repeated.run_dir == f"{run.path}_again"


def test_measures_are_those_of_the_evaluation(run, written):
    measured = evaluation.evaluate(
        shared_runs.evaluation_settings(run.path, label_issues=5)
    )
    card, _ = written()
    top_1, lines = measured["linear"]["top_1"], card["Measures"]
    low, high = scores.interval(top_1, 21)
    assert lines["Top-1 accuracy"] == f"{top_1:.1%} ({low:.1%} to {high:.1%})"
    assert "Top-5 accuracy" not in lines  # of three classes
    ece = measured["linear"]["ece"]
    assert lines["Calibration error (ECE)"] == f"{ece:.3f}"
    assert lines["k-NN accuracy"].startswith(f"{measured['knn']['top_1']:.1%}")
    assert lines["Recall@1"].endswith("%")
    assert lines["Error on corrupted images"] == lines["mCE"] == "not measured"
    assert card["Data"]["Split train"] == "48 images, 16 to 16 of a class"
    assert card["Data"]["Split test"] == "21 images, 7 to 7 of a class"
    issues = run.stage("linear").issues_list
    count = len(issues.read_text().splitlines()) - 1
    assert f"lists {count} doubtful" in card["What it is not for"]["Labels"]
    # The classifier is not in the export, its accuracy says nothing of it.
    alone, _ = written("none")
    assert "Top-1 accuracy" not in alone["Measures"]
    assert alone["Measures"]["k-NN accuracy"] == lines["k-NN accuracy"]
    newer = run_files.path_of(run.checkpoints, 99)
    shutil.copytree(run.latest_checkpoint(), newer)
    assert written("none")[0]["Measures"]["All"] == "not measured"


def test_test_classes_that_training_never_saw_are_listed(run, written):
    """The exported classifier was measured on none of them."""
    stage = run.stage("linear")
    measured = {
        "dataset": "folder",
        "test_examples": 21,
        "made_of": {"encoder": origins.identity(run.latest_checkpoint())},
        "test_classes": ["dawn", "dusk"],
        "knn_among_test": {"top_1": 0.75},
        "retrieval": {
            "recall_at": {"1": 0.5},
            "r_precision": 0.375,
            "map_at_r": 0.25,
        },
    }
    files.write_json(stage.evaluation_file, measured)
    lines = written()[0]["Measures"]
    assert lines.pop("k-NN among the test examples").startswith("75.0%")
    assert lines == {
        "Test examples": "21; in brackets are 95 % intervals",
        "Test classes": "2, which training never saw",
        "Recall@1": "50.0%",
        "Retrieval (R-precision)": "37.5%",
        "Retrieval (mAP@R)": "25.0%",
    }
    measured["made_of"]["encoder"]["sha256"] = "0" * 64
    files.write_json(stage.evaluation_file, measured)
    assert written()[0]["Measures"]["All"] == "not measured"


@pytest.mark.parametrize(
    ("measured", "note"),
    [
        ({}, ""),
        ({"dataset": "test.tsv"}, ""),
        ({"dataset": "hard.tsv"}, "; measured on another file, hard.tsv"),
    ],
)
def test_the_file_of_the_measures_is_named(finished_text_run, measured, note):
    run = runs.open_run(finished_text_run.path)
    line = model_card._data(run, measured)["Data set"]
    assert line.endswith(f"test_file {run.settings.test_file}{note}")


def test_names_from_data_stay_text():
    card = {"Model": {"Classes": "2: <b>|*x*\n# y_z _q_, [a](b)"}}
    text = model_card.to_markdown("a_run", card)
    assert text == (
        "# Model card of a_run\n\n## Model\n\n"
        "- Classes: 2: \\<b\\>\\|\\*x\\* # y_z \\_q\\_, \\[a\\](b)\n"
    )
