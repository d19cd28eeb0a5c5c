"""Accuracy over the epochs, by checkpoints of a real run."""

import shutil

import pytest

from supcon_tf import evaluation, run_files
from supcon_tf.training import runs


def test_every_checkpoint_has_a_linear_probe(finished_run):
    (last,) = run_files.steps_in(finished_run.checkpoints)
    steps = last // 2  # of two epochs: as if the first were saved too
    last_name, *names = [
        run_files.path_of(finished_run.checkpoints, step)
        for step in (last, steps, steps + 1)
    ]
    for name in names:
        shutil.copytree(last_name, name)
    run = runs.open_run(finished_run.path)
    curve = evaluation.accuracy_curve(run)
    assert [*curve] == [1, 1 + 1 / steps, run.settings.epochs]
    assert curve[1] == curve[2] > 0.5
    fig = evaluation.plot_curves({"mine": curve, "other": {1: 0.5, 2: 0.6}})
    mine, other = fig.axes[0].lines
    assert mine.get_ydata()[-1] == pytest.approx(curve[max(curve)])
    assert [*other.get_xdata()] == [1, 2]


def test_more_runs_than_colours_have_a_line_each():
    curves = {f"run {number}": {1: 0.5} for number in range(12)}
    lines = evaluation.plot_curves(curves).axes[0].lines
    assert [line.get_label() for line in lines] == [*curves]
    assert lines[0].get_color() == lines[10].get_color()
