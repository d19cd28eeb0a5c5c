"""Every search finds the nearest, here and in processes of their own."""

from __future__ import annotations

import argparse
import json
import pathlib

import numpy as np
import pytest

from benchmarks import knn
from tests import forks

ROOT = pathlib.Path(__file__).parent.parent.parent
JOB = {"bank": 90, "queries": 70, "dim": 6, "k": 5, "seed": 0, "threads": 1}


@pytest.mark.parametrize("name", knn.KnnBench.NEEDS)
def test_every_search_finds_the_nearest(name, here):
    job = argparse.Namespace(**JOB, implementation=name)
    measured = knn.measure(job)
    assert measured["agreement"] == 1
    assert measured["seconds"] > 0 and measured["peak_mb"] >= 0


def test_representations_have_unit_length_and_classes():
    job = argparse.Namespace(bank=400, queries=300, dim=32, seed=1)
    bank, queries = knn.make_representations(job)
    assert bank.shape == (400, 32) and queries.shape == (300, 32)
    assert bank.dtype == queries.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(bank, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(bank, knn.make_representations(job)[0])
    # Some pairs share a class, far beyond chance in 32 dimensions.
    assert np.median(np.max(queries @ bank.T, axis=1)) > 0.5


def test_the_check_sees_another_neighbour_and_another_number():
    bank, queries = knn.make_representations(argparse.Namespace(**JOB))
    search = knn.make_search("sklearn_cosine", 1)
    similarities, indices = search(queries, bank, 5)
    assert knn.check(queries, bank, (similarities, indices)) == 1
    unknown = np.where(indices == indices[:, :1], -1, indices)
    agreement = knn.check(queries, bank, (similarities, unknown))
    assert agreement == pytest.approx(4 / 5)
    for wrong in (similarities + 0.5, np.full_like(similarities, np.nan)):
        with pytest.raises(RuntimeError, match="a similarity is off by"):
            knn.check(queries, bank, (wrong, indices))


def test_the_search_is_measured(tmp_path):
    done = forks.run(
        ROOT / "benchmarks" / "knn.py",
        *("--bank=90", "--queries=70", "--dim=6", "--k=5", "--rounds=1"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    file = tmp_path / "runs" / "bench_knn" / "bench_knn.json"
    table = json.loads(file.read_text())["table"]
    assert [row[""] for row in table] == list(knn.KnnBench.NEEDS)
    assert all(float(row["time/ours"]) > 0 for row in table)
    assert {row["agreement"] for row in table} == {"1.00000"}
