from __future__ import annotations

import json

import numpy as np
import pytest

from supcon_tf.reports import contents
from tests.reports import run_files


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("contents") / "run"
    path = run_files.write_run(path, run_files.HOSTILE, epochs=5)
    with (path / "settings.flags").open("a") as file:
        file.write("# a remark\n--sweep=a=1,2\n--sweep=b=3\n")
    return path


def test_everything_is_read(run):
    read = contents.read_run(run, "name")
    assert read.name == "name"
    assert read.settings["temperature"] == "0.1"
    assert read.settings["sweep"] == "a=1,2; b=3"
    assert read.class_names == run_files.HOSTILE
    # The last line has no end: its process was killed.
    assert [x["epoch"] for x in read.epochs] == [1, 2, 3, 4, 5]
    assert read.epochs[2]["alignment"] is None
    assert len(read.linear_epochs) == 40
    assert read.linear_stage == "linear"
    assert read.evaluation["test_images"] == 360
    assert read.predictions["probabilities"].shape == (360, 8)
    assert read.samples["neighbors"].shape == (8, 8, 8, 8, 3)
    assert read.representations["plane"].dtype == np.float32
    assert read.class_name(4) == "猫"
    assert read.class_name(8) == "8"
    assert read.class_name(-1) == "-1"


def test_what_is_absent_is_empty(tmp_path):
    (tmp_path / "settings.flags").write_text("--epochs=3\n")
    read = contents.read_run(tmp_path, "bare")
    assert read.settings == {"epochs": "3"}
    assert read.class_names == ()
    assert not read.epochs and not read.linear_epochs and not read.linear_stage
    assert not read.evaluation and not read.predictions
    assert read.classifier("top_1") is None
    assert read.robustness() is None


def test_another_linear_stage_stands_in(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.flags").write_text("")
        line = {"epoch": 1, "loss": 1.0 if name == "a" else 2.0}
        (tmp_path / name / "metrics.jsonl").write_text(f"{json.dumps(line)}\n")
    (tmp_path / "settings.flags").write_text("")
    read = contents.read_run(tmp_path, "run")
    assert (read.linear_stage, read.linear_epochs[0]["loss"]) == ("a", 1.0)


def test_the_classifier_that_is_shown(tmp_path):
    (tmp_path / "settings.flags").write_text("")
    found = {
        "knn": {"top_1": 0.5, "confusion_matrix": [[1]]},
        "pretrained": {"top_1": 0.6},
        "corruptions": {"pretrained": {"mean_ece": 0.1}},
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(found))
    read = contents.read_run(tmp_path, "run")
    assert read.classifier("top_1") == "pretrained"
    assert read.classifier("confusion_matrix") == "knn"
    assert read.robustness() == {"mean_ece": 0.1}


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="which has no settings.flags"):
        contents.read_run(tmp_path, "run")
