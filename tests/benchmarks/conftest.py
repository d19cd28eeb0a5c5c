"""Benchmarks in this process, which has its threads and shares its cores."""

from __future__ import annotations

import importlib

import pytest

from benchmarks import measuring


@pytest.fixture
def here(monkeypatch):
    """Lets suites measure here: threads cannot be set once a library ran."""
    for name in ("tensorflow", "torch"):
        monkeypatch.setattr(
            measuring,
            f"import_{name}",
            lambda threads, name=name: importlib.import_module(name),
        )
    monkeypatch.setattr(measuring, "pin", lambda threads: None)
