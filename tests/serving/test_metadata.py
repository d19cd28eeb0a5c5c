"""metadata.json says what the export is, and lists its files."""

from __future__ import annotations

import datetime
import json
import pathlib
import shutil
import subprocess

import pytest
import tensorflow as tf

from supcon_tf import config, run_files
from supcon_tf.clients import paths
from supcon_tf.disk import files, origins
from supcon_tf.serving import metadata
from supcon_tf.training import console, runs

REPRESENT = {
    "inputs": {"image_bytes": tf.TensorSpec([None], tf.string)},
    "outputs": {"representation": tf.TensorSpec([None, 26], tf.float32)},
}
NAMES = ("dunkel", "größer", "hell")
SCORES = {"top_1": 0.75, "top_5": 1.0, "ece": 0.1, "nll": 0.5, "brier": 0.3}
EVALUATION = {
    "dataset": "folder",
    "test_examples": 12,
    "linear": {**SCORES, "per_class_recall": [1.0, 0.5, 0.75]},
    "prototype": {"top_1": 0.5, "top_5": 1.0},
}


@pytest.fixture
def run(tmp_path, tiny_settings):
    """A run directory that was never trained."""
    run_directory = run_files.RunDirectory(tmp_path / "run")
    run_directory.create(
        tiny_settings(run_directory.path, image_size=224), NAMES
    )
    encoder = run_directory.checkpoints / "step-00000012"
    encoder.mkdir(parents=True)
    files.write_json(encoder / "progress.json", {})
    stage = run_directory.stage("probe")
    stage.create(
        config.LinearSettings(str(run_directory.path), name="probe"), NAMES
    )
    linear = stage.checkpoints / "step-00000003"
    linear.mkdir(parents=True)
    made_of = {"encoder": origins.identity(encoder)}
    files.write_json(linear / "progress.json", {"made_of": made_of})
    return run_directory


@pytest.fixture
def directory(run, small_run):
    """A SavedModel, complete but for its metadata."""
    return shutil.copytree(small_run / "export" / "1", run.export / "1")


def identity(run, step):
    return origins.identity(run_files.path_of(run.checkpoints, step))


@pytest.fixture
def evaluation(run):
    """The evaluation of both checkpoints."""
    made_of = {
        "encoder": identity(run, 12),
        "classifier": identity(run.stage("probe"), 3),
    }
    return EVALUATION | {"made_of": made_of}


def written(directory, run, classifier, **more):
    more["linear_stage"] = "probe"
    settings = config.ExportSettings(str(run.path), **more)
    opened = runs.Run.open(run.path, "probe")
    signatures = {"represent": REPRESENT}
    metadata.write_metadata(
        directory, opened, settings, classifier, 1234, signatures
    )
    return json.loads((directory / metadata.FILE).read_text("utf-8"))


@pytest.mark.parametrize("stage", ["probe", ""])  # or, older, the run
def test_a_linear_classifier(directory, run, evaluation, stage):
    files.write_json(run.stage(stage).evaluation_file, evaluation)
    record = written(directory, run, "linear")
    assert record["versions"] == console.versions()
    time = datetime.datetime.fromisoformat(record["time"])
    assert time.utcoffset() == datetime.timedelta(0)
    assert record["run"] == "run"
    assert record["checkpoints"] == {
        part: {
            "name": f"step-{step:08}",
            "step": step,
            "sha256": evaluation["made_of"][part]["sha256"],
        }
        for part, step in (("encoder", 12), ("classifier", 3))
    }
    assert record["settings"]["encoder"]["crop_area"] == [0.5, 1.0]
    assert record["settings"]["encoder"]["architecture"] == "vgg8"
    assert record["settings"]["classifier"]["name"] == "probe"
    assert record["settings"]["export"]["max_batch_size"] == 0
    assert "resume" not in record["settings"]["encoder"]
    assert record["metrics"] == {
        "dataset": "folder",
        "test_examples": 12,
        "linear": SCORES,
        "prototype": {"top_1": 0.5},
    }
    assert record["classes"] == list(NAMES)
    assert (record["top_k"], record["max_pixels"]) == (3, 2**26)
    assert "short side to 256 px" in record["preprocessing"]
    assert "centre 224 x 224 px" in record["preprocessing"]
    assert record["parameters"] == 1234
    assert record["signatures"] == {
        "represent": {
            "inputs": {"image_bytes": {"dtype": "string", "shape": [None]}},
            "outputs": {
                "representation": {"dtype": "float32", "shape": [None, 26]}
            },
        }
    }


def test_an_encoder_alone_has_no_classes(directory, run, monkeypatch):
    monkeypatch.chdir(run.path)
    record = written(directory, run_files.RunDirectory("."), "none")
    assert record["run"] == "run"
    assert (record["classes"], record["top_k"]) == ([], 0)
    assert set(record["checkpoints"]) == {"encoder"}
    assert record["metrics"] is None
    named = written(directory, run, "none", prototypes=True, top_k=2)
    assert (named["classes"], named["top_k"]) == (list(NAMES), 2)


def test_metrics_are_those_of_the_checkpoint(
    directory, run, evaluation, capsys
):
    files.write_json(run.stage("probe").evaluation_file, evaluation)
    other = {"checkpoint": "step-00000001", "sha256": "0" * 64}
    files.write_json(
        run.evaluation_file, evaluation | {"made_of": {"encoder": other}}
    )
    # A classifier of stage 1 is in the checkpoint of its encoder.
    record = written(directory, run, "pretrained")
    checkpoints = record["checkpoints"]
    assert checkpoints["classifier"] == checkpoints["encoder"]
    assert record["settings"]["classifier"] == record["settings"]["encoder"]
    assert set(record["metrics"]) == {"dataset", "test_examples", "prototype"}
    assert "metrics " not in capsys.readouterr().out
    newer = run.checkpoints / "step-00000024"
    newer.mkdir()
    files.write_json(newer / "progress.json", {})
    record = written(directory, run, "none")
    assert record["checkpoints"]["encoder"]["step"] == 24
    assert record["metrics"] is None
    line = f"none: {run.evaluation_file} is of other checkpoints"
    assert line in capsys.readouterr().out


def test_every_other_file_is_listed_as_clients_check_it(directory, run):
    listed = written(directory, run, "none")["files"]
    names = [
        path.relative_to(directory).as_posix()
        for path in pathlib.Path(directory).rglob("*")
        if path.is_file() and path.name != "metadata.json"
    ]
    assert list(listed) == sorted(names)
    assert "variables/variables.index" in listed
    paths.check_files(directory)
    (directory / "variables" / "variables.index").unlink()
    with pytest.raises(ValueError, match="variables.index is missing"):
        paths.check_files(directory)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_revision_is_that_of_the_code(tmp_path, monkeypatch):
    package = tmp_path / "supcon_tf"
    package.mkdir()
    code = package / "__init__.py"
    code.write_text("")
    assert metadata.git_revision(package) is None, "no checkout"

    def git(*arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test"]
        command = ["git", *identity, *arguments]
        return subprocess.check_output(command, cwd=tmp_path, text=True).strip()

    git("init")
    git("commit", "--allow-empty", "-m", "another project")
    assert metadata.git_revision(package) is None, "not of this checkout"
    git("add", ".")
    git("commit", "-m", "code")
    revision = git("rev-parse", "HEAD")
    git("tag", "-a", "v1", "-m", "v1")
    assert metadata.git_revision(package) == revision
    code.write_text("changed = True\n")
    assert metadata.git_revision(package) == f"{revision}-dirty"
    monkeypatch.setenv("PATH", "")
    assert metadata.git_revision(package) is None, "no git"
