"""Factors of pairs in the gradient of the loss: Sec. 3.2.3, Suppl. Sec. 3."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from supcon_tf import exceptions


def pair_gradients(
    projections: npt.ArrayLike,
    labels: npt.ArrayLike,
    temperature: float,
    formulation: str = "out",
) -> np.ndarray:
    """The factors of the gradient of L_i with respect to w_i, Suppl. Eq. 12.

      dL_i/dw_i = sum_j factor_ij (z_j - (z_i . z_j) z_i) / |w_i|

    A term has the length |factor_ij| sqrt(1 - (z_i . z_j)^2) / |w_i|, which is
    small for an easy positive, of cosine 1, and for an easy negative, of a low
    probability. As in training, L_i is multiplied by the temperature.

    Args:
      projections: [rows, dim], unit length.
      labels: [rows] integers, at least two rows of each.
      temperature: tau, positive.
      formulation: "out" (L_out, Eq. 2) or "in" (L_in, Eq. 3).

    Returns:
      [rows, rows] float64: P_ij - X_ij for positives (for "out", not above 0
      where P_ij is low), P_ij for negatives, 0 on the diagonal.

    Raises:
      ValueError: another formulation.
    """
    exceptions.require_one_of(("out", "in"), "formulation", formulation)
    z = np.asarray(projections, np.float64)  # [rows, dim]
    labels = np.asarray(labels)  # [rows]
    logits = z @ z.T / temperature  # [rows, rows]
    np.fill_diagonal(logits, -np.inf)  # a row is no contrast of itself
    is_positive = labels[:, np.newaxis] == labels  # [rows, rows]
    np.fill_diagonal(is_positive, False)
    # X_ij of the paper: 1 / |P(i)|, or a softmax over the positives.
    targets = is_positive / is_positive.sum(axis=1, keepdims=True)
    if formulation == "in":
        targets = special.softmax(
            np.where(is_positive, logits, -np.inf), axis=1
        )
    return special.softmax(logits, axis=1) - targets
