"""Predictions in a few numbers: the summary, and what many classes need."""

import json

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from supcon_tf.measures import classifiers, metrics, predictions


def test_all_figures_of_a_row_have_one_prediction():
    """Of a majority vote, where most are equal: half is right, not none."""
    votes = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5]] * 8)
    labels = np.array([0, 2, 2, 1, 1, 0] * 4)
    predicted = votes.argmax(axis=1)
    summary = predictions.classification_summary(votes, labels)
    bins = summary["calibration_bins"]
    by_confidence = np.dot(bins["accuracy"], bins["count"]) / 24
    assert np.mean(predicted == labels) == 0.5 == summary["top_1"]
    assert by_confidence == pytest.approx(0.5)
    assert np.trace(summary["confusion_matrix"]) == 12
    recalls = np.array(summary["per_class_recall"])
    assert recalls @ np.bincount(labels) == pytest.approx(12)
    levels = metrics.level_summary(predicted, labels, [[0, 0], [0, 1], [1, 2]])
    assert levels["top_1_by_level"][-1] == 0.5


def test_the_summary_is_its_parts_and_survives_json():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(6), 50).astype(np.float32)
    labels = generator.integers(5, size=50)  # None of class 5.
    copy = probabilities.copy()
    summary = predictions.classification_summary(probabilities, labels, 7)
    np.testing.assert_array_equal(probabilities, copy)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert set(summary) == {
        *("top_1", "top_5", "ece", "nll", "brier", "per_class_recall"),
        *("macro_f1", "mcc", "confusion_matrix", "calibration_bins"),
    }
    arrays = probabilities, labels
    ece = metrics.expected_calibration_error(*arrays, 7)
    assert summary["ece"] == ece
    assert summary["nll"] == metrics.negative_log_likelihood(*arrays)
    assert summary["brier"] == metrics.brier_score(*arrays)
    for k in (1, 5):
        assert summary[f"top_{k}"] == metrics.top_k_accuracy(*arrays, k)
    assert np.trace(summary["confusion_matrix"]) / 50 == summary["top_1"]
    assert summary["per_class_recall"][5] is None
    bins = summary["calibration_bins"]
    assert sum(bins["count"]) == 50 and len(bins["accuracy"]) == 7
    assert set(bins) == {"count", "confidence", "accuracy"}


@pytest.mark.parametrize("rarer", [0, 1])
def test_two_classes_have_the_average_precision_of_the_rarer_one(rarer):
    rng = np.random.default_rng(3)
    labels = np.where(rng.random(300) < 0.1, rarer, 1 - rarer)
    share = np.round(rng.beta(2, 3 + 3 * (labels != rarer)), 1)  # ties
    probabilities = np.where([[rarer == 0, rarer == 1]], share[:, None], 0)
    probabilities[:, 1 - rarer] = 1 - share
    summary = predictions.classification_summary(probabilities, labels)
    assert summary["average_precision"] == pytest.approx(
        sklearn_metrics.average_precision_score(labels == rarer, share)
    )
    of_one_class = predictions.classification_summary(probabilities, [0] * 300)
    assert "average_precision" not in of_one_class


def test_average_precision_ranks_tiny_probabilities():
    share = np.float32([1e-9, 1e-12, 1e-13, 1e-14, 2e-9])  # 1 - share is 1
    probabilities = np.stack([1 - share, share], axis=1)
    summary = predictions.classification_summary(probabilities, [1, 0, 0, 0, 1])
    assert summary["average_precision"] == 1


def _many_classes(classes, examples):
    """Probabilities of so many classes, of which some are right."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=examples)
    logits = rng.normal(size=[examples, classes])
    logits[np.arange(examples), labels] += 3
    logits[np.arange(examples), (labels + 1) % classes] += 2.5
    scores = np.exp(logits)
    return (scores / scores.sum(1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("classes", [200, 201, 1500])
@pytest.mark.filterwarnings("ignore:.*unique classes:UserWarning")
def test_a_matrix_of_many_classes_is_never_made(classes, monkeypatch):
    """Its largest counts are listed, the other numbers are the same."""
    probabilities, labels = _many_classes(classes, 2000)
    predicted = probabilities.argmax(axis=1)
    matrix = metrics.confusion_matrix(predicted, labels, classes)
    if classes > 200:
        monkeypatch.delattr(metrics, "confusion_matrix")
    summary = predictions.classification_summary(probabilities, labels)
    assert len(json.dumps(summary)) < 2e5
    assert summary["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(labels, predicted, average="macro")
    )
    assert summary["mcc"] == pytest.approx(
        sklearn_metrics.matthews_corrcoef(labels, predicted)
    )
    if classes == 200:
        assert summary["confusion_matrix"] == matrix.tolist()
        assert "confusions" not in summary
        return
    assert "confusion_matrix" not in summary
    assert summary["class_counts"] == matrix.sum(axis=1).tolist()
    np.fill_diagonal(matrix, 0)
    counts = sorted(matrix[matrix > 0].tolist(), reverse=True)
    pairs = summary["confusions"]
    assert [count for *_, count in pairs] == counts[:1000]
    assert all(
        matrix[label, predicted_class] == count
        for label, predicted_class, count in pairs
    )


def test_no_confusion_of_many_classes_is_an_empty_list():
    summary = predictions.confusions(np.arange(300), np.arange(300), 300)
    assert summary == {"confusions": [], "class_counts": [1] * 300}


def _assert_equal(predicted, expected):
    for name, values in expected._asdict().items():
        np.testing.assert_array_equal(getattr(predicted, name), values, name)


def test_parts_are_joined_and_are_small(monkeypatch):
    probabilities, labels = _many_classes(9, 100)
    monkeypatch.setattr(predictions, "_PART_SCORES", 70)
    shapes = []

    def classify(part):
        shapes.append(probabilities[part].shape)
        return {"a": probabilities[part], "b": probabilities[part][:, ::-1]}

    by_name = predictions.predict_in_parts(labels, 9, classify)
    assert shapes == [(7, 9)] * 14 + [(2, 9)] and set(by_name) == {"a", "b"}
    expected = predictions.Predictions.of(probabilities, labels)
    _assert_equal(by_name["a"], expected)
    # One example at least, of however many classes.
    assert len([*predictions.parts(3, 10**9)]) == 3


def test_k_nn_predictions_are_those_of_the_votes():
    rng = np.random.default_rng(0)
    bank, labels = rng.normal(size=[90, 5]), rng.integers(4, size=90)
    options = {"num_classes": 4, "temperature": 0.3, "leave_one_out": True}
    by_name = predictions.knn_predictions(bank, labels, bank, labels, **options)
    for name, weighted in (("knn", True), ("knn_majority", False)):
        votes = classifiers.knn_predict(
            bank, bank, labels, weighted=weighted, **options
        )
        expected = predictions.Predictions.of(votes, labels)
        _assert_equal(by_name[name], expected)
