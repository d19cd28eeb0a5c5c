"""What our training learns beside SupContrast's own code, on the CPU.

  python benchmarks/learning.py --data_dir=DIR --supcontrast_path=FOLDER

k-NN accuracy over steps, mean and range of the seeds: `ours`; `supcontrast`,
its network, loss and optimizer from our initial weights on our views;
`..._zero_init`, both from weights of --zero_init_residual;
`supcontrast_published`, with its own weights and views. SupContrast takes part
where PyTorch is installed. Also how far the gradients are from float64.
Trainings in bench_learning.json of --run_dir are kept. With PyTorch, the
defaults take about four hours; alone, on the digits, a few minutes:

  python benchmarks/learning.py --seeds=1 --steps=200 --knn_every=50
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import statistics
import time
from collections.abc import Callable

import checkout  # noqa: F401
import numpy as np

from benchmarks import harness, measuring, results
from supcon_tf import settings

# SupContrast multiplies the loss by tau / 0.07, ours by tau.
BASE_TEMPERATURE = 0.07
MOMENTUM = 0.9
_PATH = "--supcontrast_path"
_ZERO_INIT = "_zero_init"


def _last(name: str) -> Callable[[dict], float]:
    return lambda point: point["curve"][-1][name]


@dataclasses.dataclass(frozen=True)
class LearningBench(harness.Bench):
    """Settings of benchmarks/learning.py."""

    NEEDS = {
        "ours": (),
        "supcontrast": (_PATH, "torch"),
        "ours_zero_init": (),
        "supcontrast_zero_init": (_PATH, "torch"),
        "supcontrast_published": (_PATH, "--data_dir", "torchvision"),
    }
    AXES = {"seed": "seeds"}
    COLUMNS = (
        results.Column("k-NN", _last("knn"), ".3f", statistics.mean, True),
        results.Column("least", _last("knn"), ".3f", min),
        results.Column("most", _last("knn"), ".3f", max),
        results.Column("loss", _last("loss"), ".3f", statistics.mean, True),
    )
    LOGARITHMIC = False
    DETERMINISTIC = True

    run_dir: str = "runs/bench_learning"
    supcontrast_path: str | None = settings.setting(None, path=True)
    """Folder of HobbitLong/SupContrast, unchanged; needs PyTorch."""
    data_dir: str | None = settings.setting(None, path=True)
    """Images in train/<class>/, test/<class>/; default: the digits."""
    rounds: int = 1
    seeds: int = settings.setting(3, at_least=1)
    """Trainings of each."""
    steps: int = settings.setting(2000, at_least=1)
    """Steps of a training."""
    knn_every: int = settings.setting(200, at_least=1)
    """Steps between tests."""
    batch_size: int = settings.setting(128, at_least=2)
    """Images of a step."""
    width: float = settings.setting(0.25, above=0)
    """Share of channels."""
    learning_rate: float = settings.setting(0.0625, above=0)
    """SupContrast's at its peak; ours is / 0.07."""
    weight_decay: float = settings.setting(1e-4, at_least=0)
    """SupContrast's; ours is times 0.07."""
    temperature: float = settings.setting(0.1, above=0)
    """Temperature tau."""

    def shared(self) -> dict:
        """What every training has; its file knows the path by another name."""
        shared = super().shared()
        del shared["seeds"]
        return shared | {"peer_path": shared.pop("supcontrast_path")}

    def cases_of(self, points: list[dict]) -> dict[str, results.Case]:
        """Tests after the same number of steps, the seeds as rounds."""
        tests = [
            {"job": {"step": test["step"], "implementation": name}}
            | {"curve": [test]}
            for point in points
            for name in [point["job"]["implementation"]]
            for test in point.get("curve", ())
        ]
        return results.cases_of(["step"], tests)

    def notes(self, points: list[dict]) -> list[str]:
        """How far gradients are off float64 before the first and last step."""
        return [
            f"gradients off float64, seed {point['job']['seed']}: "
            + ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
            for point in points
            for errors in point.get("gradients", ())
        ]

    def disagreements(self, points: list[dict]) -> list[str]:
        """Other views; means of both further apart than either's seeds."""
        digests = {
            (point["job"]["seed"], point["views_sha256"])
            for point in points
            if "curve" in point
            and point["job"]["implementation"] != "supcontrast_published"
        }
        counts = collections.Counter(seed for seed, _ in sorted(digests))
        lines = [
            f"seed {seed}: the views were not the same"
            for seed, count in counts.items()
            if count > 1
        ]
        for (step, tests), start in itertools.product(
            self.cases_of(points).items(), ("", _ZERO_INIT)
        ):
            ours, theirs = (
                list(map(_last("knn"), tests.get(name + start, ())))
                for name in ("ours", "supcontrast")
            )
            if min(len(ours), len(theirs)) > 1:
                apart = abs(statistics.mean(ours) - statistics.mean(theirs))
                spread = max(max(ours) - min(ours), max(theirs) - min(theirs))
                if apart > spread:
                    lines.append(
                        f"{step}{start}: k-NN is {apart:.3f} apart, seeds "
                        f"{spread:.3f}"
                    )
        return lines


