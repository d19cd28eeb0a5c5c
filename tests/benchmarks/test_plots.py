"""The figures of the benchmarks."""

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


def test_input_pipelines_are_bars_by_size(tmp_path):
    points = [
        {
            "implementation": name,
            "size": size,
            "input": of,
            "policy": "identity",
            "status": "measured",
            "images_per_second": 5.0 * size,
        }
        for size in (224, 32)
        for of in config.INPUTS
        for name in config.INPUT_IMPLEMENTATIONS
    ]
    points[0] = {**points[0], "status": "failed"}
    drawn = plots.plot_input(points)
    heights = [
        [bar.get_height() for bar in axes.patches] for axes in drawn.axes
    ]
    assert heights == [[160.0] * 6, [1120.0] * 5]
    edges = [round(bar.get_x(), 6) for bar in drawn.axes[0].patches]
    assert len(set(edges)) == 6
    drawn.savefig(tmp_path / "figure.png")
    plots.plot_input([]).savefig(tmp_path / "figure.png")


def test_steps_are_bars_by_case_and_chunk(tmp_path):
    points = [
        {
            "implementation": name,
            "chunks": chunks,
            "architecture": "resnet18",
            "batch_size": batch_size,
            "status": "measured",
            "views_per_second": 100.0 / chunks,
            "peak_mb": 2.0 * batch_size / chunks,
        }
        for batch_size in (64, 256)
        for name in config.STEP_IMPLEMENTATIONS
        for chunks in ((1, batch_size // 32) if name == "ours" else (1,))
    ]
    points[2] = {**points[2], "status": "failed"}
    drawn = plots.plot_step(points)
    speed, memory = (
        [bar.get_height() for bar in axes.patches] for axes in drawn.axes
    )
    # Ours whole, then ours in chunks, then the others; a group per batch.
    assert speed[:4] == [100.0, 100.0, 50.0, 12.5] and len(speed) == 11
    assert memory[:4] == [128.0, 512.0, 64.0, 64.0]
    assert memory[4:] == [512.0] + [128.0, 512.0] * 3
    edges = [round(bar.get_x(), 6) for bar in drawn.axes[0].patches]
    assert len(set(edges)) == 11
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert labels[:2] == ["ours", "ours, 32 at a time"] and len(labels) == 6
    drawn.savefig(tmp_path / "figure.png")
    plots.plot_step([]).savefig(tmp_path / "figure.png")
