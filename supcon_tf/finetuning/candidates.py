"""Networks to choose from: each by a linear classifier on what it puts out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from supcon_tf import data
from supcon_tf.evaluation import linear_probe, selection
from supcon_tf.keras_2 import keras
from supcon_tf.training import representations

# Strengths of the classifier's penalty that are tried, the strongest first.
_STRENGTHS = np.geomspace(1e2, 1e-5, 15)
_WORSE = 2  # strengths in a row that are worse than the best end the search
_STANDARD_ERRORS = 2.0  # of a gain that is no chance
_MAX_ITERATIONS = 1000


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A network, and how its linear classifier does on validation images.

    Attributes:
      name: what became of the network.
      weights: of the encoder.
      l2: strength of the classifier's penalty with the lowest NLL.
      losses: [validation images] float64, negative log-likelihoods.
      validation: `selection.measure` of the classifier's probabilities.
      number: of the training that it is of; None of the frozen network.
      is_mean: whether it is a mean with the frozen network.
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
        measured = selection.figures(self.validation)
        mean, error = gain(frozen, self)
        return {
            "name": self.name,
            "is_mean": self.is_mean,
            "l2": self.l2,
            "validation": measured,
            "gain": mean,
            "gain_standard_error": error,
        }


# From the frozen network and the tuned ones to the one that is kept.
Choose = Callable[[Candidate, list[Candidate]], Candidate]


class Judge:
    """Makes candidates of an encoder as it is at the moment.

    Representations are those of centre crops in inference mode; a logistic
    regression on those of the training part is measured on the validation
    part, for every strength of its penalty. So the classifier of each network
    is the best that its representations allow, whatever trained them.

    Args:
      encoder: images to representations.
      represent: of the encoder, of `representations.representer`.
      part: images that classifiers are fitted to.
      held: validation images.
    """

    def __init__(
        self,
        encoder: keras.Model,
        represent: representations.Represent,
        part: data.Source,
        held: data.Source,
    ):
        self.encoder, self.represent = encoder, represent
        self.part, self.held = part, held
        self._num_classes = len(part.class_names)

    def candidate(
        self, name: str, number: int | None = None, *, is_mean: bool = False
    ) -> Candidate:
        """The encoder as it is now, measured."""
        rows, labels = self.represent(self.part)
        held_rows, held_labels = self.represent(self.held)
        scale = float(np.square(rows).sum(axis=1).mean())
        probe = self._probe()
        strengths, tried = _STRENGTHS * scale, []
        for strength in strengths:
            probe.fit(rows, labels, float(strength), self.part.weights)
            probabilities = probe.predict(held_rows)
            tried.append((_losses(probabilities, held_labels), probabilities))
            lowest = int(np.argmin([losses.mean() for losses, _ in tried]))
            if len(tried) - 1 - lowest == _WORSE:
                break  # weaker ones overfit, and take longest
        losses, probabilities = tried[lowest]
        return Candidate(
            name,
            self.encoder.get_weights(),
            float(strengths[lowest]),
            losses,
            selection.measure(probabilities, held_labels),
            number,
            is_mean,
        )

    def fit(
        self, l2: float, images: data.Source
    ) -> tuple[np.ndarray, np.ndarray]:
        """Kernel and bias of the classifier of some images, float32."""
        rows, labels = self.represent(images)
        probe = self._probe()
        probe.fit(rows, labels, l2, images.weights)
        return probe.kernel.astype(np.float32), probe.bias.astype(np.float32)

    def _probe(self) -> linear_probe.LinearProbe:
        return linear_probe.LinearProbe(self._num_classes, _MAX_ITERATIONS)


def _losses(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    likelihoods = probabilities[np.arange(len(labels)), labels]
    return -np.log(np.maximum(likelihoods, np.finfo(np.float32).tiny))


def mean_weights(
    first: Candidate, second: Candidate, share: float
) -> list[np.ndarray]:
    """(1 - share) * first + share * second, weight by weight.

    Reference: https://arxiv.org/abs/2109.01903, Sec. 3 (WiSE-FT).
    """
    pairs = zip(first.weights, second.weights, strict=True)
    return [(1 - share) * a + share * b for a, b in pairs]


def choose(frozen: Candidate, tuned: list[Candidate]) -> Candidate:
    """The candidate of the lowest validation NLL; in doubt the frozen one.

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
    return min(tuned, key=lambda x: x.validation["nll"])


def gain(frozen: Candidate, tuned: Candidate) -> tuple[float, float]:
    """The mean gain of likelihood over the frozen network, and its error.

    In nats of a validation image; the error is the standard error of the mean.
    """
    gains = frozen.losses - tuned.losses
    # One image tells nothing of others.
    deviation = gains.std(ddof=1) if len(gains) > 1 else abs(gains[0])
    return float(gains.mean()), float(deviation / len(gains) ** 0.5)
