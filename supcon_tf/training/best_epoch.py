"""The epoch of a training that is best on examples apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from supcon_tf import data, distribute, measures, run_files
from supcon_tf.keras_2 import keras
from supcon_tf.training import builders, checkpoints

# From a split to probabilities [N, classes] and labels [N].
Predict = Callable[[data.Source], tuple[np.ndarray, np.ndarray]]


class BestEpoch(keras.callbacks.Callback):
    """Measures every epoch on validation examples, and keeps the best weights.

    Adds `validation_accuracy` and `validation_loss` to the figures. The best
    epoch has the highest accuracy, of equal ones the lowest loss.

    Args:
      run: whose files these are.
      validation: the examples.
      predict: of the model that trains, at the moment.
      checkpoint_every: epochs that a run which goes on may have to go back: so
        many of the epochs that were the best before stay too.
    """

    def __init__(
        self,
        run: run_files.RunDirectory,
        validation: data.Source,
        predict: Predict,
        checkpoint_every: int,
    ):
        super().__init__()
        self.run = run
        self.validation = validation
        self.predict = predict
        self.checkpoint_every = checkpoint_every

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Forgets epochs beyond the checkpoint that the run goes on from."""
        if self._is_chief():
            for done in run_files.steps_in(self.run.best):
                if done > epoch:
                    run_files.path_of(self.run.best, done).rmtree()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        probabilities, labels = self.predict(self.validation)
        figures = measures.classification_summary(probabilities, labels)
        logs["validation_accuracy"] = figures["top_1"]
        logs["validation_loss"] = figures["nll"]
        before = [x for x in self.run.metrics() if x["epoch"] <= epoch]
        if all(_rank(x) < _rank(logs) for x in before):
            checkpoints.save(
                self.run.best,
                builders.checkpointed(self.model),
                checkpoints.Progress(epoch + 1, 1),
                is_chief=self._is_chief(),
            )
            if self._is_chief():
                checkpoints.prune(self.run.best, 1 + self.checkpoint_every)

    def _is_chief(self) -> bool:
        return distribute.is_chief(self.model.distribute_strategy)


def _rank(figures: dict[str, float]) -> tuple[float, float]:
    return figures["validation_accuracy"], -figures["validation_loss"]
