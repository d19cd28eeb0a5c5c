"""Files of the data that vanish, are cut, or are no files at all."""

import shutil

import pytest

from supcon_tf import config, data, evaluation, exceptions, run_files, training
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
    return [(x["epoch"], round(x["loss"], 4)) for x in run.metrics()]


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
    options |= {"dataset": kind, "data_dir": str(source)}
    return tiny_settings(path, epochs=5, checkpoint_every=10, **options)


@pytest.mark.parametrize(
    "kind, hurt, check_images",
    [
        ("folder", _delete, True),
        ("folder", _cut, True),
        ("folder", _cut, False),
        ("tfrecord", _cut, True),
        ("tfrecord", _delete, True),
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
        name = sorted(x.name for x in source.glob("*train*"))[0]
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
    assert _losses(run) == undisturbed(kind)


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
    (line,) = [x for x in output.splitlines() if x.startswith("error:")]
    assert "train/dark/03.jpg (not there)" in line
    assert "Traceback" not in output and runs.last_step(run) > 0


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
    own = config.LinearSettings(str(run.path), name="new", **views)
    with pytest.raises(ValueError, match=r"train/mid/01.jpg \(not there\)"):
        training.train_linear(own)
    with pytest.raises(ValueError, match=r"test/mid/01.jpg \(not there\)"):
        evaluation.evaluate(config.EvaluateSettings(str(run.path)))


def test_a_test_image_is_lost_during_training(
    image_folder, tiny_settings, tmp_path, monkeypatch, capsys
):
    """Training needs none: it goes on, without the figure."""
    shutil.copytree(image_folder, tmp_path / "data")
    file = tmp_path / "data/test/mid/02.png"
    _hurt_at(monkeypatch, 1, file.unlink)
    options = {"data_dir": str(tmp_path / "data"), "knn_every": 1}
    run = training.pretrain(tiny_settings(tmp_path / "run", **options))
    figures = [x["knn_accuracy"] for x in run.metrics()]
    assert figures[0] is not None and figures[1] is None
    assert f"{file} (not there)" in capsys.readouterr().out
