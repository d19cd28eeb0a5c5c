"""Logistic regression on representations of a frozen encoder."""

from __future__ import annotations

import warnings

import numpy as np
import threadpoolctl
from sklearn import exceptions, linear_model

from supcon_tf.evaluation import selection
from supcon_tf.training import representations

# Largest gradient of the mean loss at which L-BFGS stops. For representations
# of unit length and many classes scikit-learn's 1e-4 is met by weights of zero.
_TOLERANCE = 1e-7

# Products of a gradient below which scikit-learn gets one thread. Its threads
# spin: on shared cores, two took 60 times as long as one for the digits.
_PRODUCTS_FOR_THREADS = 10**8


def logistic_regression(max_iterations: int) -> linear_model.LogisticRegression:
    """One that `fit` takes from its last optimum to the next."""
    return linear_model.LogisticRegression(
        warm_start=True, tol=_TOLERANCE, max_iter=max_iterations
    )


def fit(
    model: linear_model.LogisticRegression,
    rows: np.ndarray,
    labels: np.ndarray,
    l2: float,
) -> dict[str, object]:
    """Fits with the strength l2 of `LinearTransfer`.

    Returns:
      The iterations, and whether they were enough.
    """
    num_classes = len(np.unique(labels))
    model.set_params(C=1 / ((1 if num_classes == 2 else 2) * l2))
    is_small = rows.size * num_classes < _PRODUCTS_FOR_THREADS
    with (
        threadpoolctl.threadpool_limits(1 if is_small else None),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", exceptions.ConvergenceWarning)
        model.fit(rows, labels)
    kinds = [warning.category for warning in caught]
    return {
        "iterations": int(model.n_iter_.max()),
        "converged": exceptions.ConvergenceWarning not in kinds,
    }


def dense_weights(
    model: linear_model.LogisticRegression, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Kernel [dim, num_classes] and bias of a Dense layer that answers alike.

    Classes without training images have the bias of float32's end, as softmax
    makes it 0.
    """
    weights, biases = model.coef_, model.intercept_
    if len(weights) == 1:  # of two classes: the second's, less the first's
        weights = np.concatenate([np.zeros_like(weights), weights])
        biases = np.concatenate([np.zeros_like(biases), biases])
    kernel = np.zeros([weights.shape[1], num_classes], np.float32)
    bias = np.full(num_classes, np.finfo(np.float32).min, np.float32)
    kernel[:, model.classes_] = weights.T
    bias[model.classes_] = biases
    return kernel, bias


class LinearTransfer(selection.Method):
    """A linear classifier with an l2 penalty, by L-BFGS.

      sum_i -log softmax(W r_i + b)_{y_i} + l2 ||W||^2

    SimCLR does not say whether its strengths weigh against the sum or the mean
    of the losses; here it is the sum, with the whole square of the weights, as
    in the public tool of its second author (google-research, linear_eval).
    scikit-learn minimises C times the sum plus half the square: C = 1 / (2 l2),
    and for two classes, where its one row of weights is the difference of W's
    two, C = 1 / l2. It works on a copy in float64, 8 bytes * images * dim.

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
        self._num_classes = len(self.images.class_names)
        part = self.part(self.positions)
        self._representations, self._labels = self.represent(part)
        self._test_representations, _ = self.represent(self.test)
        # Positions of the images that `_model` is of, which `fit` makes.
        self._fitted = np.zeros(0, np.int64)

    def fit(
        self, positions: np.ndarray, cell: dict[str, float], seed: int
    ) -> dict[str, object]:
        """As `selection.Method`, from the optimum of the last strength.

        There is one optimum, whatever the seed.

        Returns:
          The iterations, and whether they were enough.
        """
        if not np.array_equal(positions, self._fitted):
            iterations = self.settings.max_iterations
            self._model = logistic_regression(iterations)
            self._fitted = positions
        places = np.searchsorted(self.positions, positions)
        rows, labels = self._representations[places], self._labels[places]
        return fit(self._model, rows, labels, cell["l2"])

    def predict(self, positions: np.ndarray | None = None) -> np.ndarray:
        """As `selection.Method`: 0 for classes without training images."""
        rows = self._test_representations
        if positions is not None:
            places = np.searchsorted(self.positions, positions)
            rows = self._representations[places]
        probabilities = np.zeros([len(rows), self._num_classes], np.float32)
        probabilities[:, self._model.classes_] = self._model.predict_proba(rows)
        return probabilities
