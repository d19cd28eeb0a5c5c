from __future__ import annotations

import numpy as np
import pytest

from supcon_tf.augment import operations


@pytest.fixture
def recorded(monkeypatch):
    """The calls of `operations.apply`, which runs all the same."""
    calls, apply = [], operations.apply

    def record(images, steps, choices, draws, *others):
        calls.append((steps, np.asarray(choices), np.asarray(draws)))
        return apply(images, steps, choices, draws, *others)

    monkeypatch.setattr(operations, "apply", record)
    return calls
