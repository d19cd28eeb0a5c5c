"""Results of a checkpoint are refused with another checkpoint."""

import dataclasses
import json
import os
import pathlib
import shutil
import types

import numpy as np
import pytest

from supcon_tf import (
    config,
    conversion,
    data,
    evaluation,
    reports,
    run_files,
    serving,
    training,
)
from supcon_tf.training import materials, runs


@pytest.fixture(scope="module")
def extended(copy_evaluated_run, tmp_path_factory):
    """A run with a newer checkpoint than its stage, evaluation and transfer."""
    run = copy_evaluated_run(tmp_path_factory.mktemp("extended") / "run")
    measured = evaluation.transfer_encoder(transfer(run))
    assert evaluation.transfer_encoder(transfer(run)) == measured
    newest = run_files.path_of(run.checkpoints, 9)
    shutil.copytree(run.latest_checkpoint(), newest)
    record = json.loads((newest / "progress.json").read_text())
    (newest / "progress.json").write_text(json.dumps(record | {"step": 9}))
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


def test_a_report_says_which_checkpoint_an_evaluation_is_of(extended, tmp_path):
    page, link = tmp_path / "report.html", tmp_path / "link"
    page.write_text("old")
    os.link(page, link)
    reports.write_report([extended.path], page)
    stale = "Its evaluation is of step-00000006, not of step-00000009"
    assert stale in page.read_text()
    assert link.read_text() == "old"  # the page is replaced, not rewritten


def linear(run, **options):
    options = {"epochs": 20, "batch_size": 16, "crop_area": ()} | options
    return config.LinearSettings(
        str(run.path), horizontal_flip=False, **options
    )


def test_a_linear_stage_resumes_with_the_same_encoder_only(extended):
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


def test_stages_without_a_record_must_be_younger_than_the_encoder(
    copy_run, tmp_path, capsys
):
    """As stages of an earlier version have no record."""
    run = copy_run(tmp_path / "run")
    checkpoint = run.stage("linear").latest_checkpoint()
    file = pathlib.Path(checkpoint, "progress.json")
    record = json.loads(file.read_text())
    del record["made_of"]
    file.write_text(json.dumps(record))
    opened = runs.open_run(run.path)
    assert opened.classifier("linear") is not None
    assert (
        "has not recorded its checkpoint; it was beg" in capsys.readouterr()[0]
    )
    # The encoder was saved after the linear stage was begun.
    os.utime(pathlib.Path(opened.checkpoint, "progress.json"))
    with pytest.raises(ValueError, match="an earlier version, which has not"):
        runs.open_run(run.path).classifier("linear")


def test_checkpoints_of_a_step_are_told_apart(copy_run, tmp_path):
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


def test_materials_must_be_those_of_the_record(image_folder, tmp_path, capsys):
    """Images that were read have digests, other images have sizes and times."""
    folder = tmp_path / "images"
    shutil.copytree(image_folder, folder)
    first, second = (folder / f"train/dark/0{n}.jpg" for n in (1, 3))

    def fingerprints(check_images):
        images = data.load(
            "folder", "train", str(folder), check_images=check_images
        )
        return materials.fingerprints(images)

    def check(record, check_images):
        run = types.SimpleNamespace(path="run", made_of=lambda: record)
        materials.check(run, fingerprints(check_images))
        return capsys.readouterr().out

    digests, times = fingerprints(True), fingerprints(False)
    assert "images" in digests and "files" in times
    assert not check(digests, True) and not check(times, False)
    assert not check(digests, False) and not check({}, True)
    first.rename(folder / "first")
    second.rename(first)
    (folder / "first").rename(second)
    with pytest.raises(ValueError, match="as they were, got the same names wi"):
        check(digests, True)
    assert "have changed since run was begun" in check(times, False)
    shutil.copytree(image_folder, folder, dirs_exist_ok=True)
    os.utime(first)
    assert not check(digests, True)
    assert "have changed since run was begun" in check(times, False)


def test_weights_and_parents_are_materials(tmp_path, capsys):
    images = data.from_arrays(np.zeros([4, 8, 8, 3], np.uint8), [0, 1, 2, 0])
    weighted = dataclasses.replace(images, weights=np.array([1, 1, 1, 5.0]))
    unread = dataclasses.replace(images, labels=None, digests=np.arange(4))
    rewritten = dataclasses.replace(unread, fingerprint=lambda: "of labels")
    path = tmp_path / "parents.csv"

    def made_of(text, source=images):
        path.write_text(f"class,parents\n{text}\n")
        parents = materials.parents(str(path), source.class_names)
        return materials.fingerprints(source) | parents

    def check(record, other):
        run = types.SimpleNamespace(path="run", made_of=lambda: record)
        materials.check(run, other)
        return capsys.readouterr().out

    record = made_of("0,a\n1,a\n2,b")
    assert not check(record, made_of("2,d\n0,c\n1,c"))  # other words
    assert not check(record, materials.parents(None, images.class_names))
    with pytest.raises(ValueError, match="got other parents of the classes: r"):
        check(record, made_of("0,a\n1,b\n2,b"))
    for before, after in ((images, weighted), (weighted, images)):
        with pytest.raises(ValueError, match="got other weights of the images"):
            check(*map(materials.fingerprints, (before, after)))
    # The labels of TFRecord files are not read before the training.
    records = [*map(materials.fingerprints, (unread, rewritten))]
    assert not check(records[0], records[0])
    assert "have changed since run was begun" in check(*records)
