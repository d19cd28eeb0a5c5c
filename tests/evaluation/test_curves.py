"""Accuracy over the epochs, by checkpoints of a real run."""

import pytest

from supcon_tf import evaluation, run_files
from supcon_tf.training import runs


def test_every_checkpoint_has_a_linear_probe(finished_run):
    run = runs.open_run(finished_run.path)
    curve = evaluation.accuracy_curve(run)
    steps = run_files.steps_in(finished_run.checkpoints)
    assert len(curve) == len(steps)
    assert max(curve) == run.settings.epochs
    assert all(0.3 < accuracy <= 1 for accuracy in curve.values())
    drawn = evaluation.plot_curves({"mine": curve, "other": {1: 0.5, 2: 0.6}})
    mine, other = drawn.axes[0].lines
    assert mine.get_ydata()[-1] == pytest.approx(curve[max(curve)])
    assert [*other.get_xdata()] == [1, 2]
