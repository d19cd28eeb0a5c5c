"""Damage to an export is found; what has no record passes."""

from __future__ import annotations

import hashlib
import json

import pytest

from supcon_tf.clients import integrity

FILES = {"saved_model.pb": b"graph" * 50, "variables/größer": b""}


@pytest.fixture
def export(tmp_path):
    """A directory with a record of its files, as tools/export.py writes it."""
    listed = {}
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        listed[name] = {"sha256": sha256, "bytes": len(content)}
    (tmp_path / "assets.extra").mkdir()
    record(tmp_path).write_text(
        json.dumps({"files": listed}, ensure_ascii=False), "utf-8"
    )
    return tmp_path


def record(export):
    return export / "assets.extra" / "metadata.json"


def test_what_is_whole_passes(export):
    integrity.check_files(export)
    (export / "more").write_text("what is not listed may be there")
    integrity.check_files(str(export))


def test_a_file_that_is_missing_or_differs_is_named(export):
    graph = export / "saved_model.pb"
    for content in (b"grapf" + b"graph" * 49, b"graph", b""):
        graph.write_bytes(content)
        with pytest.raises(ValueError, match="exported, but saved_model.pb d"):
            integrity.check_files(export)
    graph.write_bytes(FILES["saved_model.pb"])
    (export / "variables" / "größer").unlink()
    with pytest.raises(ValueError, match="but variables/größer is missing$"):
        integrity.check_files(export)


@pytest.mark.parametrize(
    "content", [b"", b'{"files": {', b"\xff", b"{}", b"[]", b'{"files": 1}']
)
def test_a_record_that_is_damaged_is_no_pass(export, content):
    record(export).write_bytes(content)
    with pytest.raises(ValueError, match="but assets.extra/metadata.json list"):
        integrity.check_files(export)


def test_a_saved_model_without_a_record_passes(export):
    record(export).unlink()
    (export / "saved_model.pb").unlink()
    integrity.check_files(export)
