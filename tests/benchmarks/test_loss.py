"""The losses agree, here and in processes of their own."""

from __future__ import annotations

import argparse
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import harness, loss
from supcon_tf import losses
from tests import forks

ROOT = pathlib.Path(__file__).parent.parent.parent
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
TORCH_PEER = """
from benchmarks import step

class SupConLoss:
    def __init__(self, temperature, base_temperature):
        assert base_temperature == 1.0
        self.temperature = temperature

    def __call__(self, projections, labels):
        return step.plain_loss(projections, labels, self.temperature)
"""


def measure(name, tmp_path, views=2, classes=5):
    (tmp_path / "peer.py").write_text(PEER)
    (tmp_path / "torch_peer.py").write_text(TORCH_PEER)
    job = argparse.Namespace(
        implementation=name,
        rows=24,
        views=views,
        dim=8,
        classes=classes,
        temperature=0.2,
        seed=3,
        seconds=0.0,
        accuracy=True,
        threads=1,
        official_path=tmp_path / "peer.py",
        supcontrast_path=tmp_path / "torch_peer.py",
    )
    return loss.measure(job)


@pytest.mark.parametrize("name", ["looped", "dense", "official", "supcontrast"])
def test_every_loss_is_the_same(name, here, tmp_path):
    if name == "supcontrast":
        pytest.importorskip("torch")
    ours, other = (measure(of, tmp_path) for of in ("tiled", name))
    for key in loss.LossBench.AGREEING:
        assert other[key] == pytest.approx(ours[key], rel=1e-5)
    assert other["gradient_error"] < 1e-5 and other["seconds"] > 0


def test_the_floor_has_no_loss_but_all_products(here, tmp_path):
    assert measure("floor", tmp_path).keys() == {"seconds", "peak_mb"}
    z = np.random.default_rng(0).standard_normal((30, 8), np.float32) / 3
    step = loss.floor_step(z)
    np.testing.assert_allclose(step()[1], np.exp(z @ z.T) @ z, rtol=1e-4)


# With one view and many classes some anchors have no positives.
@pytest.mark.parametrize(("views", "classes"), [(2, 4), (3, 2), (1, 30)])
def test_the_oracle_is_the_gradient_of_the_loss(views, classes):
    generator = np.random.default_rng(3)
    z = generator.standard_normal((24 // views, views, 8), np.float32)
    z = tf.constant(z / np.linalg.norm(z, axis=2, keepdims=True))
    labels = generator.integers(0, classes, len(z), np.int32)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = tf.reduce_mean(losses.supcon_loss(z, labels, temperature=0.2))
    oracle = loss.oracle_gradient(z.numpy(), labels, 0.2)
    np.testing.assert_allclose(tape.gradient(value, z), oracle, atol=1e-7)


def test_what_does_not_fit_is_skipped(tmp_path, capsys):
    bench = loss.LossBench(
        str(tmp_path), rows=(131072,), implementations=("dense", "floor")
    )
    points = harness.measure_all(bench)["points"]
    assert len(points) == 2
    assert points[0]["error"] == "skipped: about 825 GB, see --max_memory_gb"
    assert "rows 131072, dense: skipped" in capsys.readouterr().out


def test_the_loss_is_measured_beside_a_peer(tmp_path):
    """At 64 rows both agree; at 128, 64 samples, the peer raises."""
    (tmp_path / "peer.py").write_text(PEER)
    done = forks.run(
        ROOT / "benchmarks" / "loss.py",
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
    results = json.loads((written / "bench_loss.json").read_text())
    *measured, failed = results["points"]
    assert len(measured) == 3 and results["disagreements"] == []
    assert "this peer has had enough" in failed["error"]
    for point in measured:
        assert point["seconds"] > 0 and point["peak_mb"] >= 0
        assert point["libraries"] == {"tensorflow": tf.__version__}
    assert re.search(r"rows 128, official: failed: .*had enough", done.stdout)
    assert re.search(r"\| rows 64 \| official \| +\d+\.\d+ \|", done.stdout)
    assert "agree: loss, tangent_norm, gradient_norm" in done.stdout
    png = (written / "bench_loss.png").read_bytes()
    assert png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "argument", "message"),
    [
        ("loss", "--official_path=no.py", "must be a Python file"),
        ("step", "--supcontrast_path=no.py", "must be a Python file"),
        ("input", "--data_dir=/nowhere", "--data_dir must be a folder"),
        ("serving", "--data_dir=/nowhere", "--data_dir must be a folder"),
        ("learning", "--implementations=supcontrast", "needs --supcontrast_pa"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    name, argument, message, tmp_path
):
    done = forks.run(ROOT / f"benchmarks/{name}.py", argument, cwd=tmp_path)
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("error: ") and message in line
    assert "Traceback" not in done.stderr and not any(tmp_path.iterdir())
