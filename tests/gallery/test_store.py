"""Galleries: what is on disk, what is added and removed, and kills."""

import dataclasses
import json

import numpy as np
import pytest

from supcon_tf import gallery
from tests import processes as tests_processes
from tests.faults import processes

CHECKPOINT = {"checkpoint": "step-00000001", "sha256": "a" * 64}
OTHER = {"checkpoint": "step-00000002", "sha256": "b" * 64}


def make(ids, class_names=(), labels=None, seed=0, **fields):
    """A gallery of random rows, one per letter of `ids`."""
    rows = np.random.default_rng(seed).normal(size=[len(ids), 4])
    digests = np.array([ord(letter) for letter in ids], np.int64)
    labels = np.full(len(ids), -1) if labels is None else np.array(labels)
    options = {"made_of": CHECKPOINT, **fields}
    return gallery.Gallery(
        rows.astype(np.float32),
        labels.astype(np.int32),
        class_names,
        tuple(ids),
        digests,
        **options,
    )


def described(shelf):
    """The id and the class of each row."""
    names = map(shelf.class_name, shelf.labels)
    return dict(zip(shelf.ids, names, strict=True))


def equal(first, second):
    fields = "class_names", "ids", "made_of", "threshold"
    arrays = "representations", "labels", "digests"
    return all(
        getattr(first, name) == getattr(second, name) for name in fields
    ) and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        and getattr(first, name).dtype == getattr(second, name).dtype
        for name in arrays
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_what_is_saved_is_opened(tmp_path, dtype):
    shelf = make("abc", ("größer", "x"), [1, -1, 0])
    rows = gallery.store.quantized(shelf.representations, dtype)
    threshold = gallery.Threshold(0.5, 0.95, "/known")
    shelf = dataclasses.replace(
        shelf, representations=rows, threshold=threshold
    )
    shelf.save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert equal(opened, shelf) and opened.version == 1
    assert isinstance(opened.representations, np.memmap)
    with pytest.raises(ValueError, match="`path` must have no gallery, or ver"):
        shelf.save(tmp_path / "a")
    shelf.part(np.array([False, True, True])).save(tmp_path / "a", True)
    assert gallery.open_gallery(tmp_path / "a").ids == ("b", "c")
    # The one that was open has the rows that it had.
    assert np.array_equal(opened.representations, shelf.representations)


def test_a_gallery_that_was_changed_since_is_not_overwritten(tmp_path):
    """Of two who opened it, the second would lose the rows of the first."""
    make("abc").save(tmp_path / "a")
    first, second = (gallery.open_gallery(tmp_path / "a") for _ in range(2))
    saved = first.add(make("d")).save(tmp_path / "a")
    assert saved.version == 2
    with pytest.raises(
        ValueError, match="version 1, which was read.*version 2"
    ):
        second.remove(["a"]).save(tmp_path / "a")
    assert gallery.open_gallery(tmp_path / "a").ids == ("a", "b", "c", "d")
    assert saved.remove(["a"]).save(tmp_path / "a").version == 3


def test_an_empty_gallery_is_saved_and_grows(tmp_path):
    make("ab").remove(["a", "b"]).save(tmp_path / "a")
    opened = gallery.open_gallery(tmp_path / "a")
    assert len(opened) == 0 and opened.dim == 4
    assert opened.add(make("c")).ids == ("c",)


def test_a_flipped_byte_is_noticed_before_a_change(tmp_path):
    make("abc").save(tmp_path / "a")
    gallery.store.check_digests(tmp_path / "a")
    file = tmp_path / "a" / "1" / "representations.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="as it was written, but it differs"):
        gallery.store.check_digests(tmp_path / "a")


@pytest.mark.parametrize(
    "dtype, tolerance", [("float16", 1e-3), ("int8", 2e-2)]
)
def test_smaller_numbers_keep_the_cosines(dtype, tolerance):
    rows = np.random.default_rng(0).normal(size=[50, 64]).astype(np.float32)
    rows[3] = 0
    smaller = gallery.store.quantized(1000 * rows, dtype)
    assert smaller.dtype == dtype
    shelf = make("a" * 0)
    shelf = dataclasses.replace(
        shelf,
        representations=smaller,
        labels=np.zeros(50, np.int32),
        class_names=("a",),
        ids=tuple(map(str, range(50))),
        digests=np.arange(50),
    )
    similarities, found_rows = shelf.search(rows[:3], k=50)
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    for cosines, query, order in zip(
        similarities, unit[:3], found_rows, strict=True
    ):
        np.testing.assert_allclose(cosines, unit[order] @ query, atol=tolerance)
    assert found_rows[:, 0].tolist() == [0, 1, 2]


def test_rows_are_added_and_replace_equal_ids():
    shelf = make("abc", ("x", "y"), [0, 1, -1])
    grown = shelf.add(make("dbe", ("z", "y"), [0, 1, -1], seed=1))
    assert described(grown) == {
        **{"a": "x", "c": None},
        **{"d": "z", "b": "y", "e": None},
    }
    assert grown.class_names == ("x", "z", "y")
    new_rows = make("dbe", seed=1).representations
    assert np.array_equal(grown.representations[2:], new_rows)
    # "y" had one row, which was replaced.
    assert grown.class_counts() == {"x": 1, "z": 1, "y": 1}
    small = dataclasses.replace(
        shelf,
        representations=gallery.store.quantized(shelf.representations, "int8"),
    )
    assert small.add(make("d")).representations.dtype == np.int8
    for made_of in (OTHER, {}):
        with pytest.raises(ValueError, match="`other` must be of step-0000000"):
            shelf.add(make("d", made_of=made_of))


