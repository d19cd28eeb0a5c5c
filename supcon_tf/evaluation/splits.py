"""A split of the data as an encoder sees it."""

from __future__ import annotations

import dataclasses

import numpy as np

from supcon_tf import data


@dataclasses.dataclass(frozen=True)
class EncodedSplit:
    """The images of a split and their representations, in the same order.

    Attributes:
      source: the images; its fixed order is that of the arrays.
      representations: [examples, dim] float32.
      labels: [examples] int32.
    """

    source: data.Source
    representations: np.ndarray
    labels: np.ndarray
