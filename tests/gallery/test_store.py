"""Galleries on disk: saved, opened, changed, and killed while they change."""

import dataclasses
import importlib.util
import json
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from etils import epath

from supcon_tf import gallery
from supcon_tf.disk import files
from supcon_tf.gallery import indexing
from tests import processes as tests_processes
from tests.faults import processes
from tests.gallery import galleries


def class_by_id(shelf):
    names = map(shelf.class_name, shelf.labels)
    return dict(zip(shelf.ids, names, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_opened_gallery_equals_the_saved_gallery(tmp_path, dtype):
    shelf = galleries.lettered("abc", ("größer", "x"), [1, -1, 0])
    rows = gallery.store.quantized(shelf.representations, dtype)
    threshold = gallery.Threshold(0.5, 0.95, "/known")
    shelf = dataclasses.replace(
        shelf, representations=rows, threshold=threshold
    )
    shelf.save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert galleries.equal(opened, shelf) and opened.version == 1
    assert isinstance(opened.representations, np.memmap)
    with pytest.raises(ValueError, match="`path` must have no gallery, or ver"):
        shelf.save(tmp_path / "a")
    shelf.part(np.array([False, True, True])).save(tmp_path / "a", True)
    assert gallery.open_gallery(tmp_path / "a").ids == ("b", "c")
    # A gallery that is open keeps its rows.
    assert np.array_equal(opened.representations, shelf.representations)


def test_a_gallery_in_a_bucket_is_opened(tmp_path, monkeypatch):
    """gs://bucket is a folder here, by TensorFlow's functions for files."""

    class Gfile:
        def __getattr__(self, name):
            return lambda *paths, **options: getattr(tf.io.gfile, name)(
                *(re.sub("^gs:/", str(tmp_path), str(p)) for p in paths),
                **options,
            )

    monkeypatch.setattr(type(epath.backend.tf_backend), "gfile", Gfile())
    shelf = galleries.lettered("abc")
    shelf.save("gs://bucket/a")
    opened = gallery.open_gallery("gs://bucket/a", check_digests=True)
    assert galleries.equal(opened, shelf)


def test_a_gallery_that_another_process_changed_is_not_overwritten(tmp_path):
    """Two users open a gallery: the second would lose the rows of the first."""
    galleries.lettered("abc").save(tmp_path / "a")
    first, second = (gallery.open_gallery(tmp_path / "a") for _ in range(2))
    saved = first.add(galleries.lettered("d")).save(tmp_path / "a")
    assert saved.version == 2
    with pytest.raises(
        ValueError, match="version 1, which was read.*version 2"
    ):
        second.remove(["a"]).save(tmp_path / "a")
    assert gallery.open_gallery(tmp_path / "a").ids == ("a", "b", "c", "d")
    assert saved.remove(["a"]).save(tmp_path / "a").version == 3


def test_a_gallery_that_changes_while_it_is_opened_is_opened_anew(
    tmp_path, monkeypatch
):
    galleries.lettered("ab").save(tmp_path / "a")
    larger, check_size = galleries.lettered("abc"), gallery.store._check_size

    def check_late(path, size):
        if path.parent.name == "1":  # another process is faster
            larger.save(tmp_path / "a", overwrite=True)
        check_size(path, size)

    monkeypatch.setattr(gallery.store, "_check_size", check_late)
    opened = gallery.open_gallery(tmp_path / "a")
    assert opened.version == 2 and galleries.equal(opened, larger)


def test_a_gallery_that_changes_while_it_is_checked_is_opened_anew(
    tmp_path, monkeypatch
):
    """As an export opens a gallery while another process adds rows."""
    galleries.lettered("ab").save(tmp_path / "a")
    larger, digest = galleries.lettered("abc"), files.digest

    def digest_late(path):
        if path.parent.name == "1":  # another process is faster
            larger.save(tmp_path / "a", overwrite=True)
        return digest(path)

    monkeypatch.setattr(files, "digest", digest_late)
    run = types.SimpleNamespace(
        files=types.SimpleNamespace(galleries=epath.Path(tmp_path)),
        identity=galleries.CHECKPOINT,
    )
    opened = indexing.open_of_run(run, "a")
    assert opened.version == 2 and galleries.equal(opened, larger)


def test_an_empty_gallery_is_saved_and_grows(tmp_path):
    empty = galleries.lettered("ab").remove(["a", "b"])
    with pytest.raises(ValueError, match="must have rows to be searched"):
        empty.search(np.ones([1, 4]))
    empty.save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert len(opened) == 0 and opened.dim == 4
    assert opened.add(galleries.lettered("c")).ids == ("c",)


@pytest.mark.parametrize(
    "dtype, tolerance", [("float16", 1e-3), ("int8", 2e-2)]
)
def test_smaller_numbers_keep_the_cosines(dtype, tolerance):
    rows = np.random.default_rng(0).normal(size=[50, 64]).astype(np.float32)
    rows[3] = 0
    smaller = gallery.store.quantized(1000 * rows, dtype)
    assert smaller.dtype == dtype
    shelf = dataclasses.replace(
        galleries.from_rows(rows), representations=smaller
    )
    similarities, neighbors = shelf.search(rows[:3], k=50)
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    for cosines, query, order in zip(
        similarities, unit[:3], neighbors, strict=True
    ):
        np.testing.assert_allclose(cosines, unit[order] @ query, atol=tolerance)
    assert neighbors[:, 0].tolist() == [0, 1, 2]


def test_added_rows_replace_equal_ids():
    shelf = galleries.lettered("abc", ("x", "y"), [0, 1, -1])
    others = galleries.lettered("dbe", ("z", "y"), [0, 1, -1], seed=1)
    grown = shelf.add(others)
    assert class_by_id(grown) == {
        **{"a": "x", "c": None},
        **{"d": "z", "b": "y", "e": None},
    }
    assert grown.class_names == ("x", "z", "y")
    assert np.array_equal(grown.representations[2:], others.representations)
    # "y" had a single row, which was replaced.
    assert grown.class_counts() == {"x": 1, "z": 1, "y": 1}
    rows = gallery.store.quantized(shelf.representations, "int8")
    small = dataclasses.replace(shelf, representations=rows)
    added = small.add(galleries.lettered("d"))
    assert added.representations.dtype == np.int8
    other = {"checkpoint": "step-00000002", "sha256": "b" * 64}
    for made_of in (other, {}):
        with pytest.raises(ValueError, match="`other` must be of step-0000000"):
            shelf.add(galleries.lettered("d", made_of=made_of))


def test_examples_that_the_gallery_has_are_not_missing():
    shelf = galleries.lettered("abc", ("x", "y"), [0, 1, -1])
    # b is of another class.
    new = galleries.lettered("abcd", ("y", "x"), [1, 1, -1, 0])

    def missing(ids):
        examples = dataclasses.replace(new, ids=tuple(ids))
        return np.flatnonzero(shelf.missing(examples)).tolist()

    assert missing("abcd") == missing("ABCD") == [1, 3]
    # The files of a and c have changed places, and their rows are replaced.
    assert missing("cbad") == [0, 1, 2, 3]


def with_contents(contents):
    """A gallery from {id: letter of the content}."""
    letters = galleries.lettered("".join(contents.values()))
    return dataclasses.replace(letters, ids=tuple(contents))


@pytest.mark.parametrize(
    "earlier, changed",
    [
        ({"a": "x", "c": "z"}, {"a": "w", "b": "x", "c": "z"}),  # mv a b
        ({"a": "x", "b": "y"}, {"a": "y", "b": "x"}),
        ({"1": "x", "2": "y", "3": "z"}, {"1": "y", "2": "z", "3": "x"}),
        # A line is inserted at the top of a file of texts.
        ({"1": "x", "2": "y"}, {"1": "w", "2": "x", "3": "y"}),
    ],
)
def test_no_content_is_lost_where_files_change_names(earlier, changed):
    """A content whose only row is replaced is not there already."""
    examples = with_contents(changed)

    def grow(shelf):
        return shelf.add(examples.part(shelf.missing(examples)))

    grown = grow(with_contents(earlier))
    digests = dict(zip(examples.ids, examples.digests, strict=True))
    assert dict(zip(grown.ids, grown.digests, strict=True)) == digests
    assert grow(grown).ids == grown.ids
    assert not grown.missing(examples).any()


def test_rows_and_classes_are_removed():
    shelf = galleries.lettered("abcd", ("x", "y", "z"), [0, 1, 2, -1])
    remaining = shelf.remove(["a"], ["y"])
    assert class_by_id(remaining) == {"c": "z", "d": None}
    assert remaining.class_names == ("z",)
    assert np.array_equal(remaining.representations, shelf.representations[2:])
    with pytest.raises(
        ValueError, match="`ids` must be .* has a, b, c, .*q, r"
    ):
        shelf.remove(["r", "a", "q"])
    with pytest.raises(ValueError, match="`class_names` must be .*got w"):
        shelf.remove((), ["w"])


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"ids": ("a", "b", "a")}, "`ids` must be different, got a"),
        ({"labels": np.array([0, -1, -1])}, "`labels` must be -1, or below 0"),
        ({"ids": ("a", "b")}, "must be of the 3 representations, got .3, 2, 3"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(galleries.lettered("abc"), **fields)


def cut(file):
    file.write_bytes(file.read_bytes()[:-3])


def flip(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def edit(**change):
    return lambda file: file.write_text(
        json.dumps(json.loads(file.read_text()) | change)
    )


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("representations.npy", cut, "representations.npy must be as it was"),
        ("ids.json", lambda file: file.unlink(), "ids.json must be as it was"),
        ("gallery.json", cut, "gallery.json must be"),
        ("gallery.json", edit(format=1), "of format 2"),
        ("gallery.json", edit(class_names=["x"]), "a/1.* must be as"),
        ("gallery.json", edit(made_of=3), "a/1.* must be as"),
        ("gallery.json", edit(files=None), "a/1.* must be as"),
    ],
)
def test_damage_is_a_single_line(tmp_path, name, damage, message):
    shelf = galleries.lettered("abc", ("x", "y"), [1, -1, 0])
    shelf.save(tmp_path / "a")
    damage(tmp_path / "a" / "1" / name)
    remedy = "index.py --data_dir=DIR --overwrite"
    with pytest.raises(ValueError, match=f"{message}.*{remedy}"):
        gallery.open_gallery(tmp_path / "a")
    with pytest.raises(ValueError, match="must be a gallery of tools/index.py"):
        gallery.open_gallery(tmp_path)