def measure(job: measuring.Job) -> dict[str, object]:
    """Trains one network; the `curve` of its tests, with losses over tau."""
    measuring.import_tensorflow(job.threads)
    from supcon_tf import data, training

    kind = "folder" if job.data_dir else "digits"
    train, test = (
        data.load(kind, split, job.data_dir) for split in ("train", "test")
    )
    learner = Ours(job, train)
    name = job.implementation.removesuffix(_ZERO_INIT)
    if name != "ours":
        measuring.import_torch(job.threads)
        from benchmarks import supcontrast

        learner = supcontrast.SupContrast(job, train, learner)
    digest, curve, losses, gradients = hashlib.sha256(), [], [], []
    before = time.perf_counter()
    schedule = training.WarmupCosine(
        job.learning_rate, job.steps, job.steps // 10
    )
    for step in range(1, job.steps + 1):
        views, labels = next(learner.batches)
        digest.update(views.tobytes() + labels.tobytes())
        if name == "supcontrast" and step in (1, job.steps):
            gradients.append(learner.gradient_errors(views, labels))
        losses.append(learner.train(views, labels, float(schedule(step - 1))))
        if step % job.knn_every == 0 or step == job.steps:
            knn = knn_accuracy(learner, train, test)
            loss = float(np.mean(losses))
            curve.append({"step": step, "knn": knn, "loss": loss})
            losses.clear()
    return {
        "curve": curve,
        "views_sha256": digest.hexdigest(),
        "gradients": gradients,
        "seconds": time.perf_counter() - before,
    }


class Ours:
    """Our network, as `fit` trains it, with SupContrast's sizes and views."""

    def __init__(self, job: measuring.Job, train: object):
        from supcon_tf import augment, data, losses, models, training
        from supcon_tf.keras_2 import keras

        keras.utils.set_random_seed(job.seed)
        encoder = models.Encoder(
            "resnet18",
            "cifar",
            job.width,
            normalize=False,
            zero_init_residual=job.implementation.endswith(_ZERO_INIT),
        )
        head = models.ProjectionHead(hidden_dims=(encoder.representation_dim,))
        self.model = models.SupConModel(encoder, head)
        self.model.build((None, 2, train.image_size, train.image_size, 3))
        decay = job.weight_decay * BASE_TEMPERATURE
        self.model.compile(
            training.SGD(0.0, MOMENTUM, l2=decay),
            losses.SupConLoss(job.temperature),
        )
        self.batches = data.make_views(
            train,
            job.batch_size,
            augmentation=augment.SimAugment(
                strength=0.5, warp_probability=0.0, blur_probability=0.0
            ),
            seed=job.seed,
            crop_area=(0.2, 1.0),
        ).as_numpy_iterator()
        self.represent = self.model.encoder.predict_on_batch
        self._temperature = job.temperature

    def train(
        self, views: np.ndarray, labels: np.ndarray, rate: float
    ) -> float:
        """One step, at a learning rate of SupContrast's; the loss over tau."""
        self.model.optimizer.learning_rate.assign(rate / BASE_TEMPERATURE)
        logs = self.model.train_on_batch(views, labels, return_dict=True)
        return float(logs["loss"]) / self._temperature


def knn_accuracy(learner: Ours, train: object, test: object) -> float:
    """Top-1 of the test images among the training images, as in training."""
    from supcon_tf import data, measures

    def encode(source: object) -> tuple[np.ndarray, np.ndarray]:
        examples = data.make_examples(source, 500, image_size=source.image_size)
        pairs = [
            (learner.represent(images), labels)
            for images, labels in examples.as_numpy_iterator()
        ]
        rows, labels = map(np.concatenate, zip(*pairs, strict=True))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels

    queries, labels = encode(test)
    votes = measures.knn_predict(
        queries,
        *encode(train),
        num_classes=len(train.class_names),
    )
    return float(measures.top_k_accuracy(votes, labels, 1))


if __name__ == "__main__":
    harness.main(LearningBench)
