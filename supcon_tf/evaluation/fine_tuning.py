"""Training of a pretrained encoder, with a new classifier, on other data."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import tensorflow as tf
from etils import epath

from supcon_tf import losses, models
from supcon_tf.evaluation import selection
from supcon_tf.training import (
    callbacks,
    checkpoints,
    console,
    input_pipeline,
    optimizers,
    progress,
    schedules,
)


class FineTuning(selection.Method):
    """All weights of an encoder, and of a linear classifier on top.

    SGD with Nesterov momentum 0.9 on random crops and flips. The weight decay
    is divided by the learning rate, so that it says what a step takes off the
    weights. The statistics of batch norm have the momentum max(1 - 10 / s,
    0.9) at s steps per epoch. SimCLR's appendix names no schedule; the
    learning rate falls by a cosine to 0, as its code has it.

    The classifier starts at zero: the loss at log(classes), and the first
    gradient is the classifier's alone. On representations of unit length it
    needs a far larger learning rate than on pooled activations.

    Every training starts at the checkpoint of the pretraining.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """

    def __post_init__(self):
        super().__post_init__()
        self.cells = [
            {"learning_rate": rate, "weight_decay": decay}
            for rate, decay in itertools.product(
                self.settings.learning_rates, self.settings.weight_decays
            )
        ]
        num_classes = len(self.images.class_names)
        self.model = models.ClassifierModel(self.run.encoder, num_classes)
        side = self.settings.image_size
        self.model.build((None, 1, side, side, 3))

    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """As `selection.Method`, from the pretrained encoder.

        Returns:
          The batch size, which is at most what replicas can share of the
          images, and the mean loss over all steps.
        """
        images, settings = self.part(positions), self.settings
        count, strategy = images.num_examples, self.model.distribute_strategy
        replicas = strategy.num_replicas_in_sync
        batch_size = min(settings.batch_size, count // replicas * replicas)
        with strategy.scope():
            self._start(cell, count // batch_size)
        values = ", ".join(f"{name} {x:g}" for name, x in cell.items())
        console.print_line("fine-tuning", f"{values}, {count:,} images")
        history = self.model.fit(
            input_pipeline.views(
                dataclasses.replace(settings, batch_size=batch_size, seed=seed),
                images,
                settings.image_size,
                num_views=1,
            ),
            steps_per_epoch=settings.steps,
            verbose=progress.verbosity(),
            callbacks=[callbacks.StopOnNonFiniteLoss()],
        )
        callbacks.check_finite_weights(self.model)
        mean_loss = float(history.history["loss"][-1])
        return {"batch_size": batch_size, "mean_loss": mean_loss}

    def predict(self, positions: np.ndarray | None = None) -> np.ndarray:
        """As `selection.Method`, of centre crops."""
        images = self.test if positions is None else self.part(positions)
        encoded, _ = self.represent(images)
        return tf.nn.softmax(self.model.classifier(encoded)).numpy()

    def save(self, directory: epath.Path) -> None:
        """Saves encoder and classifier as a checkpoint."""
        model, steps = self.model, self.settings.steps
        checkpoints.save(
            directory,
            {"encoder": model.encoder, "classifier": model.classifier},
            checkpoints.Progress(steps, steps),
        )

    def _start(self, cell: dict[str, float], epoch_steps: int) -> None:
        """Puts all weights where they start, with a new optimizer."""
        checkpoints.restore(self.run.checkpoint, encoder=self.model.encoder)
        for variable in self.model.classifier.weights:
            variable.assign(tf.zeros_like(variable))
        for layer in self.model.encoder.submodules:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.momentum = max(1 - 10 / epoch_steps, 0.9)
        rate = cell["learning_rate"]
        self.model.compile(
            optimizers.SGD(
                schedules.WarmupCosine(rate, self.settings.steps),
                momentum=0.9,
                nesterov=True,
                l2=cell["weight_decay"] / rate,
            ),
            losses.CrossEntropyLoss(),
            jit_compile=self.settings.jit_compile or None,
        )
