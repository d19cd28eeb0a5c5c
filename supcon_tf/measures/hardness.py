"""What each pair of rows adds to the gradient: Sec. 3.2.3, Suppl. Sec. 3."""

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

    It is the sum over j of factor_ij (z_j - (z_i . z_j) z_i) / |w_i|, whose
    terms have the length |factor_ij| sqrt(1 - (z_i . z_j)^2) / |w_i|: that of
    an easy positive, of cosine 1, and of an easy negative, of a low
    probability, is small. As in training, L_i is multiplied by the temperature.

    Args:
      projections: [rows, dim], unit length.
      labels: [rows] integers, at least two rows of each.
      temperature: tau, positive.
      formulation: "out" (L_out, Eq. 2) or "in" (L_in, Eq. 3).

    Returns:
      [rows, rows] float64: P_ij - X_ij of positives, not above 0 for "out"
      where P_ij is low, P_ij of negatives, 0 of a row and itself.

    Raises:
      ValueError: another formulation.
    """
    exceptions.require_one_of(("out", "in"), "formulation", formulation)
    z = np.asarray(projections, np.float64)
    labels = np.asarray(labels)
    logits = z @ z.T / temperature
    np.fill_diagonal(logits, -np.inf)
    positive = labels[:, np.newaxis] == labels
    np.fill_diagonal(positive, False)
    share = positive / positive.sum(axis=1, keepdims=True)
    if formulation == "in":
        share = special.softmax(np.where(positive, logits, -np.inf), axis=1)
    return special.softmax(logits, axis=1) - share
