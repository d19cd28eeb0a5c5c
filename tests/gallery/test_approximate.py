"""An index of faiss beside the exact search."""

import dataclasses
import sys

import numpy as np
import pytest

from supcon_tf import exceptions, gallery, measures
from supcon_tf.gallery import approximate
from tests.gallery import galleries

faiss = pytest.importorskip("faiss")


def clustered(count, dim, seed=0):
    """Rows [count, dim] around ten centres, as representations are."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10, dim))[rng.integers(0, 10, count)]
    return (centers + rng.normal(size=(count, dim))).astype(np.float32)


@pytest.mark.parametrize("kind", ["HNSW32", "IVF64,PQ4x4"])
def test_the_index_finds_nearly_all_neighbors(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(approximate, "_kind", lambda *_: kind)
    rows, queries = clustered(1000, 16), clustered(50, 16, seed=1)
    exact = galleries.from_rows(rows)
    exact.save(tmp_path / "exact")
    assert gallery.open_gallery(tmp_path / "exact").index is None
    dataclasses.replace(exact, is_approximate=True).save(tmp_path / "nearly")
    nearly = gallery.open_gallery(tmp_path / "nearly")
    assert nearly.index.kind == kind and nearly.index.recall > 0.7
    cosines, expected = exact.search(queries, k=5)
    similarities, neighbors = nearly.search(queries, k=5)
    is_right = neighbors == expected
    assert is_right.mean() > 0.7
    np.testing.assert_allclose(
        similarities[is_right], cosines[is_right], atol=4e-6
    )
    # More rows than the lists of a query hold: the search is exact.
    _, neighbors = nearly.search(queries[:2], k=1000)
    np.testing.assert_array_equal(
        neighbors, exact.search(queries[:2], k=1000)[1]
    )


def test_a_class_that_the_graph_does_not_reach_is_found(tmp_path, monkeypatch):
    """Its rows are in the order of their classes, and close, as of SupCon."""
    monkeypatch.setattr(approximate, "_LEAST_CANDIDATES", 10)
    monkeypatch.setattr(approximate, "_CANDIDATES_PER_NEIGHBOR", 1)
    monkeypatch.setattr(approximate, "_RECALL_QUERIES", 60)
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(10, 16)), 30, axis=0)
    rows = (rows + rng.normal(scale=1e-3, size=rows.shape)).astype(np.float32)
    queries = rng.normal(size=(100, 16))  # of no class
    cosines, _ = measures.nearest_neighbors(queries, rows, k=1)
    index = approximate.build(tmp_path / "rows.faiss", rows)
    found, _ = index.search(queries, rows, k=1)
    np.testing.assert_allclose(found, cosines, atol=2e-5)
    # The recall tells of such queries, for which a lone graph is no help.
    monkeypatch.setattr(approximate, "_SAMPLE_ROWS", 1)
    graph = approximate.build(tmp_path / "graph.faiss", rows)
    assert graph.recall < index.recall
    of_rows = approximate.recall(rows, lambda q, k: graph.search(q, rows, k))
    assert graph.recall < of_rows - 0.02


def test_the_kind_follows_from_the_size():
    assert approximate._kind(200_000, 128) == "HNSW32"
    assert approximate._kind(200_001, 128) == "IVF2048,PQ32"
    assert approximate._kind(200_001, 26) == "IVF2048,PQ2"  # divides 26


def test_a_change_builds_the_index_anew(tmp_path):
    shelf = dataclasses.replace(galleries.lettered("abc"), is_approximate=True)
    shelf.save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert opened.index.recall == 1
    grown = opened.add(galleries.lettered("d"))
    assert grown.index is None and grown.is_approximate
    grown.save(tmp_path / "a")
    reopened = gallery.open_gallery(tmp_path / "a")
    assert reopened.index is not None and galleries.equal(reopened, grown)
    # The index of an earlier version is gone; the new one answers.
    saved = reopened.save(tmp_path / "a")
    assert saved.version == 3 and saved.index.recall == 1
    _, rows = saved.search(saved.representations, k=1)
    assert rows[:, 0].tolist() == [0, 1, 2, 0]  # d is equal to a
    # An open gallery whose file another process removed answers exactly.
    saved.part(np.zeros(4, bool)).save(tmp_path / "a")
    _, rows = reopened.search(reopened.representations, k=1)
    assert rows[:, 0].tolist() == [0, 1, 2, 0]
    emptied = gallery.open_gallery(tmp_path / "a")
    assert emptied.index is None
    emptied.add(galleries.lettered("b")).save(tmp_path / "a")
    assert gallery.open_gallery(tmp_path / "a").index is not None


def test_an_index_that_cannot_be_written_is_a_single_line(
    monkeypatch, tmp_path
):
    with pytest.raises(ValueError, match="but on a local disk, .* got gs://a"):
        approximate.build("gs://a/rows.faiss", np.eye(3, dtype=np.float32))
    monkeypatch.setitem(sys.modules, "faiss", None)
    shelf = dataclasses.replace(galleries.lettered("a"), is_approximate=True)
    with pytest.raises(exceptions.MissingPackage, match="extra `search`: pip"):
        shelf.save(tmp_path / "a")
    assert not gallery.store.exists(tmp_path / "a")


def test_the_file_of_another_index_is_refused(tmp_path):
    shelf = dataclasses.replace(galleries.lettered("abc"), is_approximate=True)
    shelf.save(tmp_path / "a")
    file = tmp_path / "a" / "1" / "rows.faiss"
    for content, message in (
        (bytes(file.stat().st_size), "got what faiss cannot read"),
        (faiss.serialize_index(faiss.IndexFlatIP(4)), "got IndexFlatIP"),
        (faiss.serialize_index(faiss.IndexHNSWFlat(4, 32)), "got one of 0 x 4"),
    ):
        file.write_bytes(bytes(content))
        index = gallery.Index(str(file), "HNSW32", 1.0)
        remedy = "tools/index.py --data_dir=DIR --overwrite --approximate"
        with pytest.raises(ValueError, match=f"{message}.*{remedy}"):
            index.search(shelf.representations, shelf.representations, 1)
