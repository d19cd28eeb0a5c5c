"""Runs whose data, or which themselves, are no longer where they were."""

import dataclasses
import shutil

import pytest

from supcon_tf import config, conversion, evaluation, serving, training
from supcon_tf.training import runs

PLAIN = {"sample_images": 0, "plotted_images": 0}
CONSTANT = {"crop_area": (), "horizontal_flip": False}  # views


@pytest.fixture
def workspace(copy_run, image_folder, tmp_path):
    """A run and its images, side by side in a folder; tests move them."""
    folder = tmp_path / "there"
    shutil.copytree(image_folder, folder / "photos")
    run = copy_run(folder / "runs" / "mine")
    replace_in_flags(run, image_folder, folder / "photos")
    return folder


def replace_in_flags(run, *pair):
    text = run.settings_file.read_text()
    run.settings_file.write_text(text.replace(*map(str, pair)))


def moved(folder):
    """Moves all to another place; the run there."""
    destination = folder.rename(folder.parent / "here")
    return destination, training.RunDirectory(destination / "runs" / "mine")


@pytest.mark.slow
def test_a_run_opens_where_it_has_moved_with_its_data(workspace, capsys):
    destination, run = moved(workspace)
    path = str(run.path)
    line = (
        f"moved        data_dir {destination}/photos: together with the run\n"
    )
    evaluation.evaluate(config.EvaluateSettings(path, **PLAIN))
    assert capsys.readouterr().out.count(line) == 1
    training.train_linear(
        config.LinearSettings(path, name="again", epochs=1, **CONSTANT)
    )
    assert line in capsys.readouterr().out
    settings = config.TransferSettings(
        path, data_dir=f"{destination}/photos", l2=1.0
    )
    evaluation.transfer_encoder(settings)
    capsys.readouterr()
    serving.export(config.ExportSettings(path))  # which reads no data
    assert "moved" not in capsys.readouterr().out
    assert f"--data_dir={destination}/photos" in run.commands()[0]
    # The settings that are recorded are those of then, until it is resumed.
    recorded = run.recorded(config.PretrainSettings)
    assert recorded.data_dir == f"{workspace}/photos"
    flags = vars(recorded) | {"run_dir": path, "resume": True}
    training.pretrain(config.PretrainSettings(**flags))
    assert line in capsys.readouterr().out
    recorded = run.recorded(config.PretrainSettings)
    paths = f"{destination}/photos", path
    assert (recorded.data_dir, recorded.run_dir) == paths


def test_an_image_of_the_run_is_seen_wherever_it_is(workspace, tmp_path):
    """A transfer to the images of the run, under another path."""
    _, run = moved(workspace)
    (tmp_path / "link").symlink_to("here/photos")
    photos = tmp_path / "here" / "photos"
    (photos / "train" / "mid" / "00.png").rename(photos / "test/mid/zz.png")
    names = run.images_file.read_text().replace("train/mid/00", "test/mid/zz")
    run.images_file.write_text(names)
    settings = config.TransferSettings(
        str(run.path), data_dir=str(tmp_path / "link"), l2=1.0
    )
    with pytest.raises(ValueError, match="none that .* was trained on, got 1 "):
        evaluation.transfer_encoder(settings)


def test_other_data_in_the_same_place_are_refused(workspace):
    destination, run = moved(workspace)
    (destination / "photos" / "train" / "mid" / "00.png").unlink()
    with pytest.raises(ValueError, match="got none of 1 of 48: train/mid/00.p"):
        runs.Run.open(run.path).source("train")
    opened = runs.Run.open(run.path, data_dir=destination / "photos")
    with pytest.raises(ValueError, match="must have the training images of"):
        opened.source("train")
    for split in ("train", "test"):
        folder = destination / "photos" / split
        (folder / "mid").rename(folder / "middle")
    with pytest.raises(ValueError, match=r"got -mid \+middle"):
        runs.Run.open(run.path).source("test")


@pytest.mark.slow
def test_data_that_have_moved_alone_are_named(workspace):
    run = training.RunDirectory(workspace / "runs" / "mine")
    new = str((workspace / "photos").rename(workspace / "images"))
    path = str(run.path)
    message = (
        f"data of {path} must be at {workspace}/photos, but nothing is there; "
        "`data_dir` says where .* tools/pretrain.py --resume --data_dir=NEW rec"
    )
    formats = {"formats": ("tflite_float32",)}
    linear = {"name": "again", "epochs": 1, **CONSTANT}
    for call, settings in (
        (evaluation.evaluate, config.EvaluateSettings(path, **PLAIN)),
        (conversion.convert, config.ConvertSettings(path, **formats)),
        (serving.export, config.ExportSettings(path, prototypes=True)),
        (training.train_linear, config.LinearSettings(path, **linear)),
    ):
        with pytest.raises(ValueError, match=message):
            call(settings)
        call(dataclasses.replace(settings, data_dir=new))
    assert f"={workspace}/photos\n" in run.settings_file.read_text()
    assert new not in (run.path / "again" / "settings.flags").read_text()
    recorded = run.recorded(config.PretrainSettings)
    again = dataclasses.replace(recorded, data_dir=new, resume=True)
    training.pretrain(again)
    evaluation.evaluate(config.EvaluateSettings(path, **PLAIN))


