"""Fixtures of the tests of neighbours."""

import numpy as np
import pytest

from supcon_tf.measures import neighbors


@pytest.fixture(params=["this kernel", "any kernel"])
def kernel(request, monkeypatch):
    """The matrix product of this processor, and one with other last bits.

    Kernels of other processors differ in the last bits of a tile.
    """
    if request.param == "this kernel":
        return
    cosines = neighbors._cosines
    random = np.random.default_rng(0)

    def last_bits_off(chunk, rows):
        tile = cosines(chunk, rows)
        ulps = random.integers(-4, 5, tile.shape).astype(np.float32)
        return tile + ulps * np.spacing(np.float32(0.5))

    monkeypatch.setattr(neighbors, "_cosines", last_bits_off)
