"""Files that are there whole, or not at all."""

from __future__ import annotations

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
