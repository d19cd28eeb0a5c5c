"""SupContrast's own code in training: its network, loss and optimizer.

Needs PyTorch and the folder of HobbitLong/SupContrast, of which nothing is
copied here. Its encoder gets fewer channels; all else is as published.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import sys
import types
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import torch
from torch import nn

from benchmarks import learning, measuring
from supcon_tf import data

_CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # mean, deviation


class SupContrast:
    """What `learning.Ours` is, from our weights and views or as published."""

    def __init__(
        self, job: measuring.Job, train: data.Source, ours: learning.Ours
    ):
        if job.peer_path not in sys.path:
            sys.path.insert(0, job.peer_path)
        torch.manual_seed(job.seed)
        self.network = _make_network(job.width)
        self.network.to(memory_format=torch.channels_last)  # faster, no more
        self._criterion = importlib.import_module("losses").SupConLoss(
            temperature=job.temperature
        )
        options = argparse.Namespace(
            learning_rate=job.learning_rate,
            momentum=learning.MOMENTUM,
            weight_decay=job.weight_decay,
        )
        util = importlib.import_module("util")
        self._optimizer = util.set_optimizer(options, self.network)
        self._published = job.implementation == "supcontrast_published"
        mean, deviation = _CIFAR if self._published else (0.5, 0.5)
        self._mean, self._deviation = np.float32(mean), np.float32(deviation)
        if self._published:
            self.batches = _published_batches(job, train.image_size)
            return
        self._ours, self.batches = ours.model, ours.batches
        with torch.no_grad():
            for variable, weight in self._pairs():
                weight.copy_(_to_torch(variable.numpy()))
            self.network.head[2].bias.zero_()  # ours has none

    def train(
        self, views: np.ndarray, labels: np.ndarray, rate: float
    ) -> float:
        """One step; the loss over tau."""
        self.network.train()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = self._loss(self.network, views, labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        scale = self._criterion.temperature / self._criterion.base_temperature
        return loss.item() / scale

    def represent(self, images: np.ndarray) -> np.ndarray:
        """[images, size, size, 3] uint8 to [images, dim] float32."""
        self.network.eval()
        with torch.no_grad():
            return self.network.encoder(self._pixels(images)).numpy()

    def gradient_errors(
        self, views: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """||gradient - float64|| / ||float64|| of both, at the peer's weights.

        The largest of all tensors: `ours`, `theirs`; of all tensors as one
        vector: `ours_whole`, `theirs_whole`. Its last bias, which ours has not,
        is taken to be 0.
        """

        def differentiate(dtype: torch.dtype) -> list[np.ndarray]:
            network = copy.deepcopy(self.network).to(dtype).train()
            network.head[2].bias.data.zero_()
            self._loss(network, views, labels).backward()
            return [_to_ours(w.grad) for w in list(network.parameters())[:-1]]

        exact, theirs = map(differentiate, (torch.float64, torch.float32))
        for variable, weight in self._pairs():
            variable.assign(_to_ours(weight.detach()))
        with tf.GradientTape() as tape:
            losses = self._ours.loss(labels, self._ours(views, training=True))
            loss = tf.reduce_mean(losses) / learning.BASE_TEMPERATURE
        ours = tape.gradient(loss, self._ours.trainable_variables)
        errors, sizes = {}, np.array(list(map(np.linalg.norm, exact)))
        for name, gradients in (("ours", ours), ("theirs", theirs)):
            pairs = zip(gradients, exact, strict=True)
            off = np.array([np.linalg.norm(g - e) for g, e in pairs])
            # Of a tensor whose gradient is 0, what it is off by.
            errors[name] = float(np.max(off / np.where(sizes, sizes, 1)))
            whole = np.linalg.norm(off) / np.linalg.norm(sizes)
            errors[f"{name}_whole"] = float(whole)
        return errors

    def _pairs(self) -> list[tuple[tf.Variable, torch.Tensor]]:
        """Our weights and its own, in one order, but for its last bias."""
        weights = list(self.network.parameters())[:-1]
        return list(zip(self._ours.trainable_variables, weights, strict=True))

    def _pixels(self, images: np.ndarray) -> torch.Tensor:
        """uint8 [images, size, size, 3] to [images, 3, size, size] float32."""
        scaled = (images / np.float32(255) - self._mean) / self._deviation
        return torch.from_numpy(scaled).permute(0, 3, 1, 2)

    def _loss(
        self, network: nn.Module, views: np.ndarray, labels: np.ndarray
    ) -> torch.Tensor:
        """Its loss, as in its `train`, of views of ours or of its loader."""
        convert = torch.from_numpy if self._published else self._pixels
        images = torch.cat([convert(views[:, 0]), convert(views[:, 1])])
        projections = network(images.to(network.head[2].bias.dtype))
        pairs = torch.stack(projections.split(len(labels)), dim=1)
        return self._criterion(pairs, torch.tensor(labels))


def _make_network(width: float) -> nn.Module:
    """SupConResNet on a ResNet-18 whose channels are `width` times as many."""
    networks = importlib.import_module("networks.resnet_big")

    def narrow() -> nn.Module:
        encoder = networks.resnet18()
        encoder.in_planes = channels = round(64 * width)
        encoder.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        encoder.bn1 = nn.BatchNorm2d(channels)
        for group, stride in enumerate((1, 2, 2, 2)):
            planes = channels * 2**group
            layer = encoder._make_layer(networks.BasicBlock, planes, 2, stride)
            setattr(encoder, f"layer{group + 1}", layer)
        for module in encoder.modules():
            if isinstance(module, nn.Conv2d):  # as its __init__ does
                init = nn.init.kaiming_normal_
                init(module.weight, mode="fan_out", nonlinearity="relu")
        return encoder

    networks.model_dict["narrow"] = [narrow, round(512 * width)]
    return networks.SupConResNet(name="narrow")


def _published_batches(job: measuring.Job, size: int) -> Iterator[tuple]:
    """[batch, 2, 3, size, size] float32 views and labels of its loader."""
    # Its script imports it; its loader does not use it.
    sys.modules["tensorboard_logger"] = types.ModuleType("stand-in")
    loader = importlib.import_module("main_supcon").set_loader(
        argparse.Namespace(
            dataset="path",
            data_folder=f"{job.data_dir}/train",
            mean=str(_CIFAR[0]),
            std=str(_CIFAR[1]),
            size=size,
            batch_size=job.batch_size,
            num_workers=0,
        )
    )
    while True:
        for views, labels in loader:
            yield torch.stack(views, dim=1).numpy(), labels.numpy()


def _to_torch(value: np.ndarray) -> torch.Tensor:
    """[h, w, in, out] to [out, in, h, w], [in, out] to [out, in]."""
    moved = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
    return torch.from_numpy(np.ascontiguousarray(moved))


def _to_ours(weight: torch.Tensor) -> np.ndarray:
    """The other way."""
    value = weight.numpy()
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T
