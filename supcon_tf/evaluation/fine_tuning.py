"""Training of a pretrained encoder, with a new classifier, on other data."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import config, data, losses, models
from supcon_tf.data import subsets
from supcon_tf.training import (
    callbacks,
    checkpoints,
    console,
    input_pipeline,
    monitoring,
    optimizers,
    representations,
    schedules,
)

_MOMENTUM = 0.9


class FineTuning:
    """All weights of an encoder, and of a linear classifier on top.

    SGD with Nesterov momentum 0.9 on random crops and flips. The weight decay
    is divided by the learning rate, so that it says what a step takes off the
    weights. The statistics of batch norm have the momentum max(1 - 10 / s,
    0.9) at s steps per epoch. SimCLR's appendix names no schedule; the
    learning rate falls by a cosine to 0, as its code has it.

    The classifier starts at zero: the loss at log(classes), and the first
    gradient is the classifier's alone. On representations of unit length it
    needs a far larger learning rate than on pooled activations.

    Make it under the scope of a strategy.

    Args:
      chosen: the settings.
      encoder: with any weights.
      checkpoint: of the pretraining; every training starts there.
      images: the training images.
      test: the test images.

    Attributes:
      cells: the settings to try.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """

    def __init__(
        self,
        chosen: config.TransferSettings,
        encoder: models.Encoder,
        checkpoint: str,
        images: data.Source,
        test: data.Source,
    ):
        self.cells = [
            {"learning_rate": rate, "weight_decay": decay}
            for rate, decay in itertools.product(
                chosen.learning_rates, chosen.weight_decays
            )
        ]
        self._chosen = chosen
        self._checkpoint = checkpoint
        self._images = images
        self._test = test
        self.model = models.ClassifierModel(encoder, len(images.class_names))
        side = chosen.image_size
        self.model.build((None, 1, side, side, 3))
        self._represent = representations.representer(
            encoder,
            batch_size=chosen.batch_size,
            image_size=side,
            strategy=self.model.distribute_strategy,
        )

    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """Trains once, from the pretrained encoder.

        Args:
          positions: of the training images.
          cell: one of `cells`.
          seed: of order and crops.

        Returns:
          The batch size, which is at most the number of images, and the mean
          loss over all steps.

        Raises:
          FloatingPointError: the loss is no longer finite.
        """
        images = self._part(positions)
        with self.model.distribute_strategy.scope():
            batch_size = self._batch_size(images.num_examples)
            self._start(cell, images.num_examples // batch_size)
        batches = input_pipeline.views(
            dataclasses.replace(self._chosen, batch_size=batch_size, seed=seed),
            images,
            self._chosen.image_size,
            num_views=1,
        )
        values = ", ".join(f"{name} {x:g}" for name, x in cell.items())
        console.print_line(
            "fine-tuning", f"{values}, {images.num_examples:,} images"
        )
        history = self.model.fit(
            batches,
            steps_per_epoch=self._chosen.steps,
            verbose=monitoring.verbosity(),
            callbacks=[callbacks.StopOnNonFiniteLoss()],
        )
        callbacks.check_finite_weights(self.model)
        return {
            "batch_size": batch_size,
            "mean_loss": float(history.history["loss"][-1]),
        }

    def predict(self, positions: np.ndarray) -> np.ndarray:
        """Probabilities [images, classes] float32 of training images."""
        return self._probabilities(self._part(positions))

    def predict_test(self) -> np.ndarray:
        """Probabilities [images, classes] float32 of the test images."""
        return self._probabilities(self._test)

    def save(self, directory: epath.Path) -> None:
        """Saves encoder and classifier as a checkpoint."""
        steps = self._chosen.steps
        checkpoints.save(
            directory,
            {
                "encoder": self.model.encoder,
                "classifier": self.model.classifier,
            },
            checkpoints.Progress(steps, steps),
        )

    def _start(self, cell: dict[str, float], epoch_steps: int) -> None:
        """Puts all weights where they start, with a new optimizer."""
        checkpoints.restore(self._checkpoint, encoder=self.model.encoder)
        for variable in self.model.classifier.weights:
            variable.assign(tf.zeros_like(variable))
        for layer in self.model.encoder.submodules:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.momentum = max(1 - 10 / epoch_steps, 0.9)
        rate = cell["learning_rate"]
        self.model.compile(
            optimizers.SGD(
                schedules.WarmupCosine(rate, self._chosen.steps),
                _MOMENTUM,
                nesterov=True,
                l2=cell["weight_decay"] / rate,
            ),
            losses.CrossEntropyLoss(),
            jit_compile=self._chosen.jit_compile or None,
        )

    def _part(self, positions: np.ndarray) -> data.Source:
        """Some of the training images."""
        if len(positions) == self._images.num_examples:
            return self._images
        return subsets.subset(self._images, positions)

    def _batch_size(self, num_images: int) -> int:
        """That of the settings, or what replicas can share of fewer images."""
        replicas = self.model.distribute_strategy.num_replicas_in_sync
        return min(self._chosen.batch_size, num_images // replicas * replicas)

    def _probabilities(self, images: data.Source) -> np.ndarray:
        """Probabilities of every image, from its centre crop."""
        encoded, _ = self._represent(images)
        return tf.nn.softmax(self.model.classifier(encoded)).numpy()
