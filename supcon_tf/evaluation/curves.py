"""Accuracy over the epochs of a run, by a linear probe of each checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import figure

from supcon_tf import data, run_files
from supcon_tf.display import palette
from supcon_tf.evaluation import plots
from supcon_tf.training import checkpoints, representations, runs
from supcon_tf.transfer import linear_probe, selection

_L2 = 0.1  # of the probe, on all training images


def accuracy_curve(run: runs.Run) -> dict[float, float]:
    """Test accuracy of a linear probe, by the epochs of each checkpoint.

    The probe is a logistic regression on the representations of all training
    images, as `evaluate` makes them: centre crops in inference mode.

    Example:
      >>> from supcon_tf import evaluation, training
      >>> curve = evaluation.accuracy_curve(training.Run.open("runs/mine"))
      >>> list(curve)  # one checkpoint, after both epochs
      [2]
    """
    run.check_seen_classes("a curve of accuracy")
    train, test = run.source("train"), run.source("test")
    represent = representations.representer(
        run.encoder, image_size=run.image_size
    )
    steps = data.steps_per_epoch(train, run.settings.batch_size)
    curve = {}
    for step in run_files.steps_in(run.files.checkpoints):
        path = str(run_files.path_of(run.files.checkpoints, step))
        checkpoints.restore(path, encoder=run.encoder)
        probe = linear_probe.LinearProbe(len(train.class_names))
        probe.fit(*represent(train), _L2, train.weights)
        rows, labels = represent(test)
        measures = selection.measure(probe.predict(rows), labels)
        # A checkpoint inside an epoch keeps its own place.
        epochs = step / steps if step % steps else step // steps
        curve[epochs] = measures["top_1"]
    return curve


def plot_curves(curves: Mapping[str, Mapping[float, float]]) -> figure.Figure:
    """A line per run over the epochs; `curves` has their names.

    Example:
      >>> from supcon_tf import evaluation
      >>> curves = {"SupCon": {10: 0.6, 20: 0.7}, "ce": {10: 0.5, 20: 0.6}}
      >>> panel = evaluation.plot_curves(curves).axes[0]
      >>> panel.get_xlabel(), [line.get_label() for line in panel.lines]
      ('epochs', ['SupCon', 'ce'])
    """
    fig, (panel,) = plots.line_panels(1, inches=5.5)
    panel.set(xlabel="epochs", ylabel="top-1 of a linear probe")
    for index, (name, curve) in enumerate(curves.items()):
        epochs, accuracies = zip(*sorted(curve.items()), strict=True)
        color = palette.style(index)["color"]
        panel.plot(epochs, accuracies, "o-", color=color, label=name)
    panel.legend(frameon=False)
    return fig
