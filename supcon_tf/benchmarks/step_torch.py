"""Our network and its training step in PyTorch, which this module needs.

The convolutions, paddings and parameters are those of `models.ResNet` with the
CIFAR stem and of `models.ProjectionHead`; initial weights are PyTorch's own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from supcon_tf.benchmarks import libraries, step_implementations

_BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
}
_BOTTLENECKS = ("resnet50",)


class Block(nn.Module):
    """relu(shortcut(x) + branch(x)), a basic block or a bottleneck.

    Args:
      inputs: channels that come in.
      filters: inner channels; a bottleneck puts out four times as many.
      stride: of the first 3x3 convolution, pixels.
      bottleneck: 1x1, 3x3, 1x1 convolutions instead of two 3x3.
    """

    def __init__(
        self, inputs: int, filters: int, stride: int, bottleneck: bool
    ):
        super().__init__()
        self.outputs = filters * (4 if bottleneck else 1)
        if bottleneck:
            self.branch = nn.Sequential(
                _conv_bn(inputs, filters, 1),
                nn.ReLU(),
                _conv_bn(filters, filters, 3, stride),
                nn.ReLU(),
                _conv_bn(filters, self.outputs, 1),
            )
        else:
            self.branch = nn.Sequential(
                _conv_bn(inputs, filters, 3, stride),
                nn.ReLU(),
                _conv_bn(filters, filters, 3),
            )
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != self.outputs:
            self.shortcut = _conv_bn(inputs, self.outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds the branch to the shortcut; [batch, channels, height, width]."""
        return functional.relu(self.shortcut(x) + self.branch(x))


class Network(nn.Module):
    """Images to projections: encoder and head in one.

    Args:
      architecture: "resnet18", "resnet34" or "resnet50".
    """

    def __init__(self, architecture: str):
        super().__init__()
        layers, channels = [_conv_bn(3, 64, 3), nn.ReLU()], 64
        for group, count in enumerate(_BLOCKS[architecture]):
            for index in range(count):
                block = Block(
                    channels,
                    64 * 2**group,
                    stride=2 if group and not index else 1,
                    bottleneck=architecture in _BOTTLENECKS,
                )
                layers.append(block)
                channels = block.outputs
        self.stack = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Linear(channels, 2048),
            nn.ReLU(),
            nn.Linear(2048, 128, bias=False),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """[images, 3, height, width] to [images, 128], unit length."""
        representations = self.stack(images).mean(dim=(2, 3)).float()
        representations = functional.normalize(representations, dim=1)
        return functional.normalize(self.head(representations).float(), dim=1)


def supcon_loss(
    projections: torch.Tensor, labels: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Mean of Eq. 2 over anchors, times tau, with whole [M, M] matrices.

    Args:
      projections: [batch, views, dim] float32, unit length along dim.
      labels: [batch] int64.
      temperature: tau, positive.

    Returns:
      A scalar float32.

    Reference: https://arxiv.org/abs/2004.11362, Eq. 2.
    """
    z = projections.flatten(0, 1)  # [M, dim]
    labels = labels.repeat_interleave(projections.shape[1])  # [M]
    itself = torch.eye(len(z), dtype=torch.bool)
    positive = (labels[:, None] == labels) & ~itself  # [M, M]
    logits = (z @ z.T / temperature).masked_fill(itself, -torch.inf)
    log_p = logits.log_softmax(dim=1).masked_fill(~positive, 0.0)
    losses = -log_p.sum(dim=1) / positive.sum(dim=1).clamp(min=1)
    return temperature * losses.mean()


def make_step(
    work: step_implementations.Work,
    views: np.ndarray,
    labels: np.ndarray,
    channels_last: bool = False,
    bfloat16: bool = False,
) -> tuple[Callable[[], float], int]:
    """A function that trains one step, and the network's parameters.

    Args:
      work: what is trained.
      views: [batch, views, size, size, 3] uint8.
      labels: [batch] int32.
      channels_last: weights and images are NHWC in memory.
      bfloat16: the network runs under autocast to bfloat16.
    """
    torch.manual_seed(work.seed)
    network = Network(work.architecture)
    images = torch.from_numpy(views).flatten(0, 1).permute(0, 3, 1, 2)
    images = (images.float() / 255 - 0.5) / 0.5  # [M, 3, size, size]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network.to(memory_format=layout)
    images = images.contiguous(memory_format=layout)
    targets = torch.from_numpy(labels).long()
    criterion = _loss(work)
    optimizer = torch.optim.SGD(
        network.parameters(),
        step_implementations.LEARNING_RATE,
        momentum=step_implementations.MOMENTUM,
        weight_decay=step_implementations.WEIGHT_DECAY,
    )

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            projections = network(images)  # [M, 128]
        loss = criterion(projections.unflatten(0, views.shape[:2]), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, sum(weight.numel() for weight in network.parameters())


def _conv_bn(
    inputs: int, outputs: int, kernel_size: int, stride: int = 1
) -> nn.Sequential:
    """Convolution without bias, then batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(
            inputs,
            outputs,
            kernel_size,
            stride,
            padding=kernel_size // 2,
            bias=False,
        ),
        nn.BatchNorm2d(outputs),
    )


def _loss(
    work: step_implementations.Work,
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """That of the peer's file, or the plain one."""
    if work.path is not None:
        return libraries.load_file(work.path).SupConLoss(
            temperature=work.temperature, base_temperature=1.0
        )
    return lambda z, labels: supcon_loss(z, labels, work.temperature)
