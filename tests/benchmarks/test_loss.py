"""What is measured, and what is skipped."""

from __future__ import annotations

import pytest

from supcon_tf import config
from supcon_tf.benchmarks import loss


def test_all_is_what_can_be_loaded(tmp_path):
    names = loss.choose_implementations(config.BenchLossSettings())
    assert names[:4] == ["tiled", "looped", "dense", "floor"]
    assert "official" not in names and "supcontrast" not in names
    peer = tmp_path / "peer.py"
    peer.write_text("")
    chosen = config.BenchLossSettings(official_path=str(peer))
    assert "official" in loss.choose_implementations(chosen)


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    chosen = config.BenchLossSettings(implementations="dense,pml")
    with pytest.raises(ImportError, match="pml needs pytorch_metric_learning"):
        loss.choose_implementations(chosen)


def test_points_that_do_not_fit_are_skipped(tmp_path, capsys):
    chosen = config.BenchLossSettings(
        str(tmp_path), rows=(131072,), implementations="dense,floor"
    )
    points = loss.bench_loss(chosen)["points"]
    assert [point["status"] for point in points] == ["skipped"] * 2
    assert "about 825 GB, see --max_memory_gb" in points[0]["reason"]
    assert "131072 rows, dense: skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"rows": (512, 513)}, "--rows must be multiples of --views"),
        ({"rows": ()}, "--rows must be"),
        ({"implementations": "dense,fast"}, "--implementations must be all"),
        ({"implementations": "all,dense"}, "--implementations must be all"),
        ({"implementations": "official"}, "--official_path must be given"),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        config.BenchLossSettings(**overrides)
