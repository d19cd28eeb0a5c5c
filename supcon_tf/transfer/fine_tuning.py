"""Training of a pretrained encoder on other data, by a loss of stage 1."""

from __future__ import annotations

import itertools

import numpy as np
import tensorflow as tf

from supcon_tf import config, data, exceptions, models, run_files
from supcon_tf.keras_2 import keras
from supcon_tf.settings import shared_fields
from supcon_tf.training import (
    builders,
    callbacks,
    checkpoints,
    console,
    initial,
    input_pipeline,
    jobs,
    loop,
    representations,
)
from supcon_tf.transfer import linear_probe, selection

_L2 = 0.1  # of the classifier behind SupCon


class FineTuning(selection.Method):
    """Stage 1 on other data, from the encoder of a run.

    The losses are cross-entropy (of each label where an image may have
    several), SupCon, or both. SGD with Nesterov momentum
    0.9 on random crops and flips. The weight decay is divided by the learning
    rate, so that it says what a step takes off the weights. The statistics of
    batch norm have the momentum of `models.follow_statistics`. SimCLR's
    appendix names no schedule; the learning rate falls by a cosine to 0, as its
    code has it.

    The classifier of cross-entropy starts at zero: the loss at log(classes),
    and the first gradient is the classifier's alone. On representations of unit
    length it needs a far larger learning rate than on pooled activations. That
    of SupCon is a logistic regression on the representations afterwards.

    Every training is a run directory of stage 1 with one epoch, of all steps:
    it resumes, and runs on several workers, as any other run does. The
    directory of the first draw's chosen cell stays, as `tuned`.

    Attributes:
      model: as it was trained last.
      classifier: from the model's representations to logits.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """

    model: keras.Model
    classifier: keras.layers.Layer

    def __post_init__(self):
        self.cells = [
            {"learning_rate": rate, "weight_decay": decay}
            for rate, decay in itertools.product(
                self.settings.learning_rates, self.settings.weight_decays
            )
        ]
        self._stage = self.run.files.stage(self.settings.name)
        self._strategy = tf.distribute.get_strategy()
        self._trainings = itertools.count()

    @callbacks.trying_rates()
    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """As `selection.Method`, from the pretrained encoder.

        Returns:
          The batch size, which is at most what replicas can share of the
          images, and the mean loss over all steps.
        """
        images = self.part(positions)
        replicas = self._strategy.num_replicas_in_sync
        epoch_size = images.num_examples // replicas * replicas
        run = self._next_run()
        batch_size = min(self.settings.batch_size, epoch_size)
        per_class = self.settings.images_per_class
        if per_class:
            batch_size = min(batch_size, per_class * len(images.class_names))
        batch_size = jobs.shareable(batch_size, replicas, per_class or 1)
        settings = self._settings(run, cell, seed, batch_size)
        with self._strategy.scope():
            self._start(settings, images, epoch_size)
        values = [f"{name} {value:g}" for name, value in cell.items()]
        values.append(f"{len(positions):,} images")
        console.print_line("fine-tuning", ", ".join(values))

        loop.fit(
            jobs.Job(settings, run, self._strategy, images),
            self.model,
            input_pipeline.cached_views(settings, images),
            steps=self.settings.steps,
            made_of={"encoder": self.run.identity},
        )
        if settings.objective == "supcon":
            self._fit_classifier(positions)
        # The chief wrote the metrics, and writes what this returns.
        losses = [epoch["loss"] for epoch in run.metrics()] or [None]
        return {"batch_size": settings.batch_size, "mean_loss": losses[-1]}

    def predict(self, positions: np.ndarray | None = None) -> np.ndarray:
        """As `selection.Method`, of centre crops."""
        images = self.test if positions is None else self.part(positions)
        encoded, _ = self._encoded(images)
        is_multi_label = self.images.is_multi_label
        activation = tf.sigmoid if is_multi_label else tf.nn.softmax
        return _finite(activation(self.classifier(encoded)).numpy())

    def _encoded(self, images: data.Source) -> tuple[np.ndarray, np.ndarray]:
        """As `represent`; raises FloatingPointError unless they are finite."""
        rows, labels = self.represent(images)
        return _finite(rows), labels

    def _next_run(self) -> run_files.RunDirectory:
        """The run directory of the next training, by its number."""
        number = next(self._trainings)
        if number == (len(self.cells) if self.settings.sweeps else 0):
            return run_files.RunDirectory(self._stage.tuned)
        return run_files.RunDirectory(self._stage.trainings / f"{number:04d}")

    def _settings(
        self,
        run: run_files.RunDirectory,
        cell: dict[str, float],
        seed: int,
        batch_size: int,
    ) -> config.PretrainSettings:
        """The settings of stage 1 that make this training."""
        rate = cell["learning_rate"]
        return config.PretrainSettings(
            **shared_fields(self.settings, config.PretrainSettings)
            | shared_fields(self.run.settings, config.EncoderSettings)
            | initial.network(self.run.settings)
            | {
                "run_dir": str(run.path),
                "multi_label": self.images.is_multi_label,
                "overwrite": not self.settings.resume,
                "seed": seed,
                "draw": seed,
                "batch_size": batch_size,
                "num_views": 1 if self.settings.objective == "ce" else 2,
                "scale_by_temperature": False,
                "epochs": 1,
                "warmup_epochs": 0.0,
                "nesterov": True,
                "learning_rate": rate,
                "learning_rate_scaling": "none",
                "weight_decay": cell["weight_decay"] / rate,
            }
        )

    def _start(
        self,
        settings: config.PretrainSettings,
        images: data.Source,
        epoch_size: int,
    ) -> None:
        """Makes the model and its classifier; an epoch has `epoch_size` images.

        The encoder starts as it was pretrained, the classifier at zero.
        """
        num_classes = len(images.class_names)
        keras.utils.set_random_seed(settings.seed)
        self.model = builders.model(settings, num_classes)
        encoder = self.model.encoder
        checkpoints.restore(self.run.checkpoint, encoder=encoder)
        self.classifier = getattr(self.model, "classifier", None)
        if self.classifier is None:
            self.classifier = models.layers.classifier(num_classes)
            self.classifier.build((None, encoder.representation_dim))
        for variable in self.classifier.weights:
            variable.assign(tf.zeros_like(variable))
        models.follow_statistics(encoder, epoch_size // settings.batch_size)
        builders.compile_model(
            settings, self.model, self.settings.steps, images
        )
        self.represent = representations.representer(
            encoder, settings.batch_size, settings.image_size
        )

    def _fit_classifier(self, positions: np.ndarray) -> None:
        """Fits a logistic regression on representations of training images."""
        images = self.part(positions)
        rows, labels = self._encoded(images)
        probe = linear_probe.LinearProbe(self.classifier.units)
        l2 = self.settings.l2 or _L2
        probe.fit(rows, labels, l2, images.weights)
        kernel, bias = self.classifier.weights
        kernel.assign(probe.kernel)
        bias.assign(probe.bias)


def _finite(numbers: np.ndarray) -> np.ndarray:
    """The numbers; raises FloatingPointError unless they are finite.

    The loss of a step says nothing of the weights after the last step, nor of
    statistics of batch norm, which only inference uses.
    """
    if not np.isfinite(numbers).all():
        raise exceptions.Diverged(
            "the trained network has answers that are not finite: lower "
            "--learning_rates"
        )
    return numbers
