"""The command lines as processes, from image files to a SavedModel."""

import csv
import importlib.metadata
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import supcon_tf
from supcon_tf import config, evaluation, reports, run_files, serving, training
from supcon_tf.cli import commands
from tests import forks, python_text

ROOT = pathlib.Path(__file__).parent.parent.parent
TINY = [
    *("--architecture=vgg8", "--width=0.1", "--hidden_dims=16"),
    *("--image_size=16", "--batch_size=16", "--augmentation=identity"),
]


def run(tool, *arguments, cwd):
    """Runs a tool in a folder, in a process that is quick to start."""
    return forks.run(ROOT / "tools" / f"{tool}.py", *arguments, cwd=cwd)


def run_uninstalled(tool, *arguments, cwd):
    """The same as a shell does, after `pip install -r requirements.txt`."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    return subprocess.run(
        # -S: what is in the packages is there, what they point to is not.
        [sys.executable, "-S", ROOT / "tools" / f"{tool}.py", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(packages)},
    )


def supcon(*arguments):
    """The console script of an installation."""
    return forks.run(
        "from supcon_tf.cli import commands; commands.main()",
        *arguments,
        cwd=ROOT,
    )


def test_the_console_script_has_the_tools_as_commands():
    list_text = supcon().stdout
    for path in (ROOT / "tools").glob("*.py"):
        if path.stem != "checkout":
            assert f"\n  {path.stem} " in list_text
    help_text = supcon("evaluate", "--help").stdout
    assert "\n  supcon evaluate --run_dir=" in help_text
    assert "--knn_neighbors" in help_text
    wrong = supcon("evaluate", "--run_dir=/none", "stray")
    assert wrong.stderr == "error: arguments must be flags, got stray\n"
    unknown = supcon("train")
    assert unknown.returncode == 1 and "no command train" in unknown.stderr


@pytest.fixture(scope="module")
def command_line_run(image_folder, tmp_path_factory):
    """All tools in a row, as a user calls them, outside the repository."""
    cwd = tmp_path_factory.mktemp("elsewhere")
    data = ["--dataset=folder", f"--data_dir={image_folder}", "--epochs=1"]
    linear = ["--epochs=5", "--batch_size=16"]
    outputs = {
        "pretrain": run_uninstalled(
            "pretrain", "--run_dir=run", *data, *TINY, cwd=cwd
        )
    }
    for tool, arguments in (
        ("train_linear", [*linear, "--crop_area=", "--nohorizontal_flip"]),
        ("evaluate", []),
        ("export", []),
        ("predict", [f"{image_folder}/test"]),
    ):
        outputs[tool] = run(tool, "--run_dir=run", *arguments, cwd=cwd)
    for tool, process in outputs.items():
        assert process.returncode == 0, f"{tool}: {process.stderr[-2000:]}"
        # No line of TensorFlow's C++ log or TFA's notice.
        assert "tensorflow/core" not in process.stderr, tool
        assert "TensorFlow Addons" not in process.stderr, tool
    return cwd / "run", outputs


def test_the_run_directory_is_complete(command_line_run):
    path, _ = command_line_run
    assert {entry.name for entry in path.iterdir()} == {
        *("settings.flags", "classes.json", "images.json", "checkpoints"),
        "encoded",
        *("metrics.jsonl", "tensorboard", "linear", "export"),
    }
    for folder in (entry for entry in path.iterdir() if entry.is_dir()):
        assert folder.name in (*run_files.TAKEN_NAMES, "linear")
    assert {entry.name for entry in (path / "linear").iterdir()} == {
        *("settings.flags", "classes.json", "images.json", "checkpoints"),
        *("metrics.jsonl", "tensorboard", "evaluation.json", "report.html"),
        *("predictions.npz", "representations.npz", "samples.npz"),
    }
    assert (path / "export" / "1" / "saved_model.pb").exists()


def test_the_start_up_report_says_what_runs(command_line_run):
    _, outputs = command_line_run
    report = outputs["pretrain"].stdout
    for text in (
        f"supcon_tf {supcon_tf.__version__}, ",
        f"TensorFlow {importlib.metadata.version('tensorflow')}, Keras 2.",
        "48 train images of 3 classes, views of 16 px",
        "16 images x 2 views, 16 images per replica; 3 steps per epoch",
        "vgg8, width 0.1",
        "learning rate 0.3125 (5 per 256, linear scaling)",
        "chance level 0.3434",
        "loss/chance",
        "examples/s",
    ):
        assert text in report, text


def test_table_and_predictions_are_the_evaluation(command_line_run):
    path, outputs = command_line_run
    results = json.loads((path / "linear/evaluation.json").read_text())
    table = outputs["evaluate"].stdout
    for title, value in (
        ("linear top-1", results["linear"]["top_1"]),
        ("linear ECE", results["linear"]["ece"]),
        ("k-NN top-1", results["knn"]["top_1"]),
        ("prototype top-1", results["prototype"]["top_1"]),
    ):
        assert re.search(rf"{title} +{value:.4f}\n", table + "\n")
    rows = list(csv.DictReader(io.StringIO(outputs["predict"].stdout)))
    hits = [
        row["predicted_class"] == pathlib.Path(row["path"]).parent.name
        for row in rows
    ]
    assert len(rows) == 21
    assert sum(hits) / 21 == pytest.approx(results["linear"]["top_1"])


@pytest.mark.slow
def test_a_conversion_ends_with_its_table(copy_run, tmp_path):
    """And nothing of what the converter prints."""
    copy_run(tmp_path / "run")
    flags = "--run_dir=run", "--formats=tflite_float32"
    process = run("convert", *flags, cwd=tmp_path)
    assert [line.split()[0] for line in process.stdout.splitlines()] == [
        *("versions", "devices", "data", "encoder", "classifier"),
        *("made", "converted", "MB", "float", "tflite_float32"),
    ]
    assert process.stderr == ""


def test_every_command_calls_what_the_package_has():
    code = pathlib.Path(commands.__file__).read_text()
    assert not python_text.misfits(code)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("pretrain", ["--data_dir=/nowhere"], "/nowhere"),
        ("pretrain", ["--batch_size=2000"], "2000"),
        ("train_linear", [], "run directory of tools/pretrain"),
        ("evaluate", [], "run directory of tools/pretrain"),
        ("export", [], "run directory of tools/pretrain"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    tool, arguments, message, tmp_path
):
    process = run(tool, "--run_dir=x", *arguments, cwd=tmp_path)
    assert process.returncode == 1
    line = process.stderr.strip().splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert "Traceback" not in process.stderr
    assert not any(tmp_path.iterdir())


def test_a_file_that_is_no_image_is_named(image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "images")
    bad = tmp_path / "images" / "train" / "mid" / "zz.jpg"
    bad.write_text("this is not an image")
    arguments = ["--data_dir=images", "--run_dir=run", "--epochs=0", *TINY]
    process = run("pretrain", *arguments, cwd=tmp_path)
    assert process.returncode == 1
    assert "train/mid/zz.jpg" in process.stderr
    assert "skip_bad_images" in process.stderr
    assert not (tmp_path / "run").exists()


def test_the_demo_compares_two_runs(monkeypatch, capsys):
    """Its commands and its table, without what takes minutes."""
    pretrainings, linears, pages = [], [], []
    monkeypatch.setattr(training, "pretrain", pretrainings.append)
    monkeypatch.setattr(training, "train_linear", linears.append)
    accuracies = {"demo/supcon": 0.75, "demo/untrained": 0.25}
    monkeypatch.setattr(
        evaluation,
        "evaluate",
        lambda settings: {"linear": {"top_1": accuracies[settings.run_dir]}},
    )
    monkeypatch.setattr(serving, "export", lambda settings: settings.run_dir)
    monkeypatch.setattr(
        reports, "write_report", lambda *arguments: pages.append(arguments)
    )
    commands.demo(config.DemoSettings("demo", epochs=7))
    epochs = {part.run_dir: part.epochs for part in pretrainings}
    assert epochs == {"demo/supcon": 7, "demo/untrained": 0}
    assert [part.run_dir for part in linears] == [*epochs]
    assert all(part.overwrite for part in (*pretrainings, *linears))
    ((run_dirs, page, titles),) = pages
    assert run_dirs == ["demo/untrained", "demo/supcon"]
    assert page == "demo/report.html" and titles[1] == "SupCon"
    output = capsys.readouterr().out
    assert re.search(r"linear top-1 +0.2500 +0.7500\n", output)
    assert "\nSavedModel       demo/supcon\n" in output


@pytest.mark.slow
def test_the_demo_ends_with_its_table(tmp_path):
    process = run("demo", "--epochs=2", cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]
    table = process.stdout[process.stdout.index("360 held-out digits") :]
    rows = {line[:15].strip(): line[15:].split() for line in table.splitlines()}
    for title in ("linear top-1", "linear ECE", "k-NN top-1"):
        untrained, supcon = map(float, rows[title])
        assert 0 < untrained < 1 and 0 < supcon <= 1
    assert float(rows["k-NN top-1"][1]) > float(rows["k-NN top-1"][0])
    assert (tmp_path / "runs/demo/supcon/export/1/saved_model.pb").exists()


@pytest.mark.slow
def test_the_augmentation_is_shown(image_folder, tmp_path):
    """With every default but the images, which have no class folders."""
    photographs = image_folder / "train" / "mid"
    flags = [f"--data_dir={photographs}", "--image_size=16"]
    process = run("show_augment", "--dataset=folder", *flags, cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-2000:]
    paths = ["runs/show_augment/views.png", "runs/show_augment/operations.png"]
    assert process.stdout.splitlines() == paths
    assert "AutoGraph" not in process.stderr
    for path in paths:
        assert (tmp_path / path).read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "runs" / "show_augment").iterdir())) == 2


def test_records_have_no_validation_images(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(supcon_tf.data, "write_tfrecords", lambda *_, **__: 0)
    path, rows = tmp_path / "list.csv", "path,label,split\n"
    settings = config.MakeTfrecordsSettings(
        data_dir=str(path), run_dir=str(tmp_path), check_images=False
    )
    for split, is_noted in (("train", False), ("test", False), ("val", True)):
        (tmp_path / f"{split}.jpg").touch()
        rows += f"{split}.jpg,a,{split}\n"
        path.write_text(rows)
        if split != "train":
            commands.make_tfrecords(settings)
            noted = "note         the images of val are left out"
            assert (noted in capsys.readouterr().out) == is_noted
