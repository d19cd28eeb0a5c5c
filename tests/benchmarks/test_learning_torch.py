"""Our weights in a peer's network, and both gradients, where PyTorch is.

The peer is a stand-in of the same names and shapes: its gradients are those of
the real one only if every weight arrives at its place.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

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
from supcon_tf.benchmarks import step_torch

class SupConLoss:
    base_temperature = 0.07

    def __init__(self, temperature):
        self.temperature = temperature

    def __call__(self, projections, labels):
        loss = step_torch.supcon_loss(projections, labels, self.temperature)
        return loss / self.base_temperature
""",
    "util.py": """
import torch

def set_optimizer(options, network):
    return torch.optim.SGD(network.parameters(), lr=options.learning_rate)
""",
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Of a network that is narrow, and a peer in a folder."""
    import sys

    from supcon_tf.benchmarks import learning_point

    for name, text in PEER.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("losses", "util", "networks", "networks.resnet_big"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return learning_point.Work(
        None, str(tmp_path), 4, 4, 32, 0.125, 0.05, 1e-4, 0.1, 0, 1
    )


def test_the_peer_starts_with_our_weights_and_has_our_gradients(work):
    from supcon_tf import data
    from supcon_tf.benchmarks import learning_point, learning_torch

    train = data.load("digits", "train")
    ours = learning_point.make_ours(work, train)
    # Gamma 0 hides what the branches do.
    for variable in ours.trainable_variables:
        if "gamma" in variable.name:
            variable.assign(np.linspace(0.5, 1.5, variable.shape[0]))
    batches = learning_point.our_batches(work, train)
    learner = learning_torch.same_start(work, ours, batches)
    views, labels = next(batches)
    represented = learner.represent(views[:, 0])
    expected = ours.encoder.predict_on_batch(views[:, 0])
    np.testing.assert_allclose(represented, expected, rtol=1e-3, atol=1e-3)
    errors = learner.compare_gradients(views, labels)
    # A weight at a wrong place gives 1 or so; ReLUs that flip gave 0.01.
    assert errors["ours_whole"] < 0.05 and errors["theirs_whole"] < 0.05
    # The comparison trains nothing; a step does.
    np.testing.assert_array_equal(learner.represent(views[:, 0]), represented)
    loss = learner.train(views, labels, 0.05)
    own = ours.train_on_batch(views, labels, return_dict=True)  # at rate 0
    assert loss == pytest.approx(own["loss"] / 0.1, rel=1e-3)
    assert np.abs(learner.represent(views[:, 0]) - represented).max() > 0
