"""The training step beside the same network in PyTorch.

  python benchmarks/step.py --architectures=resnet18 --supcontrast_path=FILE

A ResNet with the CIFAR stem and a projection head, on views in memory: `ours`
and `ours_bfloat16` (mixed_bfloat16) from bytes, as `fit` does; `torch_nchw`,
`torch_channels_last`, `torch_compiled` (the same by torch.compile) and
`torch_channels_last_bf16` (autocast) from normalised floats, where torchvision
is installed. With it, the defaults take half an hour. `plain_keras` is a
network of keras.applications with a head, as its user writes it; ours is the
same in SupConModel:

  python benchmarks/step.py --architectures=keras:MobileNetV2 --image_size=96 \
    --implementations=ours,plain_keras

Memory against the batch, whole and in chunks of 64 images:

  python benchmarks/step.py --batch_sizes=64,256,1024 --chunk_size=64
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, measuring, results
from supcon_tf import exceptions, settings

_RATE, _MOMENTUM, _DECAY = 0.05, 0.9, 1e-4
_PLAIN = "plain_keras"
_KERAS = ("keras:MobileNetV2", "keras:EfficientNetV2B0", "keras:ResNet50")
_TORCH = (
    "torch_nchw",
    "torch_channels_last",
    "torch_compiled",
    "torch_channels_last_bf16",
)


@dataclasses.dataclass(frozen=True)
class StepBench(harness.Bench):
    """Settings of benchmarks/step.py."""

    NEEDS = {
        **dict.fromkeys(("ours", "ours_bfloat16", _PLAIN), ()),
        **dict.fromkeys(_TORCH, ("torch", "torchvision")),
    }
    AXES = {"architecture": "architectures", "batch_size": "batch_sizes"}
    COLUMNS = (
        results.Column(
            "views/s",
            lambda p: p["views"] / p["seconds"],
            ".1f",
            plotted=True,
        ),
        results.Column("ms", lambda p: 1e3 * p["seconds"], ".1f"),
        results.SPREAD,
        results.MEMORY,
        results.Column("loss", lambda p: p["loss"], ".4f"),
        results.Column("parameters", lambda p: p["parameters"], ",.0f"),
    )
    PEERS = ("ours", "torch_nchw")
    AGREEING = {"parameters": 0.0}

    run_dir: str = "runs/bench_step"
    architectures: tuple[str, ...] = settings.setting(
        ("resnet18", "resnet50"),
        choices=("resnet18", "resnet34", "resnet50", *_KERAS),
    )
    """Encoders."""
    batch_sizes: tuple[int, ...] = (64,)
    """Images per step."""
    supcontrast_path: str | None = settings.setting(None, path=True)
    """The loss of torch: SupContrast's losses.py, else a plain one."""
    image_size: int = settings.setting(32, at_least=8)
    """Side of a view, pixels."""
    views: int = settings.setting(2, at_least=1)
    """Views per image."""
    chunk_size: int = settings.setting(0, at_least=0)
    """Also measure ours in chunks of so many images."""
    steps: int = settings.setting(5, at_least=1)
    """Timed steps per process."""
    max_memory_gb: float = settings.setting(8.0, above=0)
    """Skip jobs that may need more, by what others needed."""
    temperature: float = settings.setting(0.1, above=0)
    """Temperature tau."""
    classes: int = settings.setting(10, at_least=1)
    """Number of classes."""
    seed: int = settings.setting(0, at_least=0)
    """Seed of data and weights."""

    def _check(self) -> None:
        chunk_size = self.chunk_size or 1
        exceptions.require(
            not any(size % chunk_size for size in self.batch_sizes),
            f"--chunk_size must divide --batch_sizes, {self.batch_sizes}",
            chunk_size,
        )

    def jobs(self, names: list[str]) -> list[dict]:
        """Ours at once, and in chunks."""
        jobs = []
        for job in super().jobs(names):
            name, batch = job["implementation"], job["batch_size"]
            by_keras = job["architecture"] in _KERAS
            if name in _TORCH and by_keras or name == _PLAIN and not by_keras:
                continue  # of each network, PyTorch or Keras has the peer
            sizes = {batch}
            if name not in (_PLAIN, *_TORCH) and self.chunk_size:
                sizes.add(self.chunk_size)
            for size in sorted(sizes, reverse=True):
                part = {"chunks": batch // size, "at_once": size}
                label = name if size == batch else f"{name}, {size} at once"
                jobs.append(job | part | {"label": label})
        return jobs

    def expected_gb(self, job: dict, points: list) -> float:
        """Memory that grows with the images that pass the encoder at once."""
        peaks = [
            (point["job"]["at_once"], point["peak_mb"])
            for point in points
            if "peak_mb" in point
            and point["job"]["architecture"] == job["architecture"]
            and point["job"]["implementation"] == job["implementation"]
        ]
        images, peak_mb = max(peaks, default=(1, 0.0))
        return 1e-3 * peak_mb * job["at_once"] / images


def measure(job: measuring.Job) -> dict[str, float]:
    """Time and loss of a step, memory since before the network was made."""
    generator = np.random.default_rng(job.seed)
    shape = (job.batch_size, job.views, job.image_size, job.image_size, 3)
    views = generator.integers(0, 256, shape, np.uint8)
    labels = generator.integers(0, job.classes, job.batch_size, np.int32)
    # Imported before memory is measured.
    if job.implementation in _TORCH:
        measuring.import_torch(job.threads)
        import torchvision  # noqa: F401
    else:
        measuring.import_tensorflow(job.threads)
        from supcon_tf import losses, models, training  # noqa: F401
    memory = measuring.reset_peak_mb()
    make_step = torch_step if job.implementation in _TORCH else our_step
    step, parameters = make_step(job, views, labels)
    counts = {"views": job.batch_size * job.views, "parameters": parameters}
    return measuring.measure_training(step, job.steps, memory) | counts


def our_step(
    job: measuring.Job, views: np.ndarray, labels: np.ndarray
) -> tuple[Callable[[], float], int]:
    """What `fit` calls, compiled as by tools/pretrain.py; its parameters."""
    from supcon_tf import losses, models, training
    from supcon_tf.keras_2 import keras

    if job.implementation == "ours_bfloat16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    keras.utils.set_random_seed(job.seed)
    if job.implementation == _PLAIN:
        model = plain_model(job.architecture, views.shape[1:])
    else:
        encoder = (
            models.named_encoder(job.architecture, job.image_size)
            if job.architecture in _KERAS
            else models.Encoder(job.architecture, "cifar")
        )
        model = models.SupConModel(
            encoder,
            models.ProjectionHead(),
            gradient_cache_chunks=job.chunks,
        )
        model.build((None, *views.shape[1:]))
    model.compile(
        training.SGD(_RATE, _MOMENTUM, l2=_DECAY),
        losses.SupConLoss(job.temperature),
        losses.diagnostics(),
    )
    step = measuring.keras_step(model, (views, labels))
    return step, sum(w.shape.num_elements() for w in model.trainable_variables)


def plain_model(architecture: str, shape: tuple[int, ...]) -> object:
    """Views [V, H, W, 3] to projections, in layers of Keras alone."""
    import tensorflow as tf

    from supcon_tf.keras_2 import keras

    name = architecture.partition(":")[2]
    network = getattr(keras.applications, name)(
        include_top=False, weights=None, input_shape=(None, None, 3)
    )
    layers = keras.layers
    unit = layers.UnitNormalization
    inputs = keras.Input(shape)
    images = tf.reshape(inputs, [-1, *shape[1:]])
    images = tf.cast(images, tf.float32)  # [batch * V, H, W, 3]
    if name == "MobileNetV2":
        images = layers.Rescaling(1 / 127.5, -1)(images)
    if name == "ResNet50":  # BGR, less the means of ImageNet
        images = keras.applications.resnet.preprocess_input(images)
    pooled = unit()(layers.GlobalAveragePooling2D()(network(images)))
    hidden = layers.Dense(2048, "relu")(pooled)
    projections = unit()(layers.Dense(128, use_bias=False)(hidden))
    return keras.Model(inputs, tf.reshape(projections, [-1, shape[0], 128]))


def make_network(architecture: str) -> object:
    """Ours in PyTorch, parameter by parameter, with other initial values."""
    import torchvision
    from torch import nn

    class Unit(nn.Module):
        def forward(self, rows: object) -> object:
            return nn.functional.normalize(rows.float(), dim=1)

    encoder = torchvision.models.get_model(architecture, weights=None)
    head = nn.Linear(encoder.fc.in_features, 2048)
    encoder.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    encoder.maxpool = encoder.fc = nn.Identity()
    for module in encoder.modules():
        module.inplace = False  # of a ReLU, as in SupContrast's
    projection = nn.Linear(2048, 128, bias=False)
    return nn.Sequential(encoder, Unit(), head, nn.ReLU(), projection, Unit())


def torch_step(
    job: measuring.Job, views: np.ndarray, labels: np.ndarray
) -> tuple[Callable[[], float], int]:
    """The same in PyTorch: NCHW as it is published, NHWC, in bfloat16."""
    import torch

    torch.manual_seed(job.seed)
    network = make_network(job.architecture)
    images = torch.from_numpy(views).flatten(0, 1).permute(0, 3, 1, 2)
    images = (images.float() / 255 - 0.5) / 0.5  # [M, 3, size, size]
    is_nchw = job.implementation == "torch_nchw"
    layout = torch.contiguous_format if is_nchw else torch.channels_last
    device = measuring.torch_device()
    network.to(device, memory_format=layout)
    images = images.to(device).contiguous(memory_format=layout)
    targets = torch.from_numpy(labels).long().to(device)
    criterion = functools.partial(plain_loss, tau=job.temperature)
    if job.supcontrast_path:
        criterion = measuring.load_file(job.supcontrast_path).SupConLoss(
            temperature=job.temperature, base_temperature=1.0
        )
    weights = list(network.parameters())
    optimizer = torch.optim.SGD(weights, _RATE, _MOMENTUM, weight_decay=_DECAY)
    bfloat16 = job.implementation.endswith("bf16")
    if job.implementation == "torch_compiled":
        network = torch.compile(network)

    def step() -> float:
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            projections = network(images)  # [M, 128]
        loss = criterion(projections.unflatten(0, views.shape[:2]), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, sum(weight.numel() for weight in weights)


def plain_loss(projections: object, labels: object, tau: float) -> object:
    """Eq. 2 times tau, mean, of [batch, views, dim] and [batch] int64."""
    z = projections.flatten(0, 1)  # [M, dim]
    labels = labels.repeat_interleave(projections.shape[1])  # [M]
    positive = (labels[:, None] == labels).float().fill_diagonal_(0)  # [M, M]
    logits = z @ z.T / tau
    # [M] the logarithm of the sum over the contrasts
    denominator = logits.clone().fill_diagonal_(-math.inf).logsumexp(1)
    losses = (positive * (denominator[:, None] - logits)).sum(1)
    return tau * (losses / positive.sum(1).clamp(min=1)).mean()


if __name__ == "__main__":
    harness.main(StepBench)
