"""The epoch of a training that is best on validation examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from supcon_tf import data, distribute, exceptions, measures, run_files
from supcon_tf.keras_2 import keras
from supcon_tf.training import builders, checkpoints, progress

# From a split to probabilities [N, classes] and labels [N].
Predict = Callable[[data.Source], tuple[np.ndarray, np.ndarray]]


class BestEpoch(keras.callbacks.Callback):
    """Measures every epoch on validation examples, and keeps the best weights.

    Adds `validation_accuracy` and `validation_loss` to the figures. The best
    epoch has the highest accuracy, among equal accuracies the lowest loss.
    Raises FloatingPointError for probabilities that are not finite.

    Args:
      run: the directory of the weights.
      validation: the examples.
      predict: of the present weights of the model.
      checkpoint_every: epochs between checkpoints. A resumed run may lose so
        many epochs, so as many of the earlier best epochs are kept too.
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
            for best in run_files.steps_in(self.run.best):
                if best > epoch:
                    run_files.path_of(self.run.best, best).rmtree()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        probabilities, labels = self.predict(self.validation)
        # Statistics of batch norm, which only inference uses, may overflow
        # where the loss does not.
        if not np.isfinite(probabilities).all():
            progress.end_live_line()
            raise exceptions.Diverged(
                f"validation probabilities are not finite after epoch "
                f"{epoch + 1}: lower the learning rate"
            )
        figures = measures.classification_summary(probabilities, labels)
        # Workers whose last bits differ would not all save the same epoch.
        accuracy, loss = distribute.chief_values(
            figures["top_1"], figures["nll"]
        )
        logs["validation_accuracy"] = float(accuracy)
        logs["validation_loss"] = float(loss)
        earlier = [
            record for record in self.run.metrics() if record["epoch"] <= epoch
        ]
        if all(_rank(record) < _rank(logs) for record in earlier):
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
