"""Benchmarks as real processes, and their measurements in this process."""

import argparse
import importlib
import json
import pathlib

import pytest

from benchmarks import harness, measuring, results
from tests import forks
from tests.tool_settings import BENCHMARKS

ROOT = pathlib.Path(__file__).parent.parent.parent
SUPCONTRAST = """
from benchmarks import step

class SupConLoss:
    def __init__(self, temperature, base_temperature=0.07):
        self.temperature = temperature
        self.base_temperature = base_temperature

    def __call__(self, projections, labels):
        loss = step.plain_loss(projections, labels, self.temperature)
        return loss / self.base_temperature
"""


@pytest.fixture
def local_process(monkeypatch):
    """Lets suites measure here: threads cannot be set once a library ran."""
    for name in ("tensorflow", "torch"):
        monkeypatch.setattr(
            measuring,
            f"import_{name}",
            lambda threads, name=name: importlib.import_module(name),
        )
    monkeypatch.setattr(measuring, "pin", lambda threads: None)


@pytest.fixture
def measure(local_process, monkeypatch, tmp_path):
    """Measures a suite in this process; returns its text and its records."""

    def run(function, job, device="cpu"):
        module, name = function.split(".")
        module = importlib.import_module(f"benchmarks.{module}")
        return getattr(module, name)(argparse.Namespace(**job))

    def measure(suite, **fields):
        bench = BENCHMARKS[suite](str(tmp_path / "run"), **fields)
        records = harness.measure_all(bench)
        return results.describe(bench, records), records

    monkeypatch.setattr(harness, "run", run)
    return measure


@pytest.fixture
def run_benchmark(tmp_path):
    """Runs a benchmark as a user; returns its output and its JSON."""

    def run(name, *arguments):
        program = ROOT / "benchmarks" / f"{name}.py"
        process = forks.run(program, *arguments, cwd=tmp_path)
        assert process.returncode == 0, process.stderr[-2000:]
        file = tmp_path / "runs" / f"bench_{name}" / f"bench_{name}.json"
        png = file.with_suffix(".png").read_bytes()
        assert png.startswith(b"\x89PNG")
        return process.stdout, json.loads(file.read_text())

    return run


@pytest.fixture
def supcontrast(tmp_path):
    """A folder with a stand-in for the losses.py of SupContrast."""
    (tmp_path / "losses.py").write_text(SUPCONTRAST)
    return tmp_path