def test_a_flipped_byte_is_noticed_before_a_change(tmp_path):
    galleries.lettered("abc").save(tmp_path / "a")
    gallery.open_gallery(tmp_path / "a", check_digests=True)
    record = json.loads((tmp_path / "a" / "1" / "gallery.json").read_text())
    assert record["made_of"] == galleries.CHECKPOINT
    names = {"representations.npy", "labels.npy", "digests.npy", "ids.json"}
    assert {*record["files"]} == names
    flip(tmp_path / "a" / "1" / "representations.npy")
    gallery.open_gallery(tmp_path / "a")
    with pytest.raises(ValueError, match="as it was written, but it differs"):
        gallery.open_gallery(tmp_path / "a", check_digests=True)


KILLED = """
import dataclasses, multiprocessing, pathlib, shutil, sys
sys.path.insert(0, {root!r})
from supcon_tf import gallery
from supcon_tf.gallery import approximate
from tests.gallery import galleries
if {approximate}:
    import faiss  # a single time for all forks

approximate.recall = lambda *_: 1.0  # TensorFlow would start in each fork
saved, path = (
    pathlib.Path(FOLDER) / name / "a" for name in ("saved", "galleries")
)
small, large = (
    dataclasses.replace(
        galleries.lettered(ids), is_approximate={approximate}
    )
    for ids in ("abc", "abcde")
)

def in_process(function, *arguments):
    # A fork of a process that has run threads of faiss would hang.
    child = multiprocessing.get_context("fork").Process(
        target=function, args=arguments
    )
    child.start()
    child.join()
    assert child.exitcode == 0

in_process(small.save, saved)

def prepare():
    shutil.rmtree(path.parent, ignore_errors=True)
    shutil.copytree(saved, path)

def run():
    large.save(path, overwrite=True)

def check():
    opened = gallery.open_gallery(path)
    assert any(galleries.equal(opened, whole) for whole in (small, large))
    if opened.index:
        assert faiss.read_index(opened.index.path).ntotal == len(opened)
    large.save(path, overwrite=True)  # no leftover is in the way
    (version,) = path.iterdir()
    assert version.name.isdecimal()

def verify(count):
    in_process(check)
"""


def test_a_kill_leaves_the_old_or_the_new_gallery(tmp_path):
    """With an index where faiss is installed."""
    program = KILLED.format(
        root=str(tests_processes.ROOT),
        approximate=importlib.util.find_spec("faiss") is not None,
    )
    assert processes.kill_everywhere(program, tmp_path) >= 7
