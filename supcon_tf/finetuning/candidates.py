"""Candidate networks, each measured by a linear classifier on its output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from supcon_tf import data
from supcon_tf.keras_2 import keras
from supcon_tf.training import representations
from supcon_tf.transfer import linear_probe, selection

# Strengths of the classifier's penalty that are tried, the strongest first.
_STRENGTHS = np.geomspace(1e2, 1e-5, 15)
_PATIENCE = 2  # strengths in a row worse than the best, which end the search
_STANDARD_ERRORS = 2.0  # of a significant gain


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A network, and the loss of its linear classifier on validation images.

    Attributes:
      name: "frozen", or the training, such as "tuned at 0.01".
      weights: of the encoder.
      l2: strength of the classifier's penalty with the lowest NLL.
      losses: [validation images] float64, negative log-likelihoods.
      validation: `selection.measure` of the classifier's probabilities.
      number: of the training; None for the frozen network.
      is_mean: whether the weights are a mean with those of the frozen network.
    """

    name: str
    weights: list[np.ndarray]
    l2: float
    losses: np.ndarray
    validation: dict[str, object]
    number: int | None = None
    is_mean: bool = False

    def figures(self, frozen: Candidate) -> dict[str, object]:
        """The row of the candidate in finetune.json."""
        mean, error = gain(frozen, self)
        return {
            "name": self.name,
            "is_mean": self.is_mean,
            "l2": self.l2,
            "validation": selection.figures(self.validation),
            "gain": mean,
            "gain_standard_error": error,
        }


# From the frozen network and the tuned networks to the chosen one.
Choose = Callable[[Candidate, list[Candidate]], Candidate]


class Judge:
    """Makes candidates of the present weights of an encoder.

    Representations are those of centre crops in inference mode. A logistic
    regression on those of the training images is measured on the validation
    images, for every strength of its penalty. So the classifier of each network
    is the best that its representations allow, whatever trained them.

    Args:
      encoder: images to representations.
      represent: of the encoder, of `representations.representer`.
      train_part: images that classifiers are fitted to.
      validation: images that classifiers are measured on.
    """

    def __init__(
        self,
        encoder: keras.Model,
        represent: representations.Represent,
        train_part: data.Source,
        validation: data.Source,
    ):
        self.encoder, self.represent = encoder, represent
        self.train_part, self.validation = train_part, validation
        self._num_classes = len(train_part.class_names)

    def candidate(
        self, name: str, number: int | None = None, *, is_mean: bool = False
    ) -> Candidate:
        """The candidate of the encoder's present weights."""
        rows, labels = self.represent(self.train_part)  # [images, dim]
        validation_rows, validation_labels = self.represent(self.validation)
        scale = float(np.square(rows).sum(axis=1).mean())
        probe = linear_probe.LinearProbe(self._num_classes)
        strengths, trials = _STRENGTHS * scale, []
        for strength in strengths:
            probe.fit(rows, labels, float(strength), self.train_part.weights)
            probabilities = probe.predict(validation_rows)
            trials.append(
                (_losses(probabilities, validation_labels), probabilities)
            )
            lowest = int(np.argmin([losses.mean() for losses, _ in trials]))
            if len(trials) - 1 - lowest == _PATIENCE:
                break  # weaker penalties overfit, and take longest
        losses, probabilities = trials[lowest]
        return Candidate(
            name,
            self.encoder.get_weights(),
            float(strengths[lowest]),
            losses,
            selection.measure(probabilities, validation_labels),
            number,
            is_mean,
        )

    def fit(
        self, l2: float, images: data.Source
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fits a classifier to images: kernel [dim, classes], bias [classes].

        Both are float32.
        """
        rows, labels = self.represent(images)
        probe = linear_probe.LinearProbe(self._num_classes)
        probe.fit(rows, labels, l2, images.weights)
        return probe.kernel.astype(np.float32), probe.bias.astype(np.float32)


def _losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    likelihoods = probabilities[np.arange(len(labels)), labels]
    likelihoods = np.maximum(likelihoods, np.finfo(np.float32).tiny)
    return -np.log(likelihoods, dtype=np.float64)


def mean_weights(
    first: Candidate, second: Candidate, share: float
) -> list[np.ndarray]:
    """(1 - share) * first + share * second, weight by weight.

    Reference: https://arxiv.org/abs/2109.01903, Sec. 3 (WiSE-FT).
    """
    pairs = zip(first.weights, second.weights, strict=True)
    return [(1 - share) * a + share * b for a, b in pairs]


def choose(frozen: Candidate, tuned: list[Candidate]) -> Candidate:
    """The candidate of the lowest validation NLL; in doubt the frozen network.

    A tuned network must be better by more than two standard errors of the
    difference, image by image: the validation images are few, and the best of
    several candidates looks better than it is.
    """
    if not tuned:
        return frozen
    tuned_best = best(tuned)
    mean, error = gain(frozen, tuned_best)
    return tuned_best if mean > _STANDARD_ERRORS * error else frozen


def best(tuned: list[Candidate]) -> Candidate:
    """The candidate of the lowest validation NLL."""
    return min(tuned, key=lambda candidate: candidate.validation["nll"])


def gain(frozen: Candidate, tuned: Candidate) -> tuple[float, float]:
    """Mean of frozen.losses - tuned.losses and its standard error, in nats."""
    gains = frozen.losses - tuned.losses
    # A single gain has no deviation: its size stands for it.
    deviation = gains.std(ddof=1) if len(gains) > 1 else abs(gains[0])
    return float(gains.mean()), float(deviation / len(gains) ** 0.5)
