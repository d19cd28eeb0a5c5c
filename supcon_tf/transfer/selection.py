"""Choice of a setting by validation images, and training with it."""

from __future__ import annotations

import dataclasses

import numpy as np

from supcon_tf import config, data, exceptions, measures
from supcon_tf.data import subsets
from supcon_tf.training import input_pipeline, representations, runs

# Share of a few-shot draw that judges a sweep.
_FEW_SHOT_FRACTION = 0.5


@dataclasses.dataclass(eq=False)
class Method:
    """A way to take an encoder to other data; base of all such ways.

    Make a method under the scope of a strategy.

    Attributes:
      settings: of the transfer, with the size of the images.
      run: of the pretraining, which has the encoder.
      images: the training images.
      test: the test images.
      positions: of the training images that any draw uses, rising.
      cells: the settings to try, which a subclass makes.
      represent: from a split to the representations of its centre crops, in
        inference mode, and labels; a subclass makes it.
    """

    settings: config.TransferSettings
    run: runs.Run
    images: data.Source
    test: data.Source
    positions: np.ndarray
    cells: list[dict[str, float]] = dataclasses.field(init=False)
    represent: representations.Represent = dataclasses.field(init=False)

    def __post_init__(self):
        """Makes `cells`."""
        raise NotImplementedError

    def part(self, positions: np.ndarray) -> data.Source:
        """The training images at rising positions."""
        if len(positions) == self.images.num_examples:
            return self.images
        return subsets.subset(self.images, positions)

    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """Trains anew.

        Args:
          positions: of training images, rising.
          cell: one of `cells`.
          seed: of all that is random.

        Returns:
          A record of the training, for transfer.json.

        Raises:
          FloatingPointError: the training diverged.
        """
        raise NotImplementedError

    def predict(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Probabilities [images, classes] float32, of test images by None.

        Raises:
          FloatingPointError: the training diverged at its end.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Draw:
    """Training images by their positions, rising.

    Attributes:
      seed: of the draw and of its training.
      images: all images of the draw, which the last training has.
      trained: the images that a sweep trains on.
      judging: the images that judge the sweep.
    """

    seed: int
    images: np.ndarray
    trained: np.ndarray
    judging: np.ndarray


def make_draws(
    settings: config.TransferSettings,
    class_names: tuple[str, ...],
    labels: np.ndarray,
) -> list[Draw]:
    """Draws the training images of every repeat, before any is used.

    Raises:
      ValueError: a class has fewer images than are to be drawn, or none can be
        held out.
    """
    count = settings.images_per_label
    fraction = _FEW_SHOT_FRACTION if count else settings.validation_fraction
    draws = []
    for seed in range(settings.seed, settings.seed + settings.repeats):
        images = np.arange(len(labels))
        if count:
            images = input_pipeline.draw_per_label(
                count, labels, class_names, seed
            )
        trained = judging = images[:0]
        if settings.sweeps:
            parts = subsets.hold_out(labels[images], fraction, seed)
            trained, judging = (images[part] for part in parts)
        draws.append(Draw(seed, images, trained, judging))
    return draws


def train(
    method: Method, draw: Draw, labels: np.ndarray, select_by: str
) -> dict[str, object]:
    """Chooses by the validation images, then trains on all of a draw.

    Args:
      method: trained on all images of the draw when this returns.
      draw: one whose `judging` is empty gets the method's one cell.
      labels: [images] integers or [images, classes] 0 or 1, of all training
        images.
      select_by: the figure that is to be high, and then the lower NLL.

    Returns:
      What transfer.json says of the draw, but for the test images.

    Raises:
      FloatingPointError: every cell, or the chosen one on all images, diverged.
    """
    record: dict[str, object] = {
        "seed": draw.seed,
        "training_images": len(draw.images),
        "validation_images": len(draw.judging),
    }
    best_cell = method.cells[0]
    if len(draw.judging):
        record["sweep"], finished = [], []
        for cell in method.cells:
            try:
                training = method.fit(draw.trained, cell, draw.seed)
                probabilities = method.predict(draw.judging)
            except FloatingPointError:
                record["sweep"].append({**cell, "diverged": True})
                continue
            measured = measure(probabilities, labels[draw.judging])
            record["sweep"].append({**cell, **training, **figures(measured)})
            finished.append((cell, measured))
        if not finished:
            raise exceptions.Diverged(
                f"all {len(method.cells)} trainings diverged: lower "
                "--learning_rates"
            )
        best_cell, record["validation"] = max(
            finished, key=lambda pair: (pair[1][select_by], -pair[1]["nll"])
        )
    record["chosen"] = best_cell
    record["training"] = method.fit(draw.images, best_cell, draw.seed)
    return record


def measure(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, object]:
    """`measures.classification_summary` and `mean_recall`.

    The mean is over the classes that have images. Of several labels,
    [images, classes], it is `measures.multi_label_summary`.
    """
    if labels.ndim == 2:
        return measures.multi_label_summary(probabilities, labels)
    measured = measures.classification_summary(probabilities, labels)
    recalls = measured["per_class_recall"]
    recalls = [recall for recall in recalls if recall is not None]
    return {**measured, "mean_recall": float(np.mean(recalls))}


def figures(measured: dict[str, object]) -> dict[str, float]:
    """The measures of `measure` that are one number."""
    return {
        name: value
        for name, value in measured.items()
        if isinstance(value, float)
    }
