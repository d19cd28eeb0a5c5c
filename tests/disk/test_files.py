"""Files and directories that are written whole or not at all."""

import os
import pathlib

import pytest
from etils import epath

from supcon_tf.disk import files


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "evaluation.json"
    files.write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        files.write_atomically(path, "\udcff")
    assert path.read_text() == "old"
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_digest_covers_all_chunks(tmp_path, monkeypatch):
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


def test_a_tilde_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for path, expected in {
        "~": f"{tmp_path}/home",
        "~/runs/x": f"{tmp_path}/home/runs/x",
        "a/~": "a/~",
        "gs://bucket/~": "gs://bucket/~",
        "imagenet": "imagenet",
        # A folder that is called so: pathlib would drop the dot and slash.
        "./~/x": f"{tmp_path}/~/x",
    }.items():
        assert files.expanded(path) == expected
        assert files.expanded(epath.Path(expected)) == expected
    message = "`run_dir` must be of a user that there is, .*got ~nobody9/x$"
    with pytest.raises(ValueError, match=message):
        files.expanded("~nobody9/x", "run_dir")
    (tmp_path / "~nobody9").mkdir()
    (tmp_path / "~nobody9" / "x").touch()
    assert files.expanded("~nobody9/x") == f"{tmp_path}/~nobody9/x"


PATTERN = "a[0.1]*?\\b"


def test_children_of_a_directory_with_any_name(tmp_path):
    folder = tmp_path / PATTERN
    for name in ("step-1", "step-2", ".step-3", "other"):
        (folder / name).mkdir(parents=True)

    def names(pattern):
        return [path.name for path in files.children(folder, pattern)]

    assert names("step-*") == ["step-1", "step-2"]
    assert names("*") == ["other", "step-1", "step-2"]
    assert names(".step-*") == [".step-3"]
    assert files.children(folder / "none") == []


def test_a_path_with_patterns_has_a_link(tmp_path):
    plain, patterned = tmp_path / "plain", tmp_path / PATTERN
    patterned.mkdir()
    (patterned / "file").write_text("here")
    assert files.literal(plain) == str(plain)
    for _ in range(2):
        path = files.literal(patterned)
        assert pathlib.Path(path, "file").read_text() == "here"
        assert not set(path) & set("*?[\\")
    message = r"none of \* \? \[ .*not local, got gs"
    with pytest.raises(ValueError, match=message):
        files.literal("gs://bucket/a[1]")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("x" * 300, "File name too long"),
        ("new/" + "x" * 300, "File name too long"),
        ("new/" * 1000, "File name too long"),
        ("file/below", "Not a directory"),
        ("link", "No such file or directory"),
        ("gs://bucket/a[1]", r"none of \* \? \["),
    ],
)
def test_unwritable_folders_are_refused(path, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"`run_dir` must .*{reason}"):
        files.check_writable("run_dir", path)
    for good in ("new/folder", "x" * 255, "y/" * 900):
        files.check_writable("run_dir", good)
    assert {x.name for x in tmp_path.iterdir()} == {"file", "link"}
