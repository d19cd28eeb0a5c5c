"""SupContrast's own code in training: its network, loss and optimizer.

Needs PyTorch and the folder of HobbitLong/SupContrast, of which nothing is
copied here. Its encoder gets fewer channels; all else is as published.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import torch
from torch import nn

from supcon_tf import data, models
from supcon_tf.benchmarks import learning_point

_CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
_CIFAR_STD = (0.2023, 0.1994, 0.2010)
_BATCH_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


class Peer:
    """SupContrast's network, loss and optimizer.

    Args:
      work: what is trained.
      mean: of pixels in 0..1, by channel.
      std: likewise.
    """

    def __init__(
        self,
        work: learning_point.Work,
        mean: tuple[float, ...] = (0.5, 0.5, 0.5),
        std: tuple[float, ...] = (0.5, 0.5, 0.5),
    ):
        if work.peer_path not in sys.path:
            sys.path.insert(0, work.peer_path)
        networks = importlib.import_module("networks.resnet_big")
        torch.manual_seed(work.seed)
        self.network = _make_network(networks, work.width)
        self.network.to(memory_format=torch.channels_last)  # faster, no more
        self.criterion = importlib.import_module("losses").SupConLoss(
            temperature=work.temperature
        )
        options = argparse.Namespace(
            learning_rate=work.learning_rate,
            momentum=learning_point.MOMENTUM,
            weight_decay=work.weight_decay,
        )
        self.optimizer = importlib.import_module("util").set_optimizer(
            options, self.network
        )
        # The loss comes multiplied by this.
        self.scale = (
            self.criterion.temperature / self.criterion.base_temperature
        )
        self._mean, self._std = np.float32(mean), np.float32(std)

    def pixels(self, images: np.ndarray) -> torch.Tensor:
        """uint8 [images, size, size, 3] to [images, 3, size, size] float32."""
        normalised = (images / np.float32(255) - self._mean) / self._std
        return torch.from_numpy(normalised).permute(0, 3, 1, 2)

    def views(self, images: np.ndarray) -> torch.Tensor:
        """[batch, 2, size, size, 3] uint8 to what `loss` takes."""
        rows = images.reshape(-1, *images.shape[2:])
        return self.pixels(rows).unflatten(0, images.shape[:2])

    def loss(self, views: torch.Tensor, labels: np.ndarray) -> torch.Tensor:
        """Its loss of [batch, 2, 3, size, size] views, as in its `train`."""
        projections = self.network(torch.cat(torch.unbind(views, dim=1)))
        pairs = torch.stack(projections.split(len(labels)), dim=1)
        return self.criterion(pairs, torch.tensor(labels))

    def step(
        self, views: torch.Tensor, labels: np.ndarray, rate: float
    ) -> float:
        """Trains one step; the loss without its multiple."""
        self.network.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.loss(views, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item() / self.scale

    def represent(self, images: np.ndarray) -> np.ndarray:
        """[images, size, size, 3] uint8 to [images, dim] float32."""
        self.network.eval()
        with torch.no_grad():
            return self.network.encoder(self.pixels(images)).numpy()


def same_start(
    work: learning_point.Work,
    ours: models.SupConModel,
    batches: Iterator[learning_point.Batch],
) -> learning_point.Learner:
    """SupContrast's training from our initial weights, on our views."""
    peer = Peer(work)
    with torch.no_grad():
        for variable, tensor in pair_tensors(ours, peer.network):
            tensor.copy_(torch.from_numpy(_to_torch(variable.numpy())))
        peer.network.head[2].bias.zero_()  # ours has none

    return learning_point.Learner(
        lambda views, labels, rate: peer.step(peer.views(views), labels, rate),
        peer.represent,
        batches,
        lambda views, labels: gradient_errors(ours, peer, views, labels),
    )


def as_published(
    work: learning_point.Work, train: data.Source
) -> learning_point.Learner:
    """SupContrast's training from its own initial weights, on its own views."""
    peer = Peer(work, _CIFAR_MEAN, _CIFAR_STD)
    return learning_point.Learner(
        lambda views, labels, rate: peer.step(
            torch.from_numpy(views), labels, rate
        ),
        peer.represent,
        _published_batches(work, train.image_size),
    )


def pair_tensors(
    ours: models.SupConModel, theirs: nn.Module
) -> list[tuple[tf.Variable, torch.Tensor]]:
    """Our variables and the tensors of the peer that are the same.

    Its last bias is left out, which our head does not have.
    """
    resnet, encoder = ours.encoder.stack, theirs.encoder
    layers = [(resnet.stem_conv, encoder.conv1, encoder.bn1)]
    blocks = [
        block
        for group in (
            encoder.layer1,
            encoder.layer2,
            encoder.layer3,
            encoder.layer4,
        )
        for block in group
    ]
    for own, block in zip(resnet.blocks, blocks, strict=True):
        first, second = own.branch
        layers.append((first, block.conv1, block.bn1))
        layers.append((second, block.conv2, block.bn2))
        if own.shortcut is not None:
            layers.append((own.shortcut, *block.shortcut))
    pairs = []
    for own, convolution, norm in layers:
        pairs.append((own.conv.kernel, convolution.weight))
        for name, their_name in _BATCH_NORM.items():
            pairs.append((getattr(own.bn, name), getattr(norm, their_name)))
    head = ours.projection_head
    pairs += [
        (head.hidden[0].kernel, theirs.head[0].weight),
        (head.hidden[0].bias, theirs.head[0].bias),
        (head.projection.kernel, theirs.head[2].weight),
    ]
    return pairs