def test_what_is_there_already_is_not_missing():
    shelf = make("abc", ("x", "y"), [0, 1, -1])
    new = make("abcd", ("y", "x"), [1, 1, -1, 0])  # b is of another class

    def missing(ids):
        examples = ids, new.digests, new.labels, new.class_names
        return shelf.missing(*examples).tolist()

    assert missing("abcd") == missing("ABCD") == [1, 3]
    # The files of a and c have changed places, and their rows are replaced.
    assert missing("cbad") == [0, 1, 2, 3]


def test_rows_and_classes_are_removed():
    shelf = make("abcd", ("x", "y", "z"), [0, 1, 2, -1])
    remaining = shelf.remove(["a"], ["y"])
    assert described(remaining) == {"c": "z", "d": None}
    assert remaining.class_names == ("z",)
    assert np.array_equal(remaining.representations, shelf.representations[2:])
    with pytest.raises(ValueError, match="`ids` must be in the gallery .*q, r"):
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
        dataclasses.replace(make("abc"), **fields)


def test_an_empty_gallery_is_not_searched():
    with pytest.raises(ValueError, match="must have rows to be searched"):
        make("ab").remove(["a", "b"]).search(np.ones([1, 4]))


@pytest.mark.parametrize("name", ["representations.npy", "ids.json"])
@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_damage_is_one_line(tmp_path, name, damage):
    make("abc").save(tmp_path / "a")
    file = tmp_path / "a" / "1" / name
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-3])
    else:
        file.unlink()
    with pytest.raises(ValueError, match=rf"{name} must be as it was .*index"):
        gallery.open_gallery(tmp_path / "a")


@pytest.mark.parametrize("record", ["{", "{}", '{"format": 1}'])
def test_a_record_of_another_kind_is_refused(tmp_path, record):
    make("abc").save(tmp_path / "a")
    (tmp_path / "a" / "1" / "gallery.json").write_text(record)
    message = "(gallery.json must be|of format 2).* --overwrite"
    with pytest.raises(ValueError, match=message):
        gallery.open_gallery(tmp_path / "a")


@pytest.mark.parametrize(
    "change",
    [{"class_names": ["x"]}, {"made_of": 3}, {"files": None}],
)
def test_a_record_that_was_edited_is_refused(tmp_path, change):
    make("abc", ("x", "y"), [1, -1, 0]).save(tmp_path / "a")
    path = tmp_path / "a" / "1" / "gallery.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match="a/1.* must be as .* --overwrite"):
        gallery.open_gallery(tmp_path / "a")
    with pytest.raises(ValueError, match="must be a gallery of tools/index.py"):
        gallery.open_gallery(tmp_path)


def test_a_record_lists_sizes_and_digests(tmp_path):
    make("abc").save(tmp_path / "a")
    record = json.loads((tmp_path / "a" / "1" / "gallery.json").read_text())
    assert record["made_of"] == CHECKPOINT
    assert {*record["files"]} == {
        "representations.npy",
        "labels.npy",
        "digests.npy",
        "ids.json",
    }
    assert all(len(file["sha256"]) == 64 for file in record["files"].values())


KILLED = """
import dataclasses, functools, multiprocessing, pathlib, shutil, sys
sys.path.insert(0, {root!r})
from supcon_tf import gallery
from tests.gallery import test_store

path = pathlib.Path(FOLDER) / "galleries" / "a"
small, large = (
    dataclasses.replace(test_store.make(ids), is_approximate={approximate})
    for ids in ("abc", "abcde")
)

def in_process(function):
    # A fork of a process that has run TensorFlow would hang.
    @functools.wraps(function)
    def call(*arguments):
        child = multiprocessing.get_context("fork").Process(
            target=function, args=arguments
        )
        child.start()
        child.join()
        assert child.exitcode == 0
    return call

@in_process
def prepare():
    shutil.rmtree(path.parent, ignore_errors=True)
    small.save(path)

def run():
    large.save(path, overwrite=True)

@in_process
def verify(count):
    opened = gallery.open_gallery(path)
    assert any(test_store.equal(opened, whole) for whole in (small, large))
    _, rows = opened.search(opened.representations, k=1)
    assert rows[:, 0].tolist() == [*range(len(opened))]
    large.save(path, overwrite=True)  # no leftover is in the way
    (version,) = path.iterdir()
    assert version.name.isdecimal()
"""


@pytest.mark.parametrize("approximate", [False, True])
def test_a_kill_leaves_the_old_or_the_new_gallery(tmp_path, approximate):
    if approximate:
        pytest.importorskip("faiss")
    program = KILLED.format(
        root=str(tests_processes.ROOT), approximate=approximate
    )
    assert processes.kill_everywhere(program, tmp_path) >= 7
