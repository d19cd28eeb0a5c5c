"""Runs that have moved, alone or with their data."""

import dataclasses
import pathlib
import shutil

import pytest

from supcon_tf import config, conversion, evaluation, serving, training
from supcon_tf.training import input_pipeline, jobs, loop, runs, stages
from tests import runs as shared_runs


@pytest.fixture
def workspace(copy_run, image_folder, tmp_path):
    """A folder with a run and its images, which tests move."""
    folder = tmp_path / "there"
    shutil.copytree(image_folder, folder / "photos")
    run = copy_run(folder / "runs" / "mine")
    replace_in_flags(run, image_folder, folder / "photos")
    return folder


def replace_in_flags(run, *pair):
    text = run.settings_file.read_text()
    run.settings_file.write_text(text.replace(*map(str, pair)))


def moved(folder):
    """Renames the folder; returns the new folder and its run."""
    destination = folder.rename(folder.parent / "here")
    return destination, training.RunDirectory(destination / "runs" / "mine")


def test_a_resumed_run_records_the_path_of_moved_data(workspace, capsys):
    destination, run = moved(workspace)
    recorded = run.recorded(config.PretrainSettings)
    assert recorded.data_dir == f"{workspace}/photos"
    assert f"--data_dir={destination}/photos" in run.commands()[0]
    settings = dataclasses.replace(recorded, run_dir=str(run.path), resume=True)
    job = jobs.prepare(settings, stages._splits)
    assert capsys.readouterr().out == (
        f"moved        data_dir {destination}/photos: together with the run\n"
    )
    with loop.open_run(job):
        recorded = run.recorded(config.PretrainSettings)
    assert recorded.data_dir == f"{destination}/photos"
    assert recorded.run_dir == str(run.path)


def test_a_transfer_to_images_of_the_training_is_refused(workspace, tmp_path):
    """The images have another path and another folder."""
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


def test_other_data_at_the_path_of_the_training_are_refused(workspace):
    destination, run = moved(workspace)
    photos = destination / "photos"
    assert runs.Run.open(run.path).source("test").num_examples == 21
    (photos / "train" / "mid" / "00.png").unlink()
    with pytest.raises(ValueError, match="got none of 1 of 48: train/mid/00.p"):
        runs.Run.open(run.path).source("train")
    with pytest.raises(ValueError, match="must have the training images of"):
        runs.Run.open(run.path, data_dir=photos).source("train")
    for split in ("train", "test"):
        (photos / split / "mid").rename(photos / split / "middle")
    with pytest.raises(ValueError, match=r"got -mid \+middle"):
        runs.Run.open(run.path).source("test")
    photos.rename(destination / "elsewhere")
    with pytest.raises(ValueError, match=f"must be at {workspace}/photos, but"):
        runs.Run.open(run.path).source("test")


@pytest.fixture
def unsplit(image_folder, tmp_path):
    """A folder of classes that a hash of the file names divides."""
    for path in (image_folder / "train").rglob("*.*g"):
        name = path.parent.name
        target = tmp_path / "photos" / name / f"{name}_{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path / "photos"


def begun_run(path, data_dir, with_digests=True, **options):
    """A run with the records of a training on images, without a checkpoint."""
    settings = shared_runs.image_settings(path, data_dir, **options)
    train = input_pipeline.source(settings, "train")
    run = training.RunDirectory(path)
    digests = train.digests if with_digests else None
    run.create(settings, train.class_names, train.ids, (), digests)
    return run, train.ids


def rename(folder, class_name="*"):
    for path in [*folder.glob(f"{class_name}/*.*g")]:
        path.rename(path.with_stem(f"{path.stem}_v2"))


@pytest.mark.parametrize("with_digests", [True, False])
def test_renamed_images_are_refused(unsplit, tmp_path, with_digests):
    """Renaming divides them anew, also those of a run without digests."""
    run, train_ids = begun_run(tmp_path / "run", unsplit, with_digests)
    rename(unsplit)
    message = (
        f"file names of the training images of {run.path}, .* got none of "
        f"{len(train_ids)}: bright/bright_0.*former names, or train again"
    )
    with pytest.raises(ValueError, match=message):
        runs.Run.open(run.path).source("test")


def test_a_few_renamed_images_are_found_by_their_bytes(unsplit, tmp_path):
    run, train_ids = begun_run(tmp_path / "run", unsplit)
    before = runs.Run.open(run.path).source("test")
    rename(unsplit, "mid")
    after = input_pipeline.source(run.recorded(config.PretrainSettings), "test")
    seen = {*after.digests.tolist()} - {*before.digests.tolist()}
    message = (
        f"former names, .* got {len(seen)} of {after.num_examples} with the "
        "bytes of training images of other names: mid/mid_.*_v2"
    )
    assert seen
    with pytest.raises(ValueError, match=message):
        runs.Run.open(run.path).source("test")
    with pytest.raises(ValueError, match=message):  # reads no test image
        training.train_linear(config.LinearSettings(str(run.path)))


