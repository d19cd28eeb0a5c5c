"""Files of the data that vanish, are cut, or are no files at all."""

import contextlib
import dataclasses
import functools
import os
import shutil
import socket

import numpy as np
import pytest

from supcon_tf import (
    clients,
    config,
    data,
    evaluation,
    exceptions,
    reports,
    run_files,
    training,
)
from supcon_tf.data import examples
from supcon_tf.training import callbacks
from tests import processes as runs


def _delete(path):
    path.unlink()


def _cut(path):
    path.write_bytes(path.read_bytes()[:60])


def _hurt_at(monkeypatch, epoch, hurt):
    """Hurts data as an epoch ends, in the middle of a training."""
    write = callbacks.EpochRecords.on_epoch_end

    def write_and_hurt(self, number, logs=None):
        write(self, number, logs)
        if number + 1 == epoch:
            hurt()

    monkeypatch.setattr(callbacks.EpochRecords, "on_epoch_end", write_and_hurt)


def _losses(run):
    assert [line["epoch"] for line in run.metrics()] == [*range(1, 61)]
    return [line["loss"] for line in run.metrics()]


@pytest.fixture(scope="module")
def records(image_folder, tmp_path_factory):
    """The images as TFRecord files."""
    path = tmp_path_factory.mktemp("records")
    splits = {
        split: data.load("folder", split, str(image_folder))
        for split in ("train", "test")
    }
    data.write_tfrecords(splits, path, 8, 0)
    return path


@pytest.fixture(scope="module")
def undisturbed(image_folder, records, tiny_settings, tmp_path_factory):
    """The losses of a training whose data stay, by the kind of data."""

    @functools.cache
    def losses(kind):
        source = image_folder if kind == "folder" else records
        path = tmp_path_factory.mktemp("undisturbed") / "run"
        settings = _settings(tiny_settings, path, kind, source)
        return _losses(training.pretrain(settings))

    return losses


def _settings(tiny_settings, path, kind, source, **options):
    # More epochs than are read ahead.
    options |= {"dataset": kind, "data_dir": str(source)}
    return tiny_settings(path, epochs=60, checkpoint_every=99, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, hurt, check_images",
    [
        ("folder", _delete, True),
        ("folder", _cut, False),
        ("tfrecord", _cut, True),
    ],
)
def test_a_file_is_lost_during_training(
    image_folder,
    records,
    undisturbed,
    tiny_settings,
    tmp_path,
    monkeypatch,
    kind,
    hurt,
    check_images,
):
    source = image_folder if kind == "folder" else records
    shutil.copytree(source, tmp_path / "data")
    name = "train/dark/03.jpg"
    if kind == "tfrecord":
        name = sorted(path.name for path in source.glob("*train*"))[0]
    file, run = tmp_path / "data" / name, tmp_path / "run"
    settings = _settings(
        tiny_settings, run, kind, tmp_path / "data", check_images=check_images
    )
    run = run_files.RunDirectory(run)
    with monkeypatch.context() as patched:
        _hurt_at(patched, 2, lambda: hurt(file))
        with pytest.raises(exceptions.FileLost) as error:
            training.pretrain(settings)
    told = str(error.value)
    assert str(file) in told and "--resume goes on" in told
    (step,) = run_files.steps_in(run.checkpoints)
    assert f"saved at step {step};" in told and step >= 6
    file.unlink(missing_ok=True)
    shutil.copy2(source / name, file)
    training.pretrain(dataclasses.replace(settings, resume=True))
    assert _losses(run) == pytest.approx(undisturbed(kind), rel=0.02)


@pytest.mark.slow
def test_a_training_that_a_defect_ends_keeps_its_traceback(
    tiny_settings, tmp_path, monkeypatch
):
    import tensorflow as tf

    def fail():
        tf.debugging.assert_equal(1, 2)

    _hurt_at(monkeypatch, 1, fail)
    with pytest.raises(tf.errors.InvalidArgumentError, match="1|2"):
        training.pretrain(tiny_settings(tmp_path / "run"))


def test_a_tool_says_so_in_one_line(image_folder, tiny_settings, tmp_path):
    """A real process, whose image is deleted while it trains."""
    shutil.copytree(image_folder, tmp_path / "data")
    run = tmp_path / "run"
    process = runs.start(
        run,
        "--epochs=999",
        "--dataset=folder",
        "--image_size=16",
        f"--data_dir={tmp_path}/data",
        "--batch_size=16",
        "--checkpoint_every=2000",
        "--knn_every=0",
    )
    metrics = run / "metrics.jsonl"
    runs.wait_until(metrics.exists, [process])
    (tmp_path / "data/train/dark/03.jpg").unlink()
    output = runs.end(process, 1)
    (line,) = [
        text for text in output.splitlines() if text.startswith("error:")
    ]
    assert "train/dark/03.jpg (not there)" in line
    assert "Traceback" not in output and runs.last_step(run) > 0


