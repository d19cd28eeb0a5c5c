"""What was made of one checkpoint is not taken for that of another."""

import dataclasses
import json
import os
import pathlib
import shutil
import types

import numpy as np
import pytest
from PIL import Image

from supcon_tf import (
    config,
    conversion,
    evaluation,
    reports,
    serving,
    training,
)
from supcon_tf.training import materials, runs


@pytest.fixture(scope="module")
def extended(copy_run, tmp_path_factory):
    """A run that went on after its linear stage, evaluation and transfer."""
    run = copy_run(tmp_path_factory.mktemp("extended") / "run")
    pictures = {"sample_images": 0, "plotted_images": 0}
    evaluation.evaluate(config.EvaluateSettings(str(run.path), **pictures))
    measured = evaluation.transfer_encoder(transfer(run))
    assert evaluation.transfer_encoder(transfer(run)) == measured
    recorded = run.recorded(config.PretrainSettings)
    training.pretrain(dataclasses.replace(recorded, epochs=3, resume=True))
    return run


def transfer(run):
    return config.TransferSettings(
        str(run.path), dataset="digits", l2=1.0, resume=True
    )


STALE = (
    "linear stage .*run/linear must be of step-00000009, .*got one of "
    "step-00000006: tools/train_linear.py .*--name=linear --overwrite"
)


@pytest.mark.parametrize(
    ("tool", "settings"),
    [
        (evaluation.evaluate, config.EvaluateSettings),
        (serving.export, config.ExportSettings),
        (conversion.convert, config.ConvertSettings),
    ],
)
def test_a_linear_stage_of_another_checkpoint_is_refused(
    extended, tool, settings
):
    with pytest.raises(ValueError, match=STALE):
        tool(settings(str(extended.path)))
    assert not extended.export.exists() and not extended.converted.exists()


def test_a_report_says_what_is_of_another_checkpoint(extended, tmp_path):
    page = reports.write_report([extended.path], tmp_path / "report.html")
    told = "Its evaluation is of step-00000006, not of step-00000009"
    assert told in page.read_text()


def linear(run, **options):
    options = {"epochs": 20, "batch_size": 16, "crop_area": ()} | options
    return config.LinearSettings(
        str(run.path), horizontal_flip=False, **options
    )


def test_a_linear_stage_goes_on_with_its_own_encoder_alone(extended):
    with pytest.raises(ValueError, match="checkpoint step-00000006, got step"):
        training.train_linear(linear(extended, resume=True))


@pytest.mark.slow
def test_an_export_is_of_the_checkpoint_of_its_new_linear_stage(
    extended, tmp_path
):
    path = tmp_path / "run"
    shutil.copytree(extended.path, path)
    copied = training.RunDirectory(path)
    training.train_linear(linear(copied, overwrite=True))
    version = serving.export(config.ExportSettings(str(path)))
    record = json.loads((version / "assets.extra/metadata.json").read_text())
    run = training.Run.open(path)
    encoder = record["checkpoints"]["encoder"]
    assert encoder == {
        "name": "step-00000009",
        "step": 9,
        "sha256": run.identity["sha256"],
    }
    assert record["metrics"] is None  # no evaluation is of this checkpoint


def forget(stage):
    """Makes the checkpoint of a stage one of an earlier version."""
    file = pathlib.Path(stage.latest_checkpoint(), "progress.json")
    record = json.loads(file.read_text())
    del record["made_of"]
    file.write_text(json.dumps(record))


def test_a_stage_without_a_record_is_taken_if_it_is_younger(
    copy_run, tmp_path, capsys
):
    run = copy_run(tmp_path / "run")
    forget(run.stage("linear"))
    opened = runs.open_run(run.path)
    assert opened.classifier("linear") is not None
    assert (
        "has not recorded its checkpoint; it was beg" in capsys.readouterr()[0]
    )
    # The encoder was saved after the linear stage was begun.
    os.utime(pathlib.Path(opened.checkpoint, "progress.json"))
    with pytest.raises(ValueError, match="an earlier version, which has not"):
        runs.open_run(run.path).classifier("linear")


def test_a_checkpoint_of_the_same_step_is_another(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    file = pathlib.Path(run.latest_checkpoint(), "progress.json")
    file.write_text(file.read_text().replace('"metrics"', '  "metrics"'))
    message = r"step-00000006 \(.{8}\.\.\.\), .*step-00000006 \(.{8}\.\.\.\)"
    with pytest.raises(ValueError, match=message):
        runs.open_run(run.path).classifier("linear")


def test_a_transfer_of_another_checkpoint_is_refused(extended):
    message = "transfer.json must be of step-00000009, .*got that of step-0000"
    with pytest.raises(ValueError, match=message):
        evaluation.transfer_encoder(transfer(extended))


def test_classes_in_another_order_are_refused(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    names = json.loads(run.classes_file.read_text())
    run.classes_file.write_text(json.dumps(names[::-1]))
    for tool in (
        lambda: serving.export(config.ExportSettings(str(run.path))),
        lambda: runs.open_run(run.path).class_names,
        lambda: run.class_names(),  # of a report
    ):
        with pytest.raises(ValueError, match=r"classes\.json must have the cl"):
            tool()
    assert not run.export.exists()


@pytest.fixture
def small_run(tiny_settings, tmp_path):
    """A run of one epoch on a folder of its own, and its settings."""
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in "ab":
            folder = tmp_path / "images" / split / name
            folder.mkdir(parents=True)
            for index in range(8):
                pixels = rng.integers(0, 256, [16, 16, 3], np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.png")

    def make(**options):
        settings = tiny_settings(
            tmp_path / "run",
            data_dir=str(tmp_path / "images"),
            epochs=1,
            batch_size=8,
            warmup_epochs=0.0,
            **options,
        )
        training.pretrain(settings)
        return dataclasses.replace(settings, epochs=2, resume=True)

    return make


def swap(folder):
    (folder / "a").rename(folder / "c")
    (folder / "b").rename(folder / "a")
    (folder / "c").rename(folder / "b")


def test_materials_of_a_record_must_be_the_same():
    record = {"images": "a"}
    run = types.SimpleNamespace(path="run", made_of=lambda: record)
    for same in ({"images": "a"}, {"files": "b"}, {}):
        materials.check(run, same)
    with pytest.raises(ValueError, match="as they were, got the same names wi"):
        materials.check(run, {"images": "b"})


@pytest.mark.slow
def test_swapped_contents_do_not_go_on(small_run, tmp_path, capsys):
    settings = small_run()
    swap(tmp_path / "images/train")
    with pytest.raises(ValueError, match="as they were, got the same names wi"):
        training.pretrain(settings)
    swap(tmp_path / "images/train")
    for file in (tmp_path / "images").rglob("*.png"):  # copied
        os.utime(file)
    training.pretrain(settings)
    assert "have changed since" not in capsys.readouterr()[0]


@pytest.mark.slow
def test_contents_that_nobody_has_read_are_told_by_their_times(
    small_run, tmp_path, capsys
):
    settings = small_run(check_images=False)
    swap(tmp_path / "images/train")
    training.pretrain(settings)
    assert "have changed since" in capsys.readouterr()[0]
