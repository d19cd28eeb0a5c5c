"""Ours learns; the peer, where PyTorch is, starts with our weights.

The peer is a stand-in of the same names and shapes: its gradients are those of
the real one only if every weight arrives at its place.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import pathlib
import sys

import numpy as np
import pytest

from benchmarks import harness, learning, results
from tests import forks

ROOT = pathlib.Path(__file__).parent.parent.parent
JOB = {
    **{"implementation": "ours", "data_dir": None, "peer_path": None},
    **{"steps": 25, "knn_every": 15, "batch_size": 32, "width": 0.125},
    **{"learning_rate": 0.01, "weight_decay": 1e-4, "temperature": 0.1},
    **{"seed": 0, "threads": 1},
}
PEER = {
    "networks/resnet_big.py": """
import torch
from torch import nn
from torch.nn import functional as F

def conv(a, b, size, stride=1):
    return nn.Conv2d(a, b, size, stride, size // 2, bias=False)

class BasicBlock(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(a, b, 3, stride), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = conv(b, b, 3), nn.BatchNorm2d(b)
        self.shortcut = nn.Sequential()
        if stride > 1:
            self.shortcut = nn.Sequential(
                conv(a, b, 1, stride), nn.BatchNorm2d(b)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(self.shortcut(x) + y)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = self.bn1 = None

    def _make_layer(self, block, planes, num_blocks, stride):
        blocks = [block(self.in_planes, planes, stride)]
        self.in_planes = planes
        blocks += [block(planes, planes, 1) for _ in range(num_blocks - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return x.mean(dim=(2, 3))

resnet18, model_dict = Encoder, {}

class SupConResNet(nn.Module):
    def __init__(self, name):
        super().__init__()
        made, dim = model_dict[name]
        self.encoder = made()
        self.head = nn.Sequential(
            nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 128)
        )

    def forward(self, x):
        return F.normalize(self.head(self.encoder(x)), dim=1)
""",
    "losses.py": """
from benchmarks import step

class SupConLoss:
    base_temperature = 0.07

    def __init__(self, temperature):
        self.temperature = temperature

    def __call__(self, projections, labels):
        loss = step.plain_loss(projections, labels, self.temperature)
        return loss / self.base_temperature
""",
    "util.py": """
import torch

def set_optimizer(options, network):
    return torch.optim.SGD(network.parameters(), lr=options.learning_rate)
""",
}


def test_ours_is_tested_as_it_learns(here):
    measured = learning.measure(argparse.Namespace(**JOB))
    assert [test["step"] for test in measured["curve"]] == [15, 25]
    # Chance is 0.1, and log(63).
    assert measured["curve"][-1]["knn"] > 0.2
    assert measured["curve"][0]["loss"] == pytest.approx(math.log(63), rel=0.1)
    assert measured["gradients"] == []
    # The same views, whatever is trained on them.
    job = argparse.Namespace(**JOB | {"learning_rate": 0.001})
    another = learning.measure(job)
    assert another["views_sha256"] == measured["views_sha256"]
    assert another["curve"] != measured["curve"]


def test_the_peer_starts_with_our_weights_and_has_our_gradients(
    tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    from benchmarks import supcontrast
    from supcon_tf import data

    for name, text in PEER.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("losses", "util", "networks", "networks.resnet_big"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    train = data.load("digits", "train")
    job = argparse.Namespace(
        **JOB | {"implementation": "supcontrast", "peer_path": str(tmp_path)}
    )
    ours = learning.Ours(job, train)
    # Gamma 0 hides what the branches do.
    for variable in ours.model.trainable_variables:
        if "gamma" in variable.name:
            variable.assign(np.linspace(0.5, 1.5, variable.shape[0]))
    peer = supcontrast.SupContrast(job, train, ours)
    views, labels = next(peer.batches)
    represented = peer.represent(views[:, 0])
    expected = ours.represent(views[:, 0])
    np.testing.assert_allclose(represented, expected, rtol=1e-3, atol=1e-3)
    errors = peer.gradient_errors(views, labels)
    # A weight at a wrong place gives 1 or so; ReLUs that flip gave 0.01.
    assert errors["ours_whole"] < 0.05 and errors["theirs_whole"] < 0.05
    assert errors["ours"] >= errors["ours_whole"] / 10
    # The comparison trains nothing; a step does.
    np.testing.assert_array_equal(peer.represent(views[:, 0]), represented)
    loss = peer.train(views, labels, 0.05)
    assert loss == pytest.approx(ours.train(views, labels, 0.0), rel=1e-3)
    assert np.abs(peer.represent(views[:, 0]) - represented).max() > 0


def test_a_gap_beyond_the_seeds_and_other_views_are_told():
    def point(name, seed, knn, digest="same"):
        return {
            "job": {"implementation": name, "seed": seed},
            "curve": [{"step": 600, "knn": knn, "loss": 5.0}],
            "views_sha256": digest,
        }

    points = [
        point("ours", 0, 0.50),
        point("ours", 1, 0.52),
        point("supcontrast", 0, 0.53),
        point("supcontrast", 1, 0.54, "another"),
        point("supcontrast_published", 1, 0.9, "its own"),
    ]
    bench = learning.LearningBench(seeds=2)
    assert bench.disagreements(points) == [
        "seed 1: the views were not the same",
        "step 600: k-NN is 0.025 apart, seeds 0.020",
    ]
    # One seed has no spread, and what has failed no curve.
    assert bench.disagreements([points[0], points[2]]) == []
    failed = {"job": points[0]["job"], "error": "failed: no more memory"}
    assert bench.disagreements([failed]) == []


def test_what_was_measured_for_the_documents_is_kept(
    tmp_path, monkeypatch, capsys
):
    """The table of docs/RESULTS.md, without a training."""
    text = (ROOT / "docs" / "bench_learning.json").read_text()
    (tmp_path / "FOLDER").mkdir()
    (tmp_path / "bench_learning.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "choose", lambda b: (b.implementations, []))
    monkeypatch.delattr(harness, "run")
    bench = learning.LearningBench(
        run_dir=".",
        data_dir="DIR",
        supcontrast_path="FOLDER",
        implementations=("ours", "supcontrast"),
        threads=1,
    )
    written = harness.measure_all(bench)
    assert written["points"] == json.loads(text)["points"]
    assert "seed 2, ours: k-NN " in capsys.readouterr().out
    rows = {(row["case"], row[""]): row for row in written["table"]}
    numbers = ("k-NN", "least", "most")
    assert [
        " ".join(rows[f"step {step}", name][number] for number in numbers)
        for step, name in itertools.product((600, 2000), bench.implementations)
    ] == [
        *("0.392 0.390 0.396", "0.391 0.387 0.394"),
        *("0.529 0.523 0.539", "0.530 0.520 0.535"),
    ]
    assert written["disagreements"] == []
    lines = results.describe(bench, written).splitlines()
    told = [line for line in lines if line.startswith("gradients off float64")]
    assert len(told) == 6 and "ours_whole " in told[0]


def test_the_training_is_measured(tmp_path):
    done = forks.run(
        ROOT / "benchmarks" / "learning.py",
        *("--implementations=ours", "--seeds=1", "--steps=2"),
        *("--batch_size=32", "--width=0.0625"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    file = tmp_path / "runs" / "bench_learning" / "bench_learning.json"
    (point,) = json.loads(file.read_text())["points"]
    assert [test["step"] for test in point["curve"]] == [2]
    assert "| step 2 | ours | 0." in done.stdout
    assert file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
