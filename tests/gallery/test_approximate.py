"""An index of faiss beside the exact search."""

import dataclasses
import sys

import numpy as np
import pytest

from supcon_tf import exceptions, gallery
from supcon_tf.gallery import approximate
from tests.gallery.test_store import equal, make

pytest.importorskip("faiss")


def clustered(count, dim, seed=0):
    """Rows [count, dim] around ten centres, as representations are."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10, dim))[rng.integers(0, 10, count)]
    return (centers + rng.normal(size=(count, dim))).astype(np.float32)


def shelf_of(rows, **options):
    count = len(rows)
    return gallery.Gallery(
        rows,
        np.full(count, -1, np.int32),
        (),
        tuple(map(str, range(count))),
        np.arange(count),
        {"sha256": "a"},
        **options,
    )


@pytest.mark.parametrize("most_graph_rows, kind", [(10**6, "HNSW"), (0, "IVF")])
def test_it_finds_nearly_all_neighbors(
    tmp_path, monkeypatch, most_graph_rows, kind
):
    monkeypatch.setattr(approximate, "_MOST_GRAPH_ROWS", most_graph_rows)
    rows, queries = clustered(4000, 16), clustered(50, 16, seed=1)
    exact = shelf_of(rows)
    exact.save(tmp_path / "exact")
    assert gallery.open_gallery(tmp_path / "exact").index is None
    dataclasses.replace(exact, is_approximate=True).save(tmp_path / "nearly")
    nearly = gallery.open_gallery(tmp_path / "nearly")
    assert nearly.index.kind.startswith(kind) and nearly.index.recall > 0.7
    cosines, expected = exact.search(queries, k=5)
    similarities, neighbors = nearly.search(queries, k=5)
    is_right = neighbors == expected
    assert is_right.mean() > 0.7
    np.testing.assert_allclose(
        similarities[is_right], cosines[is_right], atol=4e-6
    )
    # More rows than the lists of a query hold: all are found.
    assert (
        nearly.search(queries[:2], k=4000)[1]
        == exact.search(queries[:2], k=4000)[1]
    ).all()


def test_a_change_builds_it_anew(tmp_path):
    shelf = dataclasses.replace(make("abc"), is_approximate=True)
    shelf.save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert opened.index.recall == 1
    grown = opened.add(make("d"))
    assert grown.index is None and grown.is_approximate
    grown.save(tmp_path / "a")
    again = gallery.open_gallery(tmp_path / "a")
    assert again.index is not None and equal(again, grown)
    # The index of an earlier version is gone; the new one answers.
    saved = again.save(tmp_path / "a")
    assert saved.version == 3 and saved.index.recall == 1
    _, rows = saved.search(saved.representations, k=1)
    assert rows[:, 0].tolist() == [0, 1, 2, 0]  # d is equal to a
    again = saved
    again.part(np.zeros(4, bool)).save(tmp_path / "a")
    assert gallery.open_gallery(tmp_path / "a").index is None


def test_without_the_extra_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(exceptions.MissingPackage, match="extra `search`: pip"):
        dataclasses.replace(make("a"), is_approximate=True).save(tmp_path / "a")
    assert not gallery.store.exists(tmp_path / "a")


def test_a_remote_gallery_has_no_index():
    with pytest.raises(ValueError, match="but on a local disk, .* got gs://a"):
        approximate.build("gs://a/rows.faiss", np.eye(3, dtype=np.float32))


def test_another_file_is_refused(tmp_path):
    import faiss

    shelf = dataclasses.replace(make("abc"), is_approximate=True)
    shelf.save(tmp_path / "a")
    file = tmp_path / "a" / "1" / "rows.faiss"
    fewer = faiss.IndexHNSWFlat(4, 32)
    for content, message in (
        (bytes(file.stat().st_size), "got what faiss cannot read"),
        (faiss.serialize_index(faiss.IndexFlatIP(4)), "got IndexFlatIP"),
        (faiss.serialize_index(fewer), "got one of 0 x 4 numbers"),
    ):
        file.write_bytes(bytes(content))
        index = gallery.Index(str(file), "HNSW32", 1.0)
        with pytest.raises(ValueError, match=message):
            index.search(shelf.representations, shelf.representations, 1)
