"""The run directory: its records, and checks against other runs."""

import dataclasses
import pathlib

import pytest

from supcon_tf import config, run_files


@pytest.fixture
def run(tmp_path):
    run = run_files.RunDirectory(tmp_path / "run")
    run.create(config.PretrainSettings(str(run.path)), ("cat", "öl"))
    return run


def test_settings_and_classes_are_read_back(run):
    expected = config.PretrainSettings(str(run.path))
    assert run.recorded(config.PretrainSettings) == expected
    assert run.class_names() == ("cat", "öl")


def test_a_taken_directory_is_refused(run):
    with pytest.raises(ValueError, match="a run already; go on with it by --r"):
        run.check_free(overwrite=False)
    run.check_free(overwrite=True)
    (run.path / "settings.flags").unlink()  # one of somebody else
    for overwrite in (True, False):
        with pytest.raises(ValueError, match="must be empty or a run dir"):
            run.check_free(overwrite)


def test_overwriting_removes_outputs_and_stages_only(run):
    stage = run.stage("linear")
    stage.create(config.LinearSettings(str(run.path)), ("cat", "öl"))
    run_files.path_of(run.checkpoints, 1).mkdir(parents=True)
    run.projector.mkdir(parents=True)
    (run.projector / "metadata.tsv").write_text("old")
    for name, path in vars(run).items():
        if name.endswith("_file"):
            path.write_text("old")
    (run.path / "notes.txt").write_text("mine")
    run.create(config.PretrainSettings(str(run.path)), ("dog", "cat"))
    left = {path.name for path in run.path.iterdir()}
    assert left == {"classes.json", "notes.txt", "settings.flags"}
    assert run.class_names() == ("dog", "cat")


def test_other_classes_are_refused(run):
    run.check_classes(("cat", "öl"))
    with pytest.raises(ValueError, match=r"got -öl \+dog"):
        run.check_classes(("cat", "dog"))
    with pytest.raises(ValueError, match="got another order"):
        run.check_classes(("öl", "cat"))


def test_equal_class_names_get_their_positions(tmp_path):
    """In a run of an earlier version."""
    run = run_files.RunDirectory(tmp_path / "run")
    names = ("crane", "dog", "crane")
    run.create(config.PretrainSettings(str(run.path)), names)
    assert run.class_names() == ("crane [0]", "dog", "crane [2]")
    run.check_classes(run.class_names())
    with pytest.raises(ValueError, match=r"got -crane \[2\] \+emu"):
        run.check_classes(("crane [0]", "dog", "emu"))


def test_missing_parts_are_named(run, tmp_path):
    with pytest.raises(ValueError, match="must hold a checkpoint, but has no"):
        run.latest_checkpoint()
    none = run_files.RunDirectory(tmp_path / "none")
    assert (none.flags(), none.metrics(), none.evaluation()) == ({}, [], {})
    assert run_files.read_arrays(none.predictions_file) == {}


def test_other_settings_are_refused(tmp_path):
    settings = config.PretrainSettings(str(tmp_path / "run"), temperature=0.2)
    run = run_files.RunDirectory(settings.run_dir)
    run.create(settings, ("a", "b"))
    # Where it runs, how often it saves and what is shown do not change it.
    same = {"strategy": "mirrored", "checkpoint_steps": 5, "knn_every": 2}
    same |= {"run_dir": str(tmp_path / "." / "run"), "keep_checkpoints": 9}
    again = dataclasses.replace(settings, resume=True, **same)
    run.check_same(again, settings)
    changed = dataclasses.replace(settings, temperature=0.1, hidden_dims=(8,))
    with pytest.raises(ValueError, match="--resume must come with") as raised:
        run.check_same(changed, settings)
    message = str(raised.value)
    assert "got --hidden_dims=8 (was 2048), --temperature=0.1 (was" in message
    assert f"--flagfile={run.settings_file} repeats them" in message


@pytest.mark.parametrize("below", ["file", "file/run"])
def test_an_unwritable_path_is_named(tmp_path, below):
    (tmp_path / "file").touch()
    run = run_files.RunDirectory(tmp_path / below)
    message = f"`run_dir` must be a folder .* got .*{below}: .*file"
    with pytest.raises(ValueError, match=message):
        run.check_free(overwrite=True)


def test_data_move_with_a_run(tmp_path):
    before = tmp_path / "before"
    recorded = {
        "run_dir": f"{before}/runs/a",
        "data_dir": f"{before}/photos",
        "hierarchy": f"{before}/parents.csv",
        "train_file": "tfds:glue/sst2:train",
        "test_file": f"{before}/runs/a/test.tsv",
        "init_from": f"{before}/runs/b",
    }
    (tmp_path / "now" / "runs" / "a").mkdir(parents=True)
    run_dir = tmp_path / "now" / "runs" / "a"
    assert run_files.moved_data(recorded, run_dir) == {}  # nothing is there
    for name in ("photos", "parents.csv", "runs/a/test.tsv", "runs/b"):
        (tmp_path / "now" / name).mkdir()
    photos = {"data_dir": f"{tmp_path}/now/photos"}
    photos["hierarchy"] = f"{tmp_path}/now/parents.csv"
    texts = {"test_file": f"{tmp_path}/now/runs/a/test.tsv"}
    assert run_files.moved_data(recorded, run_dir) == photos | texts
    for name in photos.values():  # the former paths exist
        pathlib.Path(name.replace("/now/", "/before/")).mkdir(parents=True)
    assert run_files.moved_data(recorded, run_dir) == texts
    for path in ("runs/a", "gs://bucket/a"):
        other = recorded | {"run_dir": path}
        assert run_files.moved_data(other, run_dir) == {}
    assert run_files.moved_data(recorded, "gs://bucket/a") == {}


def test_a_run_records_its_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("runs/a", "./runs/a/", f"{tmp_path}/runs/a"):
        run = run_files.RunDirectory(path)
        run.create(config.PretrainSettings(path), ("cat", "dog"))
        assert run.flags()["run_dir"] == f"{tmp_path}/runs/a"
