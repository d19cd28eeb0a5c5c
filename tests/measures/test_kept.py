import numpy as np

from supcon_tf.measures import kept


def test_of_many_probabilities_the_highest_are_kept(monkeypatch):
    monkeypatch.setattr(kept, "_MOST_PROBABILITIES", 50)
    monkeypatch.setattr(kept, "_KEPT_CLASSES", 2)
    rows = np.float32([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])
    assert kept.keep(rows, 16) == (rows, None)
    part = kept.keep(rows, 17)
    assert part.classes.tolist() == [[1, 2], [0, 2]]  # the lower of equal ones
    np.testing.assert_array_equal(
        part.probabilities, np.float32([[0.5, 0.3], [0.4, 0.4]])
    )
    draws = kept.keep(np.stack([rows] * 3), 17)
    assert draws.classes.shape == draws.probabilities.shape == (3, 2, 2)
    assert kept.keep(rows[:, :1], 99).classes.shape == (2, 1)
