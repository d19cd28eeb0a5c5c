"""The probabilities that predictions.npz has room for."""

import numpy as np

from supcon_tf.measures import truncation


def test_of_many_probabilities_the_highest_are_stored(monkeypatch):
    monkeypatch.setattr(truncation, "_MOST_PROBABILITIES", 50)
    monkeypatch.setattr(truncation, "_MOST_CLASSES", 2)
    rows = np.float32([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])
    assert truncation.truncate(rows, 16) == (rows, None)
    part = truncation.truncate(rows, 17)
    assert part.classes.tolist() == [[1, 2], [0, 2]]  # the lower of equal ones
    np.testing.assert_array_equal(
        part.probabilities, np.float32([[0.5, 0.3], [0.4, 0.4]])
    )
    draws = truncation.truncate(np.stack([rows] * 3), 17)
    assert draws.classes.shape == draws.probabilities.shape == (3, 2, 2)
    assert truncation.truncate(rows[:, :1], 99).classes.shape == (2, 1)
