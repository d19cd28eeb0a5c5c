"""The command lines as real processes, from image files to a SavedModel."""

from __future__ import annotations

import csv
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
from tests import forks

ROOT = pathlib.Path(__file__).parent.parent.parent
TINY = [
    "--architecture=vgg8",
    "--width=0.05",
    "--hidden_dims=16",
    "--image_size=16",
    "--batch_size=16",
    "--epochs=2",
    "--warmup_epochs=1",
    "--warp_probability=0",
]


def run(tool, *arguments, cwd, root=ROOT):
    """Runs a tool in a folder, in a process that is quick to start."""
    return forks.run(root / "tools" / f"{tool}.py", *arguments, cwd=cwd)


def run_afresh(tool, *arguments, cwd):
    """The same, as a shell does."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / f"{tool}.py"), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def supcon(*arguments):
    """The console script of an installation."""
    code = "import sys; from supcon_tf import commands; commands.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def test_the_console_script_has_the_tools_as_commands():
    listed = supcon().stdout
    for path in (ROOT / "tools").glob("*.py"):
        if path.stem not in ("checkout", "demo") and "bench" not in path.stem:
            assert f"\n  {path.stem} " in listed
    told = supcon("evaluate", "--help").stdout
    assert "\n  supcon evaluate --run_dir=" in told and "tools/" not in told
    assert "--knn_neighbors" in told
    wrong = supcon("evaluate", "--run_dir=/none", "stray")
    assert wrong.stderr == "error: arguments must be flags, got stray\n"
    unknown = supcon("train")
    assert unknown.returncode == 1 and "no command train" in unknown.stderr


@pytest.fixture(scope="module")
def command_line_run(image_folder, tmp_path_factory):
    """All tools in a row, as a user calls them, outside the repository."""
    cwd = tmp_path_factory.mktemp("elsewhere")
    data = ["--dataset=folder", f"--data_dir={image_folder}"]
    outputs = {
        "pretrain": run_afresh(
            "pretrain", "--run_dir=run", *data, *TINY, cwd=cwd
        ),
        "train_linear": run(
            "train_linear",
            "--run_dir=run",
            "--epochs=5",
            "--batch_size=16",
            cwd=cwd,
        ),
        "evaluate": run("evaluate", "--run_dir=run", cwd=cwd),
        "export": run("export", "--run_dir=run", cwd=cwd),
        "predict": run(
            "predict", "--run_dir=run", f"{image_folder}/test", cwd=cwd
        ),
    }
    for tool, done in outputs.items():
        assert done.returncode == 0, f"{tool}: {done.stderr[-2000:]}"
    return cwd / "run", outputs


def test_the_run_directory_is_complete(command_line_run):
    path, _ = command_line_run
    assert {entry.name for entry in path.iterdir()} == {
        "settings.flags",
        "classes.json",
        "checkpoints",
        "metrics.jsonl",
        "tensorboard",
        "linear",
        "evaluation.json",
        "predictions.npz",
        "images.json",
        "representations.npz",
        "samples.npz",
        "report.html",
        "export",
    }
    assert (path / "export" / "1" / "saved_model.pb").exists()


def test_the_start_up_report_says_what_runs(command_line_run):
    _, outputs = command_line_run
    report = outputs["pretrain"].stdout
    for text in (
        "TensorFlow 2.15.1",
        "48 train images of 3 classes, views of 16 px",
        "16 images x 2 views, 16 images per replica; 3 steps per epoch",
        "vgg8, width 0.05",
        "learning rate 1.875 (30 per 256, linear scaling)",
        "chance level 0.3434",
        "loss/chance",
        "images/s",
    ):
        assert text in report, text


def test_a_run_is_silent_but_for_its_report(command_line_run):
    """No line of TensorFlow's C++ log or TFA's notice among the output."""
    _, outputs = command_line_run
    for tool, done in outputs.items():
        assert "tensorflow/core" not in done.stderr, tool
        assert "TensorFlow Addons" not in done.stderr, tool


def test_the_table_is_the_evaluation(command_line_run):
    path, outputs = command_line_run
    results = json.loads((path / "evaluation.json").read_text())
    table = outputs["evaluate"].stdout
    for title, value in (
        ("linear top-1", results["linear"]["top_1"]),
        ("linear ECE", results["linear"]["ece"]),
        ("k-NN top-1", results["knn"]["top_1"]),
        ("prototype top-1", results["prototype"]["top_1"]),
    ):
        assert re.search(rf"{title} +{value:.4f}\n", table + "\n")


def test_predictions_are_as_accurate_as_the_evaluation(command_line_run):
    path, outputs = command_line_run
    rows = list(csv.DictReader(io.StringIO(outputs["predict"].stdout)))
    right = [
        row["predicted_class"] == pathlib.Path(row["path"]).parent.name
        for row in rows
    ]
    results = json.loads((path / "evaluation.json").read_text())
    assert len(rows) == 21
    assert sum(right) / 21 == pytest.approx(results["linear"]["top_1"])


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "pretrain",
            ["--dataset=folder", "--data_dir=/nowhere", "--run_dir=x"],
            "/nowhere",
        ),
        ("pretrain", ["--dataset=mnist", "--run_dir=x"], "mnist"),
        ("pretrain", ["--batch_size=2000", "--run_dir=x"], "2000"),
        ("train_linear", ["--run_dir=x"], "run directory of tools/pretrain"),
        ("evaluate", ["--run_dir=x"], "run directory of tools/pretrain"),
        ("export", ["--run_dir=x"], "run directory of tools/pretrain"),
        ("bench_loss", ["--official_path=no.py"], "must be a Python file"),
        ("bench_input", ["--data_dir=/nowhere"], "--data_dir must be a folder"),
        (
            "bench_serving",
            ["--data_dir=/nowhere"],
            "--data_dir must be a folder",
        ),
        ("bench_step", ["--supcontrast_path=no.py"], "must be a Python file"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    tool, arguments, message, tmp_path
):
    done = run(tool, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert "Traceback" not in done.stderr
    assert not any(tmp_path.iterdir())


def test_a_file_that_is_no_image_is_named_or_skipped(image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "images")
    bad = tmp_path / "images" / "train" / "mid" / "zz.jpg"
    bad.write_text("this is not an image")
    arguments = [
        "--dataset=folder",
        "--data_dir=images",
        "--run_dir=run",
        "--epochs=0",
        "--augmentation=identity",
        *[flag for flag in TINY if "epochs" not in flag],
    ]
    done = run("pretrain", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "train/mid/zz.jpg" in done.stderr
    assert "skip_bad_images" in done.stderr
    assert not (tmp_path / "run").exists()
    done = run("pretrain", *arguments, "--skip_bad_images", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "48 train images" in done.stdout
    assert "1 bad files skipped" in done.stdout


def smaller_demo(folder):
    """A copy of the demo whose presets are quick to trace."""
    shutil.copytree(ROOT / "flags", folder / "flags")
    with open(folder / "flags/supcon_digits_resnet18.flags", "a") as preset:
        preset.write("--architecture=vgg8\n--augmentation=identity\n")
    (folder / "tools").mkdir()
    for name in ("demo.py", "checkout.py"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    return folder


@pytest.mark.parametrize(
    "size", ["small", pytest.param("full", marks=pytest.mark.slow)]
)
def test_the_demo_ends_with_its_table(size, tmp_path):
    root = smaller_demo(tmp_path / "demo") if size == "small" else ROOT
    done = run("demo", "--epochs=2", cwd=tmp_path, root=root)
    assert done.returncode == 0, done.stderr[-2000:]
    table = done.stdout[done.stdout.index("360 held-out digits") :]
    rows = {line[:15].strip(): line[15:].split() for line in table.splitlines()}
    for title in ("linear top-1", "linear ECE", "k-NN top-1"):
        untrained, supcon = map(float, rows[title])
        assert 0 < untrained < 1 and 0 < supcon <= 1
    assert float(rows["k-NN top-1"][1]) > float(rows["k-NN top-1"][0])
    assert (tmp_path / "runs/demo/supcon/export/1/saved_model.pb").exists()


PEER = """
import tensorflow as tf

