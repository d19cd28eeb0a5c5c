"""One measurement of each search, on a tiny problem, in this process."""

from __future__ import annotations

import numpy as np
import pytest

from supcon_tf import config
from supcon_tf.benchmarks import knn_point, libraries

JOB = {"bank": 90, "queries": 70, "dim": 6, "k": 5, "seed": 0, "threads": 1}


@pytest.mark.parametrize("name", config.KNN_IMPLEMENTATIONS)
def test_every_search_finds_the_nearest(name, monkeypatch):
    # Threads cannot be set once TensorFlow has run.
    monkeypatch.setattr(libraries, "import_tensorflow", lambda threads: None)
    measured = knn_point.measure(JOB | {"implementation": name})
    assert measured["agreement"] == 1
    assert measured["similarity_error"] < 1e-6
    assert measured["seconds"] > 0 and measured["peak_mb"] >= 0
    library = "tensorflow" if name == "ours" else "sklearn"
    assert library in measured["libraries"]


def test_representations_have_unit_length_and_classes():
    bank, queries = knn_point.make_representations(400, 300, 32, seed=1)
    assert bank.shape == (400, 32) and queries.shape == (300, 32)
    assert bank.dtype == queries.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(bank, axis=1), 1, atol=1e-6)
    again, _ = knn_point.make_representations(400, 300, 32, seed=1)
    np.testing.assert_array_equal(bank, again)
    # Some pairs share a class, far beyond chance in 32 dimensions.
    nearest = np.max(queries @ bank.T, axis=1)
    assert np.median(nearest) > 0.5


def test_the_check_sees_another_neighbour_and_another_number():
    bank, queries = knn_point.make_representations(90, 70, 6, seed=0)
    search = knn_point.make_search("sklearn_cosine", 1)
    similarities, indices = search(queries, bank, 5)
    found = knn_point.check(queries, bank, similarities, indices)
    assert found["agreement"] == 1 and found["similarity_error"] < 1e-6
    unknown = np.where(indices == indices[:, :1], -1, indices)
    found = knn_point.check(queries, bank, similarities + 0.5, unknown)
    assert found["agreement"] == pytest.approx(4 / 5)
    assert found["similarity_error"] == pytest.approx(0.5, abs=1e-6)