def test_a_run_that_has_not_recorded_where_it_was_opens_as_before(
    workspace, monkeypatch
):
    """As those of earlier versions, whose run_dir may be relative."""
    run = training.RunDirectory(workspace / "runs" / "mine")
    replace_in_flags(run, f"={run.path}\n", "=runs/mine\n")
    monkeypatch.chdir(workspace)
    assert runs.Run.open("runs/mine").source("test").num_examples == 21
    destination, run = moved(workspace)
    with pytest.raises(ValueError, match=f"must be at {workspace}/photos, but"):
        runs.Run.open(run.path).source("test")
    opened = runs.Run.open(run.path, data_dir=destination / "photos")
    assert opened.source("test").num_examples == 21


def test_parents_of_classes_move_too(image_folder, tiny_settings, tmp_path):
    origin = tmp_path / "there"
    origin.mkdir()
    (origin / "parents.csv").write_text(
        "class,parents\nbright,light\nmid,light\ndark,night\n"
    )
    settings = tiny_settings(
        origin / "run",
        hierarchy=str(origin / "parents.csv"),
        epochs=0,
        warmup_epochs=0.0,
    )
    training.pretrain(settings)
    destination, run = (
        origin.rename(tmp_path / "here"),
        str(tmp_path / "here" / "run"),
    )
    measured = evaluation.evaluate(config.EvaluateSettings(run, **PLAIN))
    assert "parent_top_1" in measured["knn"]["hierarchy"]
    for hierarchy in (settings.hierarchy, str(destination / "parents.csv")):
        flags = {"run_dir": run, "hierarchy": hierarchy, "resume": True}
        training.pretrain(dataclasses.replace(settings, **flags))
    shutil.copy(destination / "parents.csv", tmp_path / "other.csv")
    flags["hierarchy"] = str(tmp_path / "other.csv")
    with pytest.raises(ValueError, match="got --hierarchy=.*other.csv"):
        training.pretrain(dataclasses.replace(settings, **flags))


def test_texts_move_too(finished_text_run, tmp_path, monkeypatch, capsys):
    before = finished_text_run.recorded(config.FinetuneTextSettings)
    origin = tmp_path / "there"
    shutil.copytree(finished_text_run.path, origin / "run")
    for name in ("train_file", "test_file"):
        shutil.copy(getattr(before, name), origin)
    run = training.RunDirectory(origin / "run")
    monkeypatch.chdir(origin)  # whole paths are recorded
    names = {"train_file": "train.tsv", "test_file": "test.tsv"}
    overrides = {"run_dir": "run", "resume": True, **names}
    training.finetune_text(dataclasses.replace(before, **overrides))
    recorded = run.recorded(config.FinetuneTextSettings)
    assert recorded.train_file == str(origin / "train.tsv")
    assert recorded.run_dir == str(origin / "run")

    root = origin.rename(tmp_path / "here")
    run = str(root / "run")
    evaluation.evaluate(config.EvaluateSettings(run, **PLAIN))
    line = f"train_file {root}/train.tsv, test_file {root}/test.tsv: together"
    assert line in capsys.readouterr().out
    new = {name: str(tmp_path / f"new_{file}") for name, file in names.items()}
    for name, path in new.items():
        (root / names[name]).rename(path)
    with pytest.raises(ValueError, match="finetune_text.py --resume --test_fi"):
        evaluation.evaluate(config.EvaluateSettings(run, **PLAIN))
    evaluation.evaluate(config.EvaluateSettings(run, **new, **PLAIN))
    shutil.copy(new["test_file"], new["train_file"])  # fewer sentences
    with pytest.raises(ValueError, match="the data must have the training ima"):
        runs.open_run(run, **new).source("train")


def test_data_of_another_kind_are_refused(finished_run, finished_text_run):
    for run, name, tool in (
        (finished_text_run, "data_dir", "finetune_text"),
        (finished_run, "train_file", "pretrain"),
    ):
        message = f"`{name}` must be left out for a run of tools/{tool}.py"
        with pytest.raises(ValueError, match=message):
            runs.open_run(run.path, **{name: "elsewhere"})
