"""The figure of the loss benchmark."""

from __future__ import annotations

from supcon_tf import config
from supcon_tf.benchmarks import plots


def test_every_implementation_is_drawn_in_both_panels(tmp_path):
    points = [
        {
            "implementation": name,
            "rows": rows,
            "status": "measured",
            "ms": 1.0,
            "peak_mb": 0.0,
        }
        for name in config.LOSS_IMPLEMENTATIONS
        for rows in (512, 2048)
    ]
    points[-1] = {"implementation": "pml", "rows": 2048, "status": "failed"}
    drawn = plots.plot_loss(points)
    for axes in drawn.axes:
        assert len(axes.lines) == len(config.LOSS_IMPLEMENTATIONS)
        assert axes.get_xscale() == axes.get_yscale() == "log"
    assert list(drawn.axes[0].lines[-1].get_xdata()) == [512]
    assert min(drawn.axes[1].lines[0].get_ydata()) == 1
    drawn.savefig(tmp_path / "figure.png")


def test_nothing_measured_is_an_empty_figure(tmp_path):
    plots.plot_loss([]).savefig(tmp_path / "figure.png")
