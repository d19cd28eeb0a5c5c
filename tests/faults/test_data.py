"""Data whose files vanish, are cut, or are pipes, devices and sockets."""

import contextlib
import os
import shutil
import socket

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import (
    clients,
    config,
    data,
    evaluation,
    exceptions,
    run_files,
    training,
)
from supcon_tf.data import examples
from supcon_tf.training import callbacks


def _delete(path):
    path.unlink()


def _cut(path):
    path.write_bytes(path.read_bytes()[:60])


def _damage_after(monkeypatch, epoch, damage):
    """Damages the data at the end of an epoch."""
    write = callbacks.EpochRecords.on_epoch_end

    def write_and_damage(self, index, logs=None):
        write(self, index, logs)
        if index + 1 == epoch:
            damage()

    monkeypatch.setattr(
        callbacks.EpochRecords, "on_epoch_end", write_and_damage
    )


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


@pytest.mark.slow(but=["folder-_delete-True"])
@pytest.mark.parametrize(
    ("kind", "damage", "check_images"),
    [
        ("folder", _delete, True),
        ("folder", _cut, False),
        ("tfrecord", _cut, True),
    ],
)
def test_a_lost_file_saves_the_training(
    image_folder,
    records,
    tiny_settings,
    tmp_path,
    monkeypatch,
    kind,
    damage,
    check_images,
):
    source, name = image_folder, "train/dark/03.jpg"
    if kind == "tfrecord":
        source, name = records, min(records.glob("train*")).name
    shutil.copytree(source, tmp_path / "data")
    file = tmp_path / "data" / name
    settings = tiny_settings(
        tmp_path / "run",
        dataset=kind,
        data_dir=str(tmp_path / "data"),
        check_images=check_images,
        epochs=60,  # more than are read ahead
        checkpoint_every=99,
    )
    with monkeypatch.context() as patch:
        _damage_after(patch, 2, lambda: damage(file))
        with pytest.raises(exceptions.FileLost) as error:
            training.pretrain(settings)
    message = str(error.value)
    assert str(file) in message and "--resume goes on" in message
    (step,) = run_files.steps_in(tmp_path / "run" / "checkpoints")
    assert f"saved at step {step};" in message and step >= 6


def test_errors_of_the_program_are_no_lost_files():
    images = data.from_arrays(np.zeros([4, 8, 8, 3], np.uint8), [0, 1, 0, 1])
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="1|2"),
        data.reading(lambda: [images]),
    ):
        tf.debugging.assert_equal(1, 2)


@pytest.mark.slow(but=["False"])
@pytest.mark.parametrize("augmented", [True, False])
def test_later_tools_name_a_lost_file(
    copy_run, image_folder, tmp_path, monkeypatch, augmented
):
    shutil.copytree(image_folder, tmp_path / "data")
    run = copy_run(tmp_path / "run")
    flags = run.settings_file.read_text()
    run.settings_file.write_text(
        flags.replace(str(image_folder), str(tmp_path / "data"))
    )
    read_split = training.Run._read_split

    def read_and_damage(self, split, shard):
        source = read_split(self, split, shard)
        (tmp_path / f"data/{split}/mid/01.jpg").unlink(missing_ok=True)
        return source

    monkeypatch.setattr(training.Run, "_read_split", read_and_damage)
    views = {} if augmented else {"crop_area": (), "horizontal_flip": False}
    settings = config.LinearSettings(str(run.path), name="new", **views)
    with pytest.raises(ValueError, match=r"train/mid/01.jpg \(not there\)"):
        training.train_linear(settings)
    with pytest.raises(ValueError, match=r"test/mid/01.jpg \(not there\)"):
        evaluation.evaluate(config.EvaluateSettings(str(run.path)))


@pytest.mark.slow
def test_a_lost_test_image_costs_the_knn_figure_only(
    image_folder, tiny_settings, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(examples, "_MAX_CACHED", 0)  # as for large splits
    shutil.copytree(image_folder, tmp_path / "data")
    file = tmp_path / "data/test/mid/02.png"
    _damage_after(monkeypatch, 1, file.unlink)
    options = {"data_dir": str(tmp_path / "data"), "knn_every": 1}
    run = training.pretrain(tiny_settings(tmp_path / "run", **options))
    figures = [line["knn_accuracy"] for line in run.metrics()]
    assert figures[0] is not None and figures[1] is None
    assert f"{file} (not there)" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "nowhere"])
def test_special_files_are_never_opened(image_folder, tmp_path, kind):
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
    source = data.load(
        "folder", "train", str(tmp_path / "data"), skip_bad_images=True
    )
    assert source.skipped == ("train/dark/special.png",)
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
    (row,) = [row for row in rows if "error" in row]
    assert row["path"].endswith("special.png")
    assert row["error"] in ("no regular file", "No such file or directory")


def test_rows_records_and_texts_are_regular_files(records, tmp_path):
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


def test_labels_far_above_the_count_of_images_are_refused():
    images = np.zeros([4, 8, 8, 3], np.uint8)
    with pytest.raises(ValueError, match="labels up to 1000000000, which"):
        data.from_arrays(images, [0, 1, 0, 10**9])
    assert len(data.from_arrays(images, [0, 1, 0, 999]).class_names) == 1000
