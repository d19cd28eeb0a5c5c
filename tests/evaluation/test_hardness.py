"""The figure of what pairs add to the gradient, of a real run."""

import numpy as np

from supcon_tf import evaluation
from supcon_tf.training import runs


def test_both_formulations_have_a_line_of_both_kinds(finished_run):
    fig = evaluation.plot_gradients({"mine": runs.open_run(finished_run.path)})
    positives, negatives = fig.axes
    for panel in (positives, negatives):
        names = [line.get_label() for line in panel.lines]
        assert names == ["mine, L_out", "mine, L_in"]
        for line in panel.lines:
            x, y = line.get_data()
            assert len(x) > 2 and (np.abs(x) < 1).all() and (y > 0).all()
    # Negatives weigh the more the nearer they are.
    x, y = negatives.lines[0].get_data()
    assert np.corrcoef(x, np.log(y))[0, 1] > 0.9
