"""Images and exports on disk, and damage to an export."""

from __future__ import annotations

import json
import os

import pytest

from supcon_tf.clients import paths
from supcon_tf.disk import files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.JPG", "a/c.png", "a/b.Jpeg", "z.gif", "y.png", "notes.txt"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_folders_are_searched_and_each_image_comes_once(folder):
    names = [os.path.relpath(f, folder) for f in paths.find_images([folder])]
    # One that no model reads is asked about too: the reason is in its row.
    assert names == ["a/b.Jpeg", "a/c.png", "b.JPG", "y.png", "z.gif"]
    chosen = [folder / "z.gif", folder / "notes.txt", folder, folder / "a/../a"]
    distinct = [os.path.relpath(f, folder) for f in paths.find_images(chosen)]
    assert distinct == ["z.gif", "notes.txt", *names[:-1]]


def test_hidden_files_are_left_out_and_links_followed(folder):
    """As training does; a folder that links lead to twice comes once."""
    for name in (".thumbs/a.png", "__MACOSX/._a.png", "._b.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    (folder / "linked").symlink_to("a")
    (folder / "again").symlink_to(".")
    (folder / "gone.png").symlink_to("nowhere")
    names = [os.path.relpath(f, folder) for f in paths.find_images([folder])]
    assert {os.path.basename(name) for name in names} == {
        "b.Jpeg", "c.png", "b.JPG", "y.png", "z.gif", "gone.png",
    }  # fmt: skip
    assert len(names) == 6


def test_missing_images_are_named(folder):
    with pytest.raises(FileNotFoundError, match="no image or folder .*/x.png"):
        paths.find_images([folder, folder / "x.png"])
    with pytest.raises(ValueError, match="got .*/empty, which has no .jpg, "):
        paths.find_images([folder, folder / "empty"])
    with pytest.raises(ValueError, match="`images` must be files or folders"):
        paths.find_images([])


def test_the_newest_whole_version_is_found(tmp_path):
    for name in ("2", "10", "9", ".11.partial", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_bytes(b"")
    (tmp_path / "12").mkdir()
    assert paths.find_export(tmp_path).name == "10"
    assert paths.find_export(tmp_path, 9).name == "9"
    assert paths.find_export(tmp_path / "old").name == "old"
    with pytest.raises(ValueError, match="hold version 12 .* has 2, 9, 10"):
        paths.find_export(tmp_path, 12)
    with pytest.raises(ValueError, match="must hold version 2 .* has none"):
        paths.find_export(tmp_path / "2", 2)
    with pytest.raises(ValueError, match="/no must hold an export of tools/e"):
        paths.find_export(tmp_path / "no")


FILES = {"saved_model.pb": b"graph" * 50, "variables/größer": b""}


@pytest.fixture
def export(tmp_path):
    """A directory with a record of its files, as of tools/export.py."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    listed = {name: files.digest(tmp_path / name) for name in FILES}
    (tmp_path / "assets.extra").mkdir()
    record(tmp_path).write_text(
        json.dumps({"files": listed}, ensure_ascii=False), "utf-8"
    )
    return tmp_path


def record(export):
    return export / "assets.extra" / "metadata.json"


def test_undamaged_exports_pass(export):
    paths.check_files(export)
    (export / "more").write_text("what is not listed may be there")
    paths.check_files(str(export))
    record(export).unlink()
    (export / "saved_model.pb").unlink()
    paths.check_files(export)  # there is nothing to check


def test_a_file_that_is_missing_or_differs_is_named(export):
    graph = export / "saved_model.pb"
    for content in (b"grapf" + b"graph" * 49, b"graph", b""):
        graph.write_bytes(content)
        with pytest.raises(ValueError, match="exported, but saved_model.pb d"):
            paths.check_files(export)
    graph.write_bytes(FILES["saved_model.pb"])
    (export / "variables" / "größer").unlink()
    with pytest.raises(ValueError, match="but variables/größer is missing$"):
        paths.check_files(export)


@pytest.mark.parametrize("listed", ['{"variables": {}}', '[["7", {}]]'])
def test_a_record_of_what_is_no_file_is_no_pass(export, listed):
    os.mkfifo(export / "7")  # to read it would never end
    record(export).write_text(f'{{"files": {listed}}}')
    with pytest.raises(ValueError, match="but (variables|7) is missing$"):
        paths.check_files(export)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b'{"files": {', b"\xff", b"{}", b"[]", b'{"files": 1}'),
        pytest.param(b"[" * 100_000, id="brackets"),
    ],
)
def test_a_record_that_is_damaged_is_no_pass(export, content):
    record(export).write_bytes(content)
    with pytest.raises(ValueError, match="but assets.extra/metadata.json list"):
        paths.check_files(export)