def gradient_errors(
    ours: models.SupConModel,
    peer: Peer,
    views: np.ndarray,
    labels: np.ndarray,
) -> dict[str, float]:
    """How far both gradients of a batch are from the peer's in float64.

    All at the peer's weights but for its last bias, which is 0. Nothing is
    trained; `peer.network` is as before.

    Returns:
      ||gradient - float64|| / ||float64||, largest of all tensors: `ours`,
      `theirs`; of all tensors as one vector: `ours_whole`, `theirs_whole`.
    """
    state = copy.deepcopy(peer.network.state_dict())
    with torch.no_grad():
        peer.network.head[2].bias.zero_()
    for variable, tensor in pair_tensors(ours, peer.network):
        variable.assign(_from_torch(tensor.detach().numpy()))
    pairs = [
        pair for pair in pair_tensors(ours, peer.network) if pair[0].trainable
    ]

    def differentiate(dtype: torch.dtype) -> list[np.ndarray]:
        peer.network.to(dtype).train()
        peer.network.load_state_dict(state)
        with torch.no_grad():
            peer.network.head[2].bias.zero_()
        peer.optimizer.zero_grad()
        peer.loss(peer.views(views).to(dtype), labels).backward()
        return [_from_torch(tensor.grad.numpy()) for _, tensor in pairs]

    exact = differentiate(torch.float64)
    theirs = differentiate(torch.float32)
    peer.network.load_state_dict(state)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(ours.loss(labels, ours(views, training=True)))
    own = [
        gradient.numpy() / learning_point.BASE_TEMPERATURE
        for gradient in tape.gradient(loss, [v for v, _ in pairs])
    ]
    return {
        "ours": _largest_error(own, exact),
        "theirs": _largest_error(theirs, exact),
        "ours_whole": _largest_error([_flat(own)], [_flat(exact)]),
        "theirs_whole": _largest_error([_flat(theirs)], [_flat(exact)]),
    }


def _largest_error(
    gradients: list[np.ndarray], exact: list[np.ndarray]
) -> float:
    """The largest ||g - e|| / ||e||; of tensors whose e is 0, ||g||."""
    norm = np.linalg.norm
    return max(
        float(norm(g - e) / (norm(e) or 1.0))
        for g, e in zip(gradients, exact, strict=True)
    )


def _flat(tensors: list[np.ndarray]) -> np.ndarray:
    """All numbers of several tensors."""
    return np.concatenate([tensor.ravel() for tensor in tensors])


def _make_network(networks: object, width: float) -> nn.Module:
    """SupConResNet on a ResNet-18 whose channels are `width` times as many."""

    def narrow() -> nn.Module:
        encoder = networks.resnet18()
        encoder.in_planes = channels = round(64 * width)
        encoder.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        encoder.bn1 = nn.BatchNorm2d(channels)
        for group in range(4):
            layer = encoder._make_layer(
                networks.BasicBlock,
                channels * 2**group,
                num_blocks=2,
                stride=2 if group else 1,
            )
            setattr(encoder, f"layer{group + 1}", layer)
        for module in encoder.modules():
            if isinstance(module, nn.Conv2d):  # as its __init__ does
                nn.init.kaiming_normal_(
                    module.weight, mode="fan_out", nonlinearity="relu"
                )
        return encoder

    networks.model_dict["narrow"] = [narrow, round(512 * width)]
    return networks.SupConResNet(name="narrow")


def _published_batches(
    work: learning_point.Work, size: int
) -> Iterator[learning_point.Batch]:
    """What its loader makes: [batch, 2, 3, size, size] float32 views."""
    if importlib.util.find_spec("tensorboard_logger") is None:
        # Its script imports it; its loader does not use it.
        sys.modules["tensorboard_logger"] = types.ModuleType("stand-in")
    loader = importlib.import_module("main_supcon").set_loader(
        argparse.Namespace(
            dataset="path",
            data_folder=f"{work.data_dir}/train",
            mean=str(_CIFAR_MEAN),
            std=str(_CIFAR_STD),
            size=size,
            batch_size=work.batch_size,
            num_workers=0,
        )
    )
    while True:
        for views, labels in loader:
            yield torch.stack(views, dim=1).numpy(), labels.numpy()


def _to_torch(value: np.ndarray) -> np.ndarray:
    """[h, w, in, out] to [out, in, h, w], [in, out] to [out, in]."""
    return np.ascontiguousarray(
        value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
    )


def _from_torch(value: np.ndarray) -> np.ndarray:
    """The other way."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T
