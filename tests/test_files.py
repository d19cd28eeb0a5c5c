"""Files and directories that are there whole, or not at all."""

import os

import pytest

from supcon_tf import files


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "evaluation.json"
    files.write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_atomically(path, "\udcff")
    assert path.read_text() == "old"
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_digest_is_of_the_whole_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"abc")
    monkeypatch.setattr(files, "_CHUNK", 2)
    assert files.digest(tmp_path / "file") == {
        "sha256": "ba7816bf8f01cfea414140de5dae2223"
        "b00361a396177a9cb410ff61f20015ad",  # FIPS 180, example of "abc"
        "bytes": 3,
    }


def make(path, content, overwrite=False):
    with files.make_atomically(path, overwrite) as partial:
        assert partial.parent == path.parent and partial != path
        (partial / "file").write_text(content)


def test_a_directory_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "below" / "converted"
    with files.make_atomically(path) as first:
        (first / "first").touch()
        with files.make_atomically(path, overwrite=True) as second:
            (second / "second").touch()  # does not mix with the first
            assert not path.exists()
        assert [p.name for p in path.iterdir()] == ["second"]
        path.rename(tmp_path / "elsewhere")
    assert [p.name for p in path.iterdir()] == ["first"]
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_replaced_only_if_asked(tmp_path):
    path = tmp_path / "converted"
    make(path, "old")
    with pytest.raises(ValueError, match="converted must not exist"):
        make(path, "new")
    with pytest.raises(UnicodeEncodeError):
        make(path, "\udcff", overwrite=True)
    assert (path / "file").read_text() == "old"
    make(path, "new", overwrite=True)
    assert (path / "file").read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("published", [False, True])
def test_a_replacement_at_any_time_leaves_a_directory(
    tmp_path, monkeypatch, published
):
    """Old or new is there, whole, before and after every rename."""
    path = tmp_path / "converted"
    make(path, "old")
    rename, seen = os.rename, []

    def watched(source, target):
        seen.append(sorted(p.read_text() for p in tmp_path.glob("*/file")))
        if os.fspath(target) == str(path) and len(seen) == 2:
            if published:  # by another process
                make_there(path)
            raise PermissionError
        rename(source, target)

    def make_there(path):
        path.mkdir()
        (path / "file").write_text("of another")

    monkeypatch.setattr(os, "rename", watched)
    with pytest.raises(PermissionError):
        make(path, "new", overwrite=True)
    assert seen[:2] == [["new", "old"]] * 2
    kept = "of another" if published else "old"
    assert (path / "file").read_text() == kept
    assert list(tmp_path.iterdir()) == [path]
