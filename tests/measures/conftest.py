"""What the tests of neighbours share."""

import numpy as np
import pytest

from supcon_tf.measures import neighbors


@pytest.fixture(params=["this kernel", "any kernel"])
def kernel(request, monkeypatch):
    """The product of this processor, and one that is off everywhere else.

    What another kernel makes of a column, or of a place in the tile, differs in
    the last bits.
    """
    if request.param == "this kernel":
        return
    product = neighbors._cosines
    random = np.random.default_rng(0)

    def last_bits_off(chunk, rows):
        tile = product(chunk, rows).numpy()
        ulps = random.integers(-4, 5, tile.shape).astype(np.float32)
        return tile + ulps * np.spacing(np.float32(0.5))

    monkeypatch.setattr(neighbors, "_cosines", last_bits_off)
