from __future__ import annotations

import json
import shutil

import pytest

from supcon_tf.reports import commands, contents
from tests.reports import run_files


def test_a_run_is_read(tmp_path):
    path = run_files.write_run(tmp_path / "run", run_files.HOSTILE, epochs=5)
    run = contents.read_run(path, "name")
    assert run.name == "name"
    assert run.settings["temperature"] == "0.1"
    assert run.class_names == run_files.HOSTILE
    assert [epoch["epoch"] for epoch in run.epochs] == [1, 2, 3, 4, 5]
    assert run.linear_stage == "linear" and len(run.linear_epochs) == 40
    assert run.evaluation["test_examples"] == 360
    assert run.predictions["probabilities"].shape == (360, 8)
    assert run.samples["neighbors"].shape == (8, 8, 8, 8, 3)
    assert run.representations["plane"].shape == (360, 2)
    names = [run.class_name(label) for label in (4, 8, -1)]
    assert names == ["猫", "8", "-1"]


def test_the_card_is_of_the_newest_export(tmp_path):
    path = run_files.write_run(tmp_path / "run")
    files = contents.read_run(path, "name").files
    assert "Model" in contents.read_run(path, "name").card
    record = files.export / "10" / "assets.extra" / "metadata.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"card": {"New": {}}}')
    assert files.exports() == [1, 10]
    assert contents.read_run(path, "name").card == {"New": {}}
    record.write_text("{}")  # of a version without cards
    assert contents.read_run(path, "name").card == {}


def test_absent_files_are_empty(tmp_path):
    with pytest.raises(ValueError, match="which has no settings.flags"):
        contents.read_run(tmp_path, "run")
    (tmp_path / "settings.flags").write_text("--epochs=3\n")
    run = contents.read_run(tmp_path, "bare")
    assert run.settings == {"epochs": "3"}
    assert run.class_names == ()
    assert not run.epochs and not run.linear_epochs and not run.linear_stage
    assert not run.evaluation and not run.predictions
    assert run.classifier("top_1") is None
    assert run.robustness() is None


def test_another_linear_stage_stands_in(tmp_path):
    for name in ("", "b", "a"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "settings.flags").write_text(f"--name={name}\n")
        line = {"epoch": 1, "loss": 1.0 if name == "a" else 2.0}
        (tmp_path / name / "metrics.jsonl").write_text(f"{json.dumps(line)}\n")
    run = contents.read_run(tmp_path, "run")
    assert (run.linear_stage, run.linear_epochs[0]["loss"]) == ("a", 1.0)
    (tmp_path / "b" / "evaluation.json").write_text('{"test_examples": 5}')
    run = contents.read_run(tmp_path, "run")  # the one that was evaluated
    assert (run.linear_stage, run.evaluation["test_examples"]) == ("b", 5)
    (tmp_path / "b" / "settings.flags").write_text(
        "--name=b\n--method=linear\n"  # a transfer
    )
    run = contents.read_run(tmp_path, "run")
    assert (run.linear_stage, run.evaluation) == ("a", {})
    with pytest.raises(ValueError, match="got .*b, a transfer, whose results"):
        contents.read_run(tmp_path / "b", "transfer")


def test_a_stage_stands_beside_another_of_its_run(tmp_path):
    """Each with its own evaluation, and the run of both."""
    path = run_files.write_run(tmp_path / "run")
    first = run_files.directory(path).stage("linear")
    second = shutil.copytree(first.path, path / "fast")
    flags = (second / "settings.flags").read_text()
    (second / "settings.flags").write_text(
        flags.replace("--name=linear", "--name=fast")
    )
    evaluation = first.evaluation() | {"test_examples": 7}
    (second / "evaluation.json").write_text(json.dumps(evaluation))
    runs = [
        contents.read_run(folder, "name")
        for folder in (path, first.path, second)
    ]
    assert [run.linear_stage for run in runs] == ["linear", "linear", "fast"]
    counts = [run.evaluation["test_examples"] for run in runs]
    assert counts == [360, 360, 7]
    assert len({run.files.path for run in runs}) == 1
    assert all(len(run.epochs) == 24 for run in runs)
    assert commands.evaluate(runs[2]).endswith("--linear_stage=fast")
    # A card is shown with the stage whose classifier it is of.
    record = run_files.directory(path).export / "2/assets.extra/metadata.json"
    record.parent.mkdir(parents=True)
    exported = {"export": {"linear_stage": "fast"}}
    text = {"classifier": "linear", "settings": exported, "card": {"New": {}}}
    record.write_text(json.dumps(text))
    cards = [
        contents.read_run(folder, "name").card
        for folder in (first.path, second)
    ]
    assert cards == [{}, {"New": {}}]


@pytest.mark.parametrize("checkpoint", ["", "x/linear/checkpoints/step-1"])
def test_a_run_of_an_earlier_version_has_its_evaluation_itself(
    tmp_path, checkpoint
):
    path = run_files.write_run(tmp_path / "run")
    run, names = run_files.directory(path), ("evaluation.json", "samples.npz")
    stage = run.stage("linear")
    for name in (*names, "predictions.npz", "representations.npz"):
        (stage.path / name).rename(path / name)
    measured = run.evaluation() | {"linear_checkpoint": checkpoint}
    run.evaluation_file.write_text(json.dumps(measured))
    run = contents.read_run(path, "run")
    assert run.evaluation == measured and len(run.samples) and len(run.card)
    assert run.predictions["probabilities"].shape == (360, 10)
    # A stage has it if it was this one that was measured.
    run = contents.read_run(stage.path, "run")
    assert bool(run.evaluation) == bool(checkpoint)


def test_the_classifier_that_is_shown():
    evaluation = {
        "knn": {"top_1": 0.5, "confusion_matrix": [[1]]},
        "pretrained": {"top_1": 0.6},
        "corruptions": {"pretrained": {"mean_ece": 0.1}},
    }
    run = run_files.bare_run(evaluation=evaluation)
    assert run.classifier("top_1") == "pretrained"
    assert run.classifier("confusion_matrix") == "knn"
    assert run.robustness() == {"mean_ece": 0.1}
