"""An encoder of the image folder, taken to the digits and elsewhere."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from supcon_tf import config, run_files, settings
from supcon_tf.cli import commands
from supcon_tf.training import input_pipeline, runs
from supcon_tf.transfer import transfer


def settings_for(run, **overrides):
    return config.TransferSettings(
        str(run.path),
        **{
            "name": "digits",
            "dataset": "digits",
            "images_per_label": 6,
            "repeats": 2,
            "l2_values": 6,
            "overwrite": True,
            **overrides,
        },
    )


@pytest.fixture(scope="module")
def results(finished_run):
    return transfer.transfer_encoder(settings_for(finished_run))


def test_results_equal_the_file(results, finished_run):
    stage = finished_run.stage("digits")
    saved = json.loads((stage.path / "transfer.json").read_text())
    assert saved == results
    assert results["image_size"] == 16  # of the pretraining; the digits' is 32
    assert results["pretrained_on"] == "folder"
    assert results["test_images"] == 360 and results["classes"] == 10
    assert results["test"]["top_1"] > 0.2  # something of digits is learned
    assert stage.class_names() == tuple("0123456789")
    again = settings.from_flagfile(config.TransferSettings, stage.settings_file)
    assert again == settings_for(finished_run, overwrite=False, image_size=16)
    saved = run_files.read_arrays(stage.predictions_file)
    assert saved["probabilities"].shape == (2, 360, 10)
    right = saved["probabilities"].argmax(2) == saved["labels"]
    expected = [draw["test"]["top_1"] for draw in results["draws"]]
    assert right.mean(1).tolist() == pytest.approx(expected)


def test_chosen_is_the_best_on_the_validation_images(results):
    for draw in results["draws"]:
        assert draw["training_images"] == 60
        assert draw["validation_images"] == 30
        best = max(draw["sweep"], key=lambda row: (row["top_1"], -row["nll"]))
        assert draw["chosen"] == {"l2": best["l2"]}
        assert draw["validation"]["top_1"] == best["top_1"]


def test_figures_are_means_and_deviations_of_the_draws(results):
    for name in ("top_1", "mean_recall", "nll"):
        first, second = (draw["test"][name] for draw in results["draws"])
        assert results["test"][name] == pytest.approx((first + second) / 2)
        assert results["test_deviation"][name] == pytest.approx(
            abs(first - second) / 2**0.5
        )


def test_test_labels_choose_nothing(results, finished_run, monkeypatch):
    load = input_pipeline.source

    def shuffled(settings, split):
        source = load(settings, split)
        if split == "train":
            return source
        labels = np.random.default_rng(0).permutation(source.labels)
        return dataclasses.replace(source, labels=labels)

    monkeypatch.setattr(input_pipeline, "source", shuffled)
    other = transfer.transfer_encoder(
        settings_for(finished_run, name="shuffled")
    )
    assert other["test"]["top_1"] != results["test"]["top_1"]
    for before, after in zip(results["draws"], other["draws"], strict=True):
        assert before.pop("test") != after.pop("test")
        assert before == after


def test_fine_tuning_leaves_a_checkpoint(finished_run, image_folder):
    results = transfer.transfer_encoder(
        config.TransferSettings(
            str(finished_run.path),
            name="fine_tuned",
            method="finetune",
            dataset="folder",
            data_dir=str(image_folder),
            steps=2,
        )
    )
    stage = finished_run.stage("fine_tuned")
    tuned = runs.Run.open(stage.tuned)
    assert tuned.checkpoint.endswith("step-00000002")
    assert tuned.classifiers == ("pretrained",)
    assert results["draws"][0]["training"]["batch_size"] == 48
    assert "sweep" not in results["draws"][0]
    saved = run_files.read_arrays(stage.predictions_file)
    assert saved["probabilities"].shape == (21, 3)
    assert all(name.startswith("test/") for name in saved["ids"])
    table = transfer.transfer_table(results).splitlines()
    assert table[0] == (
        "folder, finetune: 48 training and 21 test images of 3 classes"
    )
    assert table[1] == "learning_rate 0.1, weight_decay 0"
    assert table[2].split() == ["top-1", f"{results['test']['top_1']:.4f}"]


def test_test_images_that_training_sees_are_named(
    finished_run, image_folder, tmp_path, capsys
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    shutil.copy(photos / "train/mid/01.jpg", photos / "test/mid/copied.jpg")
    options = {"dataset": "folder", "data_dir": str(photos), "name": "photos"}
    transfer.transfer_encoder(
        settings_for(finished_run, **options, repeats=1, l2_values=2)
    )
    output = capsys.readouterr().out
    line = "1 of 22 test images are, byte for byte, training images"
    assert f"{line}: test/mid/copied.jpg" in output
    assert f"{line} of {finished_run.path}: test/mid/copied.jpg" in output


def test_the_tool_prints_the_table(results, finished_run, monkeypatch, capsys):
    patched = "supcon_tf.transfer.transfer_encoder"
    monkeypatch.setattr(patched, lambda _: results)
    commands.transfer(settings_for(finished_run))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("mean of 2 draws")
    assert ", of 6 by 30 validation images: top-1 " in lines[1]
    assert f"± {results['test_deviation']['top_1']:.4f}" in lines[3]


def test_a_finished_transfer_is_of_its_own_examples(results, finished_run):
    again = settings_for(finished_run, overwrite=False, resume=True)
    assert transfer.transfer_encoder(again)["test"] == results["test"]
    fewer = dataclasses.replace(again, drop_duplicates=True)
    with pytest.raises(ValueError, match=r"--drop_duplicates=true \(was false"):
        transfer.transfer_encoder(fewer)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"run_dir": "nowhere"}, "must be a run directory of tools/pretrain"),
        ({"overwrite": False}, "holds a run already; go on with it"),
        ({"images_per_label": 200}, "--images_per_label must be at most 139"),
        ({"dataset": "folder", "data_dir": "nowhere"}, "must be a folder, got"),
    ],
)
def test_wrong_settings_are_refused_before_files_are_lost(
    results, finished_run, overrides, message
):
    file = finished_run.stage("digits").path / "transfer.json"
    before = file.read_text()
    settings = dataclasses.replace(settings_for(finished_run), **overrides)
    with pytest.raises(ValueError, match=message):
        transfer.transfer_encoder(settings)
    assert file.read_text() == before
