"""Steps of ours and of the same network in PyTorch, where it is installed."""

from __future__ import annotations

import argparse
import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import step
from supcon_tf import losses, models
from tests import forks

ROOT = pathlib.Path(__file__).parent.parent.parent
JOB = {
    **{"implementation": "ours", "architecture": "resnet18", "chunks": 1},
    **{"batch_size": 4, "views": 3, "image_size": 8, "classes": 2, "steps": 1},
    **{"temperature": 0.1, "supcontrast_path": None, "seed": 1, "threads": 1},
}


def test_ours_is_measured_in_chunks():
    bench = step.StepBench(
        architectures=("resnet18",),
        batch_sizes=(64, 256),
        chunks=(1, 4),
        chunk_size=64,
    )
    jobs = bench.jobs(["ours", "torch_nchw"])
    assert [(job["label"], job["chunks"], job["at_once"]) for job in jobs] == [
        ("ours", 1, 64),
        ("ours, 16 at once", 4, 16),
        ("torch_nchw", 1, 64),
        ("ours", 1, 256),
        ("ours, 64 at once", 4, 64),
        ("torch_nchw", 1, 256),
    ]
    points = [
        {"job": jobs[0], "peak_mb": 2000.0},
        {"job": jobs[1], "peak_mb": 900.0},
        {"job": jobs[2], "error": "failed: gone"},
    ]
    # Memory grows with the images that pass the encoder at a time.
    expected = [bench.expected_gb(job, points) for job in jobs[3:]]
    assert expected == [8.0, 2.0, 0.0]
    other = jobs[3] | {"architecture": "resnet50"}
    assert bench.expected_gb(other, points) == 0.0


def test_every_implementation_has_its_step(monkeypatch, here):
    """Networks are not made: what each is given is what is looked at."""
    made, results = {}, iter([9.0, 9.0, 0.5] * 2 + [9.0, 9.0, math.nan])

    def make(library):
        def make_step(job, views, labels):
            assert views.shape == (4, 3, 8, 8, 3) and views.dtype == np.uint8
            assert labels.shape == (4,) and set(labels) <= {0, 1}
            made[job.implementation] = library, views.sum()
            return lambda: next(results), 42

        return make_step

    monkeypatch.setattr(step, "our_step", make("tensorflow"))
    monkeypatch.setattr(step, "torch_step", make("torch"))
    for name in ("ours", "ours_bfloat16"):
        job = argparse.Namespace(**JOB | {"implementation": name})
        measured = step.measure(job)
        assert measured["loss"] == 0.5 and measured["views"] == 12
    assert len(set(made.values())) == 1
    with pytest.raises(RuntimeError, match="the loss is nan"):
        step.measure(argparse.Namespace(**JOB))


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50"])
def test_the_network_in_pytorch_is_ours(architecture):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    generator = np.random.default_rng(0)
    views = generator.integers(0, 256, (4, 2, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 0, 2], np.int32)
    ours = models.SupConModel(
        models.Encoder(architecture, "cifar"), models.ProjectionHead()
    )
    ours.build((None, *views.shape[1:]))
    theirs = step.make_network(architecture)
    weights = list(theirs.parameters())
    for variable, weight in zip(ours.trainable_variables, weights, strict=True):
        if "gamma" in variable.name:  # Some start at 0, and hide a branch.
            variable.assign(generator.uniform(0.5, 1.5, variable.shape))
        value = variable.numpy()
        value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
        assert value.shape == tuple(weight.shape), variable.name
        weight.data = torch.from_numpy(np.ascontiguousarray(value))
    z = ours(views, training=True)
    images = torch.from_numpy(views).flatten(0, 1).permute(0, 3, 1, 2)
    projections = theirs(2 * images.float() / 255 - 1).unflatten(0, (4, 2))
    np.testing.assert_allclose(
        projections.detach().numpy(), z.numpy(), atol=1e-5
    )
    loss = step.plain_loss(projections, torch.from_numpy(labels), 0.1)
    expected = tf.reduce_mean(losses.supcon_loss(z, labels, temperature=0.1))
    assert loss.item() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", step._TORCH)
def test_pytorch_trains(name, here):
    pytest.importorskip("torchvision")
    job = argparse.Namespace(**JOB | {"implementation": name})
    measured = step.measure(job)
    assert measured["parameters"] == 11_168_832 + 513 * 2048 + 2048 * 128
    assert 0 <= measured["loss"] < 0.1 * math.log(11)


def test_the_training_step_is_measured(tmp_path):
    done = forks.run(
        ROOT / "benchmarks" / "step.py",
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
    assert point["job"]["chunks"] == 2 and point["seconds"] > 0
    # He et al.'s 11,168,832 with this stem, and the head's 2048 and 128.
    assert point["parameters"] == 11_168_832 + 513 * 2048 + 2048 * 128
    # Equal projections have tau * log 7 = 0.195; these have been trained.
    assert 0 <= point["loss"] < 0.195
    assert point["peak_mb"] > 4e-6 * 3 * point["parameters"]
    assert "batch_size 4 | ours, 2 at once | " in done.stdout
    png = (written / "bench_step.png").read_bytes()
    assert png.startswith(b"\x89PNG")
