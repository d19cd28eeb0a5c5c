"""Ours learns; a stand-in for the peer starts with our weights."""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
import pytest

from benchmarks import harness, learning, results

ROOT = pathlib.Path(__file__).parent.parent.parent
PEER = {
    "networks/resnet_big.py": """
from torch import nn
from torchvision.models import resnet

BasicBlock, model_dict = resnet.BasicBlock, {}

class Encoder(resnet.ResNet):
    def __setattr__(self, name, value):
        super().__setattr__(name.replace("in_planes", "inplanes"), value)

def resnet18():
    encoder = Encoder(BasicBlock, [2, 2, 2, 2])
    encoder.maxpool = encoder.fc = nn.Identity()
    return encoder

class SupConResNet(nn.Module):
    def __init__(self, name):
        super().__init__()
        made, dim = model_dict[name]
        self.encoder = made()
        last = nn.Linear(dim, 128)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), last)

    def forward(self, x):
        return nn.functional.normalize(self.head(self.encoder(x)), dim=1)
""",
    "util.py": """
import torch

def set_optimizer(options, network):
    return torch.optim.SGD(network.parameters(), lr=options.learning_rate)
""",
}


def test_the_peer_starts_with_our_weights_and_has_our_gradients(
    supcontrast, monkeypatch
):
    pytest.importorskip("torchvision")
    from benchmarks import supcontrast as peers
    from supcon_tf import data

    for name, text in PEER.items():
        file = supcontrast / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("losses", "util", "networks", "networks.resnet_big"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    train = data.load("digits", "train")
    job = argparse.Namespace(
        **{"implementation": "supcontrast", "peer_path": str(supcontrast)},
        **{"batch_size": 32, "width": 0.125, "temperature": 0.1, "seed": 0},
        **{"learning_rate": 0.05, "weight_decay": 1e-4},
    )
    ours = learning.Ours(job, train)
    for variable in ours.model.trainable_variables:
        if "gamma" in variable.name:
            variable.assign(np.linspace(0.5, 1.5, variable.shape[0]))
    peer = peers.SupContrast(job, train, ours)
    views, labels = next(peer.batches)
    represented = peer.represent(views[:, 0])
    expected = ours.represent(views[:, 0])
    np.testing.assert_allclose(represented, expected, rtol=1e-3, atol=1e-3)
    errors = peer.gradient_errors(views, labels)
    # A weight at a wrong place gives 1 or so; ReLUs that flip gave 0.01.
    assert errors["ours_whole"] < 0.05 and errors["theirs_whole"] < 0.05
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


def test_the_documents_numbers_are_gone_on_from(tmp_path, monkeypatch):
    """The table of docs/reproduction/, without a training."""
    text = (ROOT / "docs" / "reproduction" / "bench_learning.json").read_text()
    (tmp_path / "bench_learning.json").write_text(text)
    monkeypatch.setattr(harness, "choose", lambda b: (b.implementations, []))
    monkeypatch.delattr(harness, "run")
    bench = learning.LearningBench(
        run_dir=str(tmp_path),
        data_dir="DIR",
        supcontrast_path="FOLDER",
        implementations=("ours_zero_init", "supcontrast_zero_init"),
        threads=1,
    )
    written = harness.measure_all(bench)
    assert written["points"] == [
        point
        for point in json.loads(text)["points"]
        if point["job"]["implementation"] in bench.implementations
    ]
    assert [
        [row[title] for title in ("k-NN", "least", "most")]
        for row in written["table"]
        if row["case"] == "step 2000"
    ] == [["0.529", "0.523", "0.539"], ["0.530", "0.520", "0.535"]]
    assert written["disagreements"] == []
    text = results.describe(bench, written)
    assert text.count("gradients off float64, seed ") == 6


@pytest.mark.slow
def test_ours_is_tested_as_it_learns(measure):
    text, written = measure(
        "learning",
        **{"implementations": ("ours",), "seeds": 1, "steps": 25},
        **{"knn_every": 15, "batch_size": 32, "width": 0.125},
        learning_rate=0.01,
    )
    first, last = written["points"][0]["curve"]
    assert (first["step"], last["step"]) == (15, 25)
    # Chance is 0.1, and log(63).
    assert last["knn"] > 0.2
    assert first["loss"] == pytest.approx(math.log(63), rel=0.1)
    assert "| step 25 | ours | 0." in text