def contrastive_loss(features, labels, temperature):
    if features.shape[0] == 64:
        raise RuntimeError("this peer has had enough")
    rows = tf.reshape(tf.transpose(features, [1, 0, 2]), [-1, 8])
    same = tf.tile(tf.matmul(labels, labels, transpose_b=True), [2, 2])
    others = 1 - tf.eye(rows.shape[0])
    logits = tf.matmul(rows, rows, transpose_b=True) / temperature
    exp = tf.exp(logits) * others
    log_p = logits - tf.math.log(tf.reduce_sum(exp, 1, keepdims=True))
    positive = same * others
    loss = -tf.reduce_sum(positive * log_p, 1) / tf.reduce_sum(positive, 1)
    return temperature * tf.reduce_mean(tf.reshape(loss, [2, -1]), 0)
"""


def test_the_loss_is_measured_beside_a_peer(tmp_path):
    """At 64 rows both agree; at 128, 64 samples, the peer raises."""
    (tmp_path / "peer.py").write_text(PEER)
    done = run(
        "bench_loss",
        "--rows=64,128",
        "--implementations=tiled,official",
        "--official_path=peer.py",
        "--rounds=1",
        "--seconds=0.05",
        "--dim=8",
        "--classes=5",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = tmp_path / "runs" / "bench_loss"
    table = done.stdout
    results = json.loads((written / "bench_loss.json").read_text())
    points = {(p["rows"], p["implementation"]): p for p in results["points"]}
    assert len(points) == 4
    failed = points.pop((128, "official"))
    assert failed["status"] == "failed"
    assert "this peer has had enough" in failed["reason"]
    for point in points.values():
        assert point["status"] == "measured", point
        assert point["ms"] > 0 and point["steps"] >= 3
        assert point["time_ratio"] > 0
        assert point["peak_mb"] >= 0
    assert points[64, "tiled"]["time_ratio"] == 1
    assert results["disagreements"] == []
    assert re.search(r"128  official +failed: .*had enough", table)
    assert re.search(r"  64  official +\d+\.\d+ +\d+\.\d", table)
    assert "agree within 0.0001" in table
    png = (written / "bench_loss.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_the_input_pipeline_is_measured(image_folder, tmp_path):
    done = run(
        "bench_input",
        f"--data_dir={image_folder}",
        "--sizes=8",
        "--policies=identity",
        "--inputs=jpeg",
        "--implementations=ours",
        "--batch_size=16",
        "--rounds=1",
        "--seconds=0",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = tmp_path / "runs" / "bench_input"
    results = json.loads((written / "bench_input.json").read_text())
    # Half of the train and test images are JPEG files, the others PNG.
    assert results["images"] == f"33 JPEG files of {image_folder}"
    (point,) = results["points"]
    assert point["status"] == "measured", point
    assert point["images_per_second"] > 0 and point["batches"] == 8
    assert point["libraries"] == {"tensorflow": "2.15.1"}
    assert re.search(r"8 px from JPEG, identity +\d+ +1.00\n", done.stdout)
    png = (written / "bench_input.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_the_training_step_is_measured(tmp_path):
    done = run(
        "bench_step",
        "--architectures=resnet18",
        "--implementations=ours",
        "--batch_sizes=4",
        "--image_size=8",
        "--chunks=2",
        "--rounds=1",
        "--steps=1",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = tmp_path / "runs" / "bench_step"
    results = json.loads((written / "bench_step.json").read_text())
    (point,) = results["points"]
    assert point["status"] == "measured", point
    assert point["chunks"] == 2 and point["views_per_second"] > 0
    # He et al.'s 11,168,832 with this stem, and the head's 2048 and 128.
    assert point["parameters"] == 11_168_832 + 513 * 2048 + 2048 * 128
    # Equal projections have tau * log 7 = 0.195; these have been trained.
    assert 0 <= point["loss"] < 0.195
    assert point["peak_mb"] > 4e-6 * 3 * point["parameters"]
    assert "resnet18, 4 images, ours in 2 chunks  " in done.stdout
    png = (written / "bench_step.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_the_augmentation_is_shown(image_folder, tmp_path):
    """With every default but the images, which have no class folders."""
    photographs = image_folder / "train" / "mid"
    done = run(
        "show_augment",
        "--dataset=folder",
        f"--data_dir={photographs}",
        "--image_size=16",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    paths = ["runs/show_augment/views.png", "runs/show_augment/operations.png"]
    assert done.stdout.splitlines() == paths
    assert "AutoGraph" not in done.stderr
    for path in paths:
        assert (tmp_path / path).read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "runs" / "show_augment").iterdir())) == 2


def test_a_tool_runs_where_the_package_is_not_installed(tmp_path):
    """As after `pip install -r requirements.txt`, from any folder."""
    packages = [path for path in sys.path if path.endswith("-packages")]
    done = subprocess.run(
        # -S: what is in the packages is there, what they point to is not.
        [sys.executable, "-S", str(ROOT / "tools/pretrain.py")]
        + ["--run_dir=run", "--augmentation=identity", *TINY, "--epochs=0"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(packages)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"supcon_tf {supcon_tf.__version__}, " in done.stdout
