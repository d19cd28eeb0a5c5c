"""The figure of a sweep, on results that were never measured."""

from __future__ import annotations

import io
import statistics

import numpy as np
import pytest

from supcon_tf.sweeps import figure
from tests.sweeps.results import make_results

OPTIMIZERS = ["lars", "sgd", "rmsprop"]


def metrics(values):
    gain = {"lars": 0.2, "sgd": 0.1}.get(values.get("optimizer"), 0.0)
    top_1 = 0.5 + gain + values.get("temperature", 0) / 10
    return {"linear.top_1": top_1 + values.get("seed", 0) / 50}


def draw(axes, **arguments):
    fig = figure.plot_sweep(make_results(axes, metrics, **arguments))
    fig.savefig(io.BytesIO(), format="png", dpi=30)  # every artist is sound
    return fig, [panel for panel in fig.axes if panel.axison]


def lines(panel):
    return {
        line.get_label(): line.get_xydata()
        for line in panel.lines
        if not line.get_label().startswith("_")
    }


def test_a_line_per_name_over_a_logarithm_of_numbers():
    fig, panels = draw(
        {"temperature": [0.5, 0.05, 0.1], "optimizer": OPTIMIZERS}
    )
    numbers, names = panels
    assert numbers.get_xscale() == "log"
    assert numbers.get_xlabel() == "temperature"
    assert numbers.get_ylabel() == "linear top-1"
    assert [*lines(numbers)] == OPTIMIZERS
    np.testing.assert_allclose(
        lines(numbers)["sgd"], [[0.05, 0.605], [0.1, 0.61], [0.5, 0.65]]
    )
    assert [label.get_text() for label in names.get_xticklabels()] == OPTIMIZERS
    assert [
        label.get_text() for label in fig.legends[0].get_texts()
    ] == OPTIMIZERS
    # Boxes are over all other settings.
    medians = [
        line.get_ydata() for line in names.lines if line.get_color() == "black"
    ]
    medians = [
        heights[0]
        for heights in medians
        if len(heights) == 2 and heights[0] == heights[1]
    ]
    assert {0.71, 0.61, 0.51} <= {round(heights, 6) for heights in medians}


def test_seeds_are_a_band_and_no_panel():
    fig, panels = draw({"temperature": [0.1, 0.2], "seed": [0, 1, 2]})
    (panel,) = panels
    assert panel.get_xscale() == "linear"
    np.testing.assert_allclose(
        panel.lines[0].get_xydata(), [[0.1, 0.53], [0.2, 0.54]]
    )
    (band,) = panel.collections
    edges = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([edges.min(), edges.max()], [0.51, 0.56])
    assert fig.get_suptitle() == "6 cells; means over 3 seeds"


def test_equal_seeds_have_no_range_below_zero():
    share = 20 / 21
    assert statistics.fmean([share] * 3) < share
    axes = {"optimizer": OPTIMIZERS, "seed": [0, 1, 2]}
    results = make_results(axes, lambda values: {"linear.top_1": share})
    (panel,) = figure.plot_sweep(results).axes
    assert len(panel.containers) == 3


def test_what_is_not_measured_is_not_drawn_but_counted():
    fig, (numbers, _) = draw(
        {"temperature": [0.1, 0.2], "optimizer": OPTIMIZERS},
        statuses={0: "failed", 1: "pending", 4: "running"},
    )
    assert fig.get_suptitle() == "3 of 6 cells, 1 failed"
    assert [*lines(numbers)] == ["lars", "rmsprop"]


def test_odd_sweeps_have_a_figure():
    _, (panel,) = draw({"seed": [0, 1, 2]})
    (points,) = panel.containers
    assert points[0].get_ydata().tolist() == [0.5, 0.52, 0.54]
    statuses = dict.fromkeys(range(2), "pending")
    fig, panels = draw(
        {"optimizer": ["lars"], "temperature": [0.1, 0.2]}, statuses=statuses
    )
    assert len(panels) == 2 and not fig.legends
    axes = {"flip": [True, False], "positives_cap": [None, 3]}
    _, panels = draw({**axes, "crop": ["0.2+1.0", ""]})
    labels = [
        [label.get_text() for label in panel.get_xticklabels()]
        for panel in panels
    ]
    assert labels == [["true", "false"], ["none", "3"], ["0.2+1.0", "none"]]
    fig, panels = draw(
        {"a": [1, 2], "b": [1, 2], "c": ["x", "y"], "d": ["u", "v"]}
    )
    assert len(panels) == len(fig.axes) == 4
    assert panels[0].get_gridspec().get_geometry() == (2, 2)


def test_published_numbers_are_crosses():
    results = make_results({"temperature": [0.1, 0.2]}, metrics)
    (panel,) = figure.plot_sweep(results | {"published": [78.7, 0.0]}).axes
    np.testing.assert_allclose(lines(panel)["published"], [[0.1, 0.787]])
    results = make_results({"optimizer": OPTIMIZERS}, metrics)
    fig = figure.plot_sweep(results | {"published": [78.2, 78.7, 77.6]})
    crosses = lines(fig.axes[0])["published"]
    np.testing.assert_allclose(crosses, [[0, 0.782], [1, 0.787], [2, 0.776]])
    assert [label.get_text() for label in fig.legends[0].get_texts()] == [
        "published"
    ]


def test_tied_settings_are_named_by_what_varies():
    """As table 1; long names take no place from the panel."""
    axis_name = "objective:formulation:label_smoothing"
    results = make_results(
        {axis_name: ["supcon:out:0", "supcon:in:0"]}, metrics
    )
    fig = figure.plot_sweep(results | {"published": [78.7, 67.4]})
    (panel,) = fig.axes
    assert panel.get_xlabel() == "formulation"
    assert [label.get_text() for label in panel.get_xticklabels()] == [
        "out",
        "in",
    ]
    assert fig.legends[0].get_title().get_text() == ""


def test_a_box_per_value_of_one_setting():
    """As Fig. 4 a, of which each row is another learning rate."""
    rows = [f"{name}:{rate}" for name in ("supcon", "ce") for rate in (1, 2, 3)]
    results = make_results({"objective:learning_rate": rows}, lambda _: {})
    for number, cell in enumerate(results["cells"]):
        objective = rows[number].partition(":")[0]
        cell["settings"] = {"pretrain": {"objective": objective}, "linear": {}}
        cell["metrics"] = {"linear.top_1": 0.1 * number}
    fig = figure.plot_sweep(results | {"boxes": "objective"})
    (panel,) = fig.axes
    labels = [label.get_text() for label in panel.get_xticklabels()]
    assert labels == ["supcon", "ce"] and panel.get_xlabel() == "objective"
    points = [
        container[0].get_ydata().tolist() for container in panel.containers
    ]
    assert points == [[0, 0.1, 0.2], pytest.approx([0.3, 0.4, 0.5])]


def test_many_points_of_a_box_are_outliers_only():
    axes = {"optimizer": ["lars", "sgd"], "epochs": list(range(1, 40))}
    names = figure.plot_sweep(make_results(axes, metrics)).axes[0]
    assert not names.containers  # of single points
    axes["epochs"] = axes["epochs"][:30]
    names = figure.plot_sweep(make_results(axes, metrics)).axes[0]
    assert [
        len(container[0].get_xdata()) for container in names.containers
    ] == [30, 30]


def test_one_cell_of_tied_settings_is_drawn():
    axes = {"objective:learning_rate": ["supcon:5.0"]}
    _, (panel,) = draw(axes)
    assert panel.get_xticklabels()[0].get_text() == "supcon\n5.0"