def test_training_images_may_be_removed_or_have_copies(unsplit, tmp_path):
    """A copy of an image that trains no more was trained on as well."""
    run, train_ids = begun_run(
        tmp_path / "run", unsplit, train_fraction=0.5, draw=3
    )
    before = runs.Run.open(run.path).source("test")
    for name in train_ids[1:4]:
        (unsplit / name).unlink()
    test = runs.Run.open(run.path).source("test")
    assert test.ids == before.ids
    shutil.copy(unsplit / train_ids[0], unsplit / test.ids[0])
    assert runs.Run.open(run.path).source("test").num_examples == len(test.ids)
    (unsplit / train_ids[0]).unlink()
    with pytest.raises(ValueError, match=f"1 of .* other names: {test.ids[0]}"):
        runs.Run.open(run.path).source("test")


def test_a_manifest_may_have_other_folders(unsplit, tmp_path):
    """The file names alone divide the images."""
    paths = [path.relative_to(unsplit) for path in unsplit.rglob("*.*g")]
    table = unsplit / "list.csv"

    def write(folder):
        rows = [f"{folder}{path},{path.parent}" for path in paths]
        table.write_text("\n".join(["path,label", *rows]))

    write("")
    run, _ = begun_run(tmp_path / "run", table, dataset="manifest")
    before = runs.Run.open(run.path).source("test")
    write(f"{unsplit}/")
    test = runs.Run.open(run.path).source("test")
    assert test.labels.tolist() == before.labels.tolist()


@pytest.mark.slow
def test_tools_take_the_new_path_of_the_data(workspace):
    run = training.RunDirectory(workspace / "runs" / "mine")
    new = str((workspace / "photos").rename(workspace / "images"))
    path = str(run.path)
    message = (
        f"data of {path} must be at {workspace}/photos, but nothing is there; "
        "`data_dir` says where .* tools/pretrain.py --resume --data_dir=NEW rec"
    )
    formats = {"formats": ("tflite_float32",)}
    linear = {"name": "again", "epochs": 1}
    for call, settings in (
        (evaluation.evaluate, shared_runs.evaluation_settings(path)),
        (conversion.convert, config.ConvertSettings(path, **formats)),
        (serving.export, config.ExportSettings(path, prototypes=True)),
        (training.train_linear, shared_runs.linear_settings(path, **linear)),
    ):
        with pytest.raises(ValueError, match=message):
            call(settings)
        call(dataclasses.replace(settings, data_dir=new))
    assert f"={workspace}/photos\n" in run.settings_file.read_text()
    assert new not in (run.path / "again" / "settings.flags").read_text()
    recorded = run.recorded(config.PretrainSettings)
    again = dataclasses.replace(recorded, data_dir=new, resume=True)
    training.pretrain(again)
    evaluation.evaluate(shared_runs.evaluation_settings(path))


def test_texts_may_move(finished_text_run, tmp_path, monkeypatch, capsys):
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
    evaluation.evaluate(shared_runs.evaluation_settings(run))
    line = f"train_file {root}/train.tsv, test_file {root}/test.tsv: together"
    assert line in capsys.readouterr().out
    new = {name: str(tmp_path / f"new_{file}") for name, file in names.items()}
    for name, path in new.items():
        (root / names[name]).rename(path)
    with pytest.raises(ValueError, match="finetune_text.py --resume --test_fi"):
        evaluation.evaluate(shared_runs.evaluation_settings(run))
    evaluation.evaluate(shared_runs.evaluation_settings(run, **new))
    shutil.copy(new["test_file"], new["train_file"])  # fewer sentences
    with pytest.raises(ValueError, match="the data must have the training tex"):
        runs.open_run(run, **new).source("train")


def test_a_training_file_that_has_changed_is_refused(
    finished_text_run, tmp_path
):
    """Or other sentences would be its neighbours in silence."""
    settings = finished_text_run.recorded(config.FinetuneTextSettings)
    content = pathlib.Path(settings.train_file).read_text()
    path = tmp_path / "train.tsv"
    path.write_text(content)
    run = runs.open_run(finished_text_run.path, train_file=path)
    assert run.source("train").num_examples
    path.write_text(content.replace("a c", "a f"))
    run = runs.open_run(finished_text_run.path, train_file=path)
    with pytest.raises(ValueError, match="was trained on, got .*train.tsv, wh"):
        run.source("train")


def test_data_of_another_kind_are_refused(finished_run, finished_text_run):
    for run, name, tool in (
        (finished_text_run, "data_dir", "finetune_text"),
        (finished_run, "train_file", "pretrain"),
    ):
        message = f"`{name}` must be left out for a run of tools/{tool}.py"
        with pytest.raises(ValueError, match=message):
            runs.open_run(run.path, **{name: "elsewhere"})