@pytest.mark.slow(but=["False"])
@pytest.mark.parametrize("augmented", [True, False])
def test_a_file_is_lost_in_later_tools(
    copy_run, image_folder, tmp_path, monkeypatch, augmented
):
    shutil.copytree(image_folder, tmp_path / "data")
    run = copy_run(tmp_path / "run")
    flags = run.settings_file.read_text()
    run.settings_file.write_text(
        flags.replace(str(image_folder), str(tmp_path / "data"))
    )
    load = training.Run._read_split

    def load_and_hurt(self, split, shard):
        source = load(self, split, shard)
        (tmp_path / f"data/{split}/mid/01.jpg").unlink(missing_ok=True)
        return source

    monkeypatch.setattr(training.Run, "_read_split", load_and_hurt)
    views = {} if augmented else {"crop_area": (), "horizontal_flip": False}
    settings = config.LinearSettings(str(run.path), name="new", **views)
    with pytest.raises(ValueError, match=r"train/mid/01.jpg \(not there\)"):
        training.train_linear(settings)
    with pytest.raises(ValueError, match=r"test/mid/01.jpg \(not there\)"):
        evaluation.evaluate(config.EvaluateSettings(str(run.path)))


@pytest.mark.slow
def test_a_test_image_is_lost_during_training(
    image_folder, tiny_settings, tmp_path, monkeypatch, capsys
):
    """Training needs none: it goes on, without the figure."""
    monkeypatch.setattr(examples, "_MAX_CACHED", 0)  # as of large splits
    shutil.copytree(image_folder, tmp_path / "data")
    file = tmp_path / "data/test/mid/02.png"
    _hurt_at(monkeypatch, 1, file.unlink)
    options = {"data_dir": str(tmp_path / "data"), "knn_every": 1}
    run = training.pretrain(tiny_settings(tmp_path / "run", **options))
    figures = [line["knn_accuracy"] for line in run.metrics()]
    assert figures[0] is not None and figures[1] is None
    assert f"{file} (not there)" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "nowhere"])
def test_what_is_no_file_is_never_opened(image_folder, tmp_path, kind):
    """A pipe would be waited for, a device be read without end."""
    shutil.copytree(image_folder, tmp_path / "data")
    special = tmp_path / "data/train/dark/special.png"
    if kind == "pipe":
        os.mkfifo(special)
    elif kind == "socket":
        listener = socket.socket(socket.AF_UNIX)
        with contextlib.chdir(special.parent):  # a path may be too long
            listener.bind(special.name)
        listener.close()
    else:
        special.symlink_to("/dev/zero" if kind == "device" else kind)
    for check_images in (True, False):
        with pytest.raises(ValueError, match=r"regular.*special.png|special.p"):
            data.load(
                "folder",
                "train",
                str(tmp_path / "data"),
                check_images=check_images,
            )
    manifest = tmp_path / "list.csv"
    names = [
        f"train/{folder}/0{number}.jpg"
        for folder in ("dark", "mid")
        for number in (1, 3, 5)
    ]
    lines = [f"data/{name},{name[6:9]},train\n" for name in names]
    lines += [
        f"data/test/{folder}/01.jpg,{folder[:3]},test\n"
        for folder in ("dark", "mid")
    ]
    lines.append("data/train/dark/special.png,dar,train\n")
    manifest.write_text("path,label,split\n" + "".join(lines))
    for check_images in (True, False):
        with pytest.raises(ValueError, match=r"special.png \(list.csv:10\)"):
            data.load(
                "manifest", "train", str(manifest), check_images=check_images
            )
    rows = clients.requests.answers(
        lambda contents: [{"bytes": len(content)} for content in contents],
        clients.paths.find_images([tmp_path / "data/train/dark"]),
        batch_size=4,
    )
    refused = [row for row in rows if "error" in row]
    (row,) = refused
    assert row["path"].endswith("special.png")
    assert row["error"] in ("no regular file", "No such file or directory")


def test_files_of_rows_records_and_texts_are_files(records, tmp_path):
    os.mkfifo(tmp_path / "list.csv")
    with pytest.raises(ValueError, match=r"must be a file \.tsv"):
        data.load("manifest", "train", str(tmp_path / "list.csv"))
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    for name in ("list.csv", "zero.txt"):
        with pytest.raises(ValueError, match="must be regular files"):
            clients.paths.find_texts([], [tmp_path / name])
    shutil.copytree(records, tmp_path / "records")
    os.mkfifo(tmp_path / "records/train-00007-of-00008")
    with pytest.raises(ValueError, match="regular files, got train-00007-of"):
        data.load("tfrecord", "train", str(tmp_path / "records"))


def test_labels_far_above_the_images():
    images = np.zeros([4, 8, 8, 3], np.uint8)
    with pytest.raises(ValueError, match="labels up to 1000000000, which"):
        data.from_arrays(images, [0, 1, 0, 10**9])
    assert len(data.from_arrays(images, [0, 1, 0, 999]).class_names) == 1000


@pytest.mark.slow
def test_a_damaged_line_of_figures(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    first, second = run.metrics_file.read_text().splitlines()
    damaged = f"{first[:20]}\n{first}\n\xff\n{second}\n{second}\n"
    run.metrics_file.write_text(damaged)
    with pytest.raises(ValueError, match=r"metrics.jsonl:1 must be the figu"):
        reports.write_report([run.path], tmp_path / "report.html")
    settings = run.recorded(config.PretrainSettings)
    settings = dataclasses.replace(settings, resume=True, epochs=3)
    training.pretrain(settings)
    assert [line["epoch"] for line in run.metrics()] == [1, 2, 3]
