"""The network in PyTorch is ours; where PyTorch is installed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50"])
def test_projections_and_loss_are_those_of_our_weights(architecture):
    from supcon_tf.benchmarks import step_torch

    generator = np.random.default_rng(0)
    views = generator.integers(0, 256, (4, 2, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 0, 2], np.int32)
    ours = models.SupConModel(
        models.Encoder(architecture, "cifar"), models.ProjectionHead()
    )
    ours.build((None, *views.shape[1:]))
    theirs = step_torch.Network(architecture)
    weights = list(theirs.parameters())
    assert len(weights) == len(ours.trainable_variables)
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
    loss = step_torch.supcon_loss(projections, torch.from_numpy(labels), 0.1)
    expected = tf.reduce_mean(losses.supcon_loss(z, labels, temperature=0.1))
    assert loss.item() == pytest.approx(float(expected), rel=1e-5)
