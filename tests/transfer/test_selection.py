"""The choice of a setting, with a method that trains nothing."""

import numpy as np
import pytest

from supcon_tf import config
from supcon_tf.transfer import selection

LABELS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
NAMES = ("a", "b")
TUNED = {"method": "finetune"}
LATE = object()  # diverges in the last step, as the predictions tell
# Probability of the first class for labels 0 and 1, by cell.
CONFIDENCES = {
    1: (0.9, 0.6),  # right where the label is 0
    2: (0.4, 0.1),  # right where the label is 1
    3: (0.8, 0.3),  # right everywhere
    4: (0.9, 0.1),  # too, and surer
    5: None,  # diverges
    6: LATE,
}


class RecordingMethod:
    """Records the positions of its trainings, and predicts by its cell."""

    def __init__(self, *cells):
        self.cells = [{"cell": cell} for cell in cells]
        self.fitted = []

    def fit(self, positions, cell, seed):
        self.fitted.append((positions.tolist(), cell["cell"], seed))
        if CONFIDENCES[cell["cell"]] is None:
            raise FloatingPointError("loss is nan")
        return {"iterations": 7}

    def predict(self, positions=None):
        confidences = CONFIDENCES[self.fitted[-1][1]]
        if confidences is LATE:
            raise FloatingPointError("after the last step")
        first = np.array(confidences)[LABELS[positions]]
        return np.stack([first, 1 - first], axis=1)


def make_settings(**overrides):
    return config.TransferSettings("x", **{"dataset": "digits"} | overrides)


def make_draw(**overrides):
    (draw,) = selection.make_draws(make_settings(**overrides), NAMES, LABELS)
    return draw


@pytest.mark.parametrize(
    ("cells", "select_by", "chosen"),
    [
        # Validation has 3 images of label 0 and 2 of label 1.
        ([1, 2], "top_1", 1),
        ([2, 1, 3], "top_1", 3),
        ([3, 4, 1], "top_1", 4),
        ([4, 3], "mean_recall", 4),
        ([5, 2], "top_1", 2),
    ],
)
def test_the_best_on_validation_images_is_trained_on_all(
    cells, select_by, chosen
):
    method, draw = (
        RecordingMethod(*cells),
        make_draw(validation_fraction=0.5, seed=11),
    )
    record = selection.train(method, draw, LABELS, select_by)
    assert record["chosen"] == {"cell": chosen}
    assert record["training_images"] == 10
    assert record["validation_images"] == 5
    assert record["training"] == {"iterations": 7}
    assert [row["cell"] for row in record["sweep"]] == cells
    trained = draw.trained.tolist()
    assert method.fitted == [
        *((trained, cell, 11) for cell in cells),
        (list(range(10)), chosen, 11),
    ]
    assert set(trained) & set(draw.judging) == set()
    confidences = CONFIDENCES[chosen]
    right = [
        (confidences[label] > 0.5) == (label == 0)
        for label in LABELS[draw.judging]
    ]
    assert record["validation"]["top_1"] == np.mean(right)


def test_mean_recall_counts_every_class_alike():
    probabilities = np.array([[0.9, 0.1, 0], [0.9, 0.1, 0], [0.9, 0.1, 0]])
    measured = selection.measure(probabilities, np.array([0, 0, 1]))
    assert measured["mean_recall"] == 0.5
    assert measured["per_class_recall"] == [1.0, 0.0, None]
    assert set(selection.figures(measured)) == {
        *("top_1", "top_5", "ece", "nll", "brier", "macro_f1", "mcc"),
        "mean_recall",
    }


def test_one_cell_needs_no_validation_images():
    method, draw = RecordingMethod(3), make_draw(l2=0.1)
    record = selection.train(method, draw, LABELS, "top_1")
    assert record["validation_images"] == 0
    assert "sweep" not in record and "validation" not in record
    assert method.fitted == [(list(range(10)), 3, 0)]


def test_a_diverged_sweep_is_reported():
    draw = make_draw()
    record = selection.train(RecordingMethod(5, 6, 3), draw, LABELS, "top_1")
    assert record["sweep"][:2] == [
        {"cell": cell, "diverged": True} for cell in (5, 6)
    ]
    with pytest.raises(FloatingPointError, match="all 2 trainings diverged"):
        selection.train(RecordingMethod(5, 5), draw, LABELS, "top_1")


def test_few_shot_draws_differ_and_are_halved():
    draws = selection.make_draws(
        make_settings(images_per_label=4, repeats=3, seed=5), NAMES, LABELS
    )
    assert [draw.seed for draw in draws] == [5, 6, 7]
    assert len({tuple(draw.images) for draw in draws}) > 1
    for draw in draws:
        assert np.bincount(LABELS[draw.images]).tolist() == [4, 4]
        assert np.bincount(LABELS[draw.judging]).tolist() == [2, 2]
        parts = [*draw.trained, *draw.judging]
        assert sorted(parts) == draw.images.tolist()


def test_few_shot_of_one_image_has_a_fixed_strength():
    draw = make_draw(images_per_label=1, l2=0.1)
    assert len(draw.images) == 2 and not len(draw.judging)
    with pytest.raises(ValueError, match="at most 4, the training images of b"):
        make_draw(images_per_label=5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"name": "export"}, "--name must be letters"),
        ({"repeats": 2}, "--repeats must come with --images_per_label"),
        ({"images_per_label": 3}, "at least 4 for a sweep, got 3: give --l2"),
        (
            {"images_per_label": 8, "validation_fraction": 0.5},
            "--validation_fraction must be left out with --images_per_label",
        ),
        ({"steps": 9}, "--steps must be left out with --method=linear"),
        ({"label_smoothing": 0.1}, "left out with --method=linear: only fine"),
        (TUNED | {"l2": 1.0}, "--l2 must be left out with --method=finetune"),
        ({"l2": 1.0, "l2_values": 9}, "--l2_values must be left out with --l2"),
        (
            TUNED | {"learning_rates": (0.1, 0.0)},
            "--learning_rates must be different numbers, each above 0, got",
        ),
        (
            TUNED | {"weight_decays": (0.0, 0.0)},
            "--weight_decays must be different numbers, each at least 0, got",
        ),
        (
            TUNED | {"classifier_weight": 0.3},
            "--classifier_weight must be left out with --objective=ce",
        ),
    ],
)
def test_broken_rules_are_named(overrides, message):
    with pytest.raises(ValueError, match=message):
        make_settings(**overrides)
