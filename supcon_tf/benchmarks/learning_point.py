"""Trains one network and tests it as it learns, in a process of its own.

  python -m supcon_tf.benchmarks.learning_point '{"implementation": ...}'

Started by `benchmarks.learning` through `benchmarks.processes`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from supcon_tf.benchmarks import libraries, processes

if TYPE_CHECKING:
    from supcon_tf import data, models

Batch = tuple[np.ndarray, np.ndarray]  # views, labels

# SupContrast multiplies the loss by tau / 0.07, ours by tau.
BASE_TEMPERATURE = 0.07
MOMENTUM = 0.9
_EVALUATION_BATCH = 500


@dataclasses.dataclass(frozen=True)
class Work:
    """What every implementation is given.

    Attributes:
      data_dir: folder with train/ and test/; None for the digits.
      peer_path: folder of SupContrast's code.
      steps: of the optimizer.
      knn_every: steps between two tests.
      batch_size: images of a step, in two views.
      width: of the ResNet-18, as a share.
      learning_rate: the peak, for SupContrast's multiple of the loss.
      weight_decay: likewise.
      temperature: tau.
      seed: of weights, order and views.
      threads: of either library.
    """

    data_dir: str | None
    peer_path: str | None
    steps: int
    knn_every: int
    batch_size: int
    width: float
    learning_rate: float
    weight_decay: float
    temperature: float
    seed: int
    threads: int

    def rates(self) -> list[float]:
        """The learning rate of each step, of SupContrast's optimizer."""
        from supcon_tf import training

        schedule = training.WarmupCosine(
            self.learning_rate, self.steps, self.steps // 10
        )
        return [float(schedule(step)) for step in range(self.steps)]


@dataclasses.dataclass(frozen=True)
class Learner:
    """A network in training.

    Attributes:
      train: one step of a batch at a learning rate of SupContrast's; returns
        the loss over tau.
      represent: [images, size, size, 3] uint8 to [images, dim] float32.
      batches: what it trains on: of ours [batch, 2, size, size, 3] uint8 views
        and [batch] int32 labels.
      compare_gradients: errors of its gradients of a batch and of ours; None
        where nothing is compared.
    """

    train: Callable[[np.ndarray, np.ndarray, float], float]
    represent: Callable[[np.ndarray], np.ndarray]
    batches: Iterator[Batch]
    compare_gradients: (
        Callable[[np.ndarray, np.ndarray], dict[str, float]] | None
    ) = None


def measure(job: processes.Point) -> processes.Point:
    """The curve of one network.

    Args:
      job: `implementation`; all others are fields of `Work`.

    Returns:
      `curve`, a dict per test with `step`, `knn` (top-1 of the test images by
      the training images) and `loss` (over tau, mean since the last);
      `views_sha256`, of all views and labels that it was trained on;
      `gradients`, what `compare_gradients` says before the first step and the
      last, if it is there; `seconds`; `libraries`.
    """
    job = dict(job)
    name = job.pop("implementation")
    work = Work(**job)
    libraries.import_tensorflow(work.threads)
    if name != "ours":
        libraries.import_torch(work.threads)
    train, test = (_load(work, split) for split in ("train", "test"))
    learner = _make_learner(name, work, train)
    digest, curve, losses = hashlib.sha256(), [], []
    before = time.perf_counter()
    gradients = []
    for step, rate in enumerate(work.rates(), start=1):
        views, labels = next(learner.batches)
        digest.update(views.tobytes() + labels.tobytes())
        if learner.compare_gradients and step in (1, work.steps):
            gradients.append(learner.compare_gradients(views, labels))
        losses.append(learner.train(views, labels, rate))
        if step % work.knn_every == 0 or step == work.steps:
            curve.append(
                {
                    "step": step,
                    "knn": _knn_accuracy(learner, train, test),
                    "loss": float(np.mean(losses)),
                }
            )
            losses.clear()
    return {
        "curve": curve,
        "views_sha256": digest.hexdigest(),
        "gradients": gradients,
        "seconds": time.perf_counter() - before,
        "libraries": libraries.versions("tensorflow", "torch", "torchvision"),
    }


def make_ours(work: Work, train: data.Source) -> models.SupConModel:
    """Our model with what SupContrast's has: widths, no norm before the head.

    Compiled with the learning rate 0, which `Learner.train` sets.
    """
    import tensorflow as tf

    from supcon_tf import losses, models, training

    tf.keras.utils.set_random_seed(work.seed)
    encoder = models.Encoder("resnet18", "cifar", work.width, normalize=False)
    model = models.SupConModel(
        encoder,
        models.ProjectionHead(hidden_dims=(encoder.representation_dim,)),
    )
    size = train.image_size
    model.build((None, 2, size, size, 3))
    decay = work.weight_decay * BASE_TEMPERATURE
    model.compile(
        training.SGD(0.0, MOMENTUM, l2=decay),
        losses.SupConLoss(work.temperature),
    )
    return model


def our_batches(work: Work, train: data.Source) -> Iterator[Batch]:
    """Our views, with SupContrast's augmentation for CIFAR-10."""
    from supcon_tf import augment, data

    policy = augment.SimAugment(
        strength=0.5, warp_probability=0.0, blur_probability=0.0
    )
    views = data.make_views(
        train,
        work.batch_size,
        augmentation=policy,
        seed=work.seed,
        crop_area=(0.2, 1.0),
    )
    return views.as_numpy_iterator()


def _make_learner(name: str, work: Work, train: data.Source) -> Learner:
    """A network with its initial weights."""
    model = make_ours(work, train)
    if name == "ours":
        return _learner_of_ours(work, model, train)
    from supcon_tf.benchmarks import learning_torch

    if name == "supcontrast":
        return learning_torch.same_start(work, model, our_batches(work, train))
    return learning_torch.as_published(work, train)


def _learner_of_ours(
    work: Work, model: models.SupConModel, train: data.Source
) -> Learner:
    """Ours, as `fit` trains it."""

    def step(views: np.ndarray, labels: np.ndarray, rate: float) -> float:
        model.optimizer.learning_rate.assign(rate / BASE_TEMPERATURE)
        logs = model.train_on_batch(views, labels, return_dict=True)
        return float(logs["loss"]) / work.temperature

    return Learner(
        step,
        lambda images: model.encoder.predict_on_batch(images),
        our_batches(work, train),
    )


def _load(work: Work, split: str) -> data.Source:
    """One split."""
    from supcon_tf import data

    kind = "folder" if work.data_dir else "digits"
    return data.load(kind, split, work.data_dir)


def _knn_accuracy(
    learner: Learner, train: data.Source, test: data.Source
) -> float:
    """Top-1 of the test images among the training images, as in training."""
    from supcon_tf import data, measures

    def encode(source: data.Source) -> tuple[np.ndarray, np.ndarray]:
        pairs = [
            (learner.represent(images), labels)
            for images, labels in data.make_examples(
                source, _EVALUATION_BATCH, image_size=source.image_size
            ).as_numpy_iterator()
        ]
        rows, labels = map(np.concatenate, zip(*pairs, strict=True))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels

    bank, bank_labels = encode(train)
    queries, labels = encode(test)
    votes = measures.knn_predict(
        queries,
        bank,
        bank_labels,
        num_classes=len(train.class_names),
        k=200,
        temperature=0.07,
    )
    return float(measures.top_k_accuracy(votes, labels, 1))


if __name__ == "__main__":
    processes.answer(measure)
