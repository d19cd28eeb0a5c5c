"""Peers' files and the versions of libraries."""

from __future__ import annotations

import sys

import numpy as np

from supcon_tf.benchmarks import libraries


def test_a_peers_file_finds_its_siblings(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "peer_package"
    package.mkdir()
    (package / "constants.py").write_text("ANSWER = 42\n")
    (package / "json.py").write_text("")
    file = package / "losses.py"
    file.write_text(
        "import json\nfrom peer_package import constants\n"
        "text = json.dumps(constants.ANSWER)\n"
    )
    assert libraries.load_file(file).text == "42"
    assert sys.path[-1] == str(tmp_path)


def test_versions_are_of_what_was_imported():
    assert libraries.versions("numpy", "no_such_library") == {
        "numpy": np.__version__
    }
