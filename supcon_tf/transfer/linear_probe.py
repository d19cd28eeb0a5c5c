"""Logistic regression on representations of a frozen encoder."""

from __future__ import annotations

import collections
import warnings

import numpy as np
import threadpoolctl
from scipy import special
from sklearn import exceptions, linear_model

from supcon_tf.measures import neighbors
from supcon_tf.training import representations
from supcon_tf.transfer import selection

# Largest gradient of the mean loss at which L-BFGS stops. For representations
# of unit length and many classes scikit-learn's 1e-4 is met by weights of zero.
_TOLERANCE = 1e-7

# Products of a gradient below which scikit-learn gets one thread. Its threads
# spin: on shared cores, two took 60 times as long as one thread for the digits.
_PRODUCTS_FOR_THREADS = 10**8

# Softmax and sigmoid of this logit are 1, of its negative 0, also in float32.
_CERTAIN_LOGIT = float(np.finfo(np.float32).max)


class LinearProbe:
    """A linear classifier with an l2 penalty, by L-BFGS.

      sum_i -w_i log softmax(W r_i + b)_{y_i} + l2 ||W||^2

    and with a sigmoid for each label where an image may have several. A class
    or label that no training image has gets probability 0, a label that all
    training images have gets 1.

    scikit-learn minimises C times the sum plus half the square: C = 1 / (2 l2),
    and for two classes, where its one row of weights is the difference of W's
    two, C = 1 / l2. It gets the representations in float64, less their mean and
    divided by their scale, 8 bytes * images * dim: b takes up the mean, l2 the
    scale, so the optimum is the same, in a third to a tenth of the iterations.

    Attributes:
      kernel: W transposed, [dim, classes] float64.
      bias: b, [classes] float64.
    """

    kernel: np.ndarray
    bias: np.ndarray

    def __init__(self, num_classes: int, max_iterations: int = 1000):
        self._num_classes = num_classes
        self._models = collections.defaultdict(
            lambda: linear_model.LogisticRegression(
                warm_start=True, tol=_TOLERANCE, max_iter=max_iterations
            )
        )

    def fit(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        l2: float,
        weights: np.ndarray | None = None,
    ) -> dict[str, object]:
        """Fits, from the last optimum if there is one.

        Args:
          rows: [images, dim] float32, of the same dim in every call.
          labels: [images] integers, or [images, classes] 0 or 1.
          l2: strength.
          weights: [images] float, w, with a mean of 1; None where all are 1.

        Returns:
          `iterations`, their number, and `converged`, whether they sufficed.
        """
        self.kernel = np.zeros([rows.shape[1], self._num_classes])
        self.bias = np.full(self._num_classes, -_CERTAIN_LOGIT)
        self._activation = special.expit
        is_small = rows.size * self._num_classes < _PRODUCTS_FOR_THREADS
        with (
            threadpoolctl.threadpool_limits(1 if is_small else None),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", exceptions.ConvergenceWarning)
            mean = rows.mean(axis=0, dtype=np.float64)
            centred = rows - mean
            scale = np.sqrt(np.square(centred).sum(axis=1).mean()) or 1.0
            centred /= scale
            fit = self._fit_classes if labels.ndim == 1 else self._fit_labels
            fit(centred, labels, l2 / scale**2, weights)
            self.kernel /= scale
            self.bias -= mean @ self.kernel
        kinds = [warning.category for warning in caught]
        models = self._models.values()
        iterations = [int(model.n_iter_.max()) for model in models]
        return {
            "iterations": max(iterations, default=0),
            "converged": exceptions.ConvergenceWarning not in kinds,
        }

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities [images, classes] float32."""
        logits = rows.astype(np.float64) @ self.kernel + self.bias
        return self._activation(logits).astype(np.float32)

    def _fit_classes(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        l2: float,
        weights: np.ndarray | None,
    ) -> None:
        model = self._models[0]
        halves = 1 if len(np.unique(labels)) == 2 else 2
        model.set_params(C=1 / (halves * l2)).fit(rows, labels, weights)
        # For two classes there is one row, the second's less the first's.
        classes = model.classes_[-len(model.coef_) :]
        self.kernel[:, classes] = model.coef_.T
        self.bias[model.classes_] = 0
        self.bias[classes] = model.intercept_
        self._activation = lambda logits: special.softmax(logits, axis=1)

    def _fit_labels(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        l2: float,
        weights: np.ndarray | None,
    ) -> None:
        for label, has_label in enumerate(labels.T):  # [images] each
            if has_label.all():
                self.bias[label] = _CERTAIN_LOGIT
            elif has_label.any():
                model = self._models[label]
                model.set_params(C=1 / (2 * l2)).fit(rows, has_label, weights)
                self.kernel[:, label] = model.coef_[0]
                self.bias[label] = model.intercept_[0]


class LinearTransfer(selection.Method):
    """`LinearProbe` on the representations of an encoder.

    SimCLR does not say whether its strengths weigh against the sum or the mean
    of the losses; here they weigh against the sum, with the whole square of the
    weights, as in the public tool of its second author (google-research,
    linear_eval).

    The representations r are as the encoder puts them out: of unit length
    unless it was pretrained with --normalize_representation=false. Scaling
    them by s is dividing l2 by s^2, so a sweep finds it.

    Only the training images at `positions` are encoded.

    Reference: https://arxiv.org/abs/2002.05709, Appendix B.8.
    """

    def __post_init__(self):
        self.represent = representations.representer(
            self.run.encoder, self.settings.batch_size, self.settings.image_size
        )
        strengths = np.geomspace(1e5, 1e-6, self.settings.l2_values)
        if self.settings.l2 is not None:
            strengths = [self.settings.l2]
        self.cells = [{"l2": float(strength)} for strength in strengths]
        images = self.part(self.positions)
        self._representations, self._labels = self.represent(images)
        self._weights = images.weights
        self._test_representations, _ = self.represent(self.test)
        for rows in (self._representations, self._test_representations):
            neighbors.check_matrix("representations", rows)
        # Positions of the images that `_probe` was fitted to.
        self._fitted_positions = np.zeros(0, np.int64)

    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """As `selection.Method`, from the optimum of the last strength.

        There is one optimum, whatever the seed.

        Returns:
          As `LinearProbe.fit`.
        """
        if not np.array_equal(positions, self._fitted_positions):
            self._probe = LinearProbe(len(self.images.class_names))
            self._fitted_positions = positions
        index = np.searchsorted(self.positions, positions)
        rows, labels = self._representations[index], self._labels[index]
        weights = None
        if self._weights is not None:
            weights = self._weights[index]
            weights = weights / (weights.mean() or 1)  # of these alone
        return self._probe.fit(rows, labels, cell["l2"], weights)

    def predict(self, positions: np.ndarray | None = None) -> np.ndarray:
        """As `selection.Method`."""
        rows = self._test_representations
        if positions is not None:
            index = np.searchsorted(self.positions, positions)
            rows = self._representations[index]
        return self._probe.predict(rows)
