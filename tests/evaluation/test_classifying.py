"""What classifiers say of splits of more classes than memory would hold."""

import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, evaluation, measures, reports, run_files
from supcon_tf.evaluation import classifying, splits
from supcon_tf.measures import predictions, truncation
from tests import runs


@pytest.fixture
def small_bounds(monkeypatch):
    """Bounds that small splits are beyond."""
    monkeypatch.setattr(truncation, "_MOST_PROBABILITIES", 50)
    monkeypatch.setattr(truncation, "_MOST_CLASSES", 2)
    monkeypatch.setattr(predictions, "_MATRIX_CLASSES", 2)
    monkeypatch.setattr(predictions, "_PART_SCORES", 12)


def test_classifiers_part_by_part(small_bounds):
    """As all at once; what is kept is of the first of them."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=[20, 4]), np.arange(20) % 3
    source = data.from_arrays(np.zeros([20, 8, 8, 3], np.uint8), labels)
    split = splits.EncodedSplit(source, rows.astype(np.float32), labels, 8)
    weights = rng.normal(size=[2, 4, 3]).astype(np.float32)
    seen = []

    def logits(rows, kind):
        seen.append(rows.shape)
        return tf.constant(rows) @ weights[kind]

    classifiers = {
        "a": lambda rows: logits(rows, 0),
        "b": lambda rows: logits(rows, 1),
    }
    classify = classifying.make_classify(classifiers, is_multi_label=False)
    results, record = classifying.by_classifiers(split, classify)
    assert set(seen) == {(4, 4)}
    for kind, name in enumerate("ab"):
        probabilities = tf.nn.softmax(split.representations @ weights[kind])
        expected = measures.Predictions.of(probabilities.numpy(), labels)
        for array, reference in zip(results[name], expected, strict=True):
            np.testing.assert_allclose(array, reference, rtol=1e-5)
    np.testing.assert_array_equal(record.classes[:, 0], results["a"].predicted)
    np.testing.assert_array_equal(
        record.probabilities[:, 0], results["a"].confidence
    )
    assert classifying.by_classifiers(split, lambda _: {}) == ({}, None)


def test_an_evaluation_of_many_classes(copy_run, tmp_path, small_bounds):
    """Three stand for ten thousand: no file has what grows with more."""
    run = copy_run(tmp_path / "run")
    settings = runs.evaluation_settings(run.path)
    many = evaluation.evaluate(settings)
    stage = run.stage("linear")
    assert json.loads(stage.evaluation_file.read_text()) == many
    arrays = run_files.read_arrays(stage.predictions_file)
    assert arrays["classes"].shape == arrays["probabilities"].shape == (21, 2)
    right = arrays["classes"][:, 0] == arrays["labels"]
    assert right.mean() == pytest.approx(many["linear"]["top_1"])
    page = reports.write_report(run.path, stage.report_file).read_text()
    assert "The pairs of classes that are confused most" in page
    assert 'class="confusion"' not in page
    predictions._MATRIX_CLASSES = 200
    results = evaluation.evaluate(settings)
    for name in ("linear", "knn", "knn_majority"):
        matrix = np.array(results[name].pop("confusion_matrix"))
        assert many[name].pop("class_counts") == matrix.sum(axis=1).tolist()
        wrong = sum(count for *_, count in many[name].pop("confusions"))
        assert wrong == 21 - np.trace(matrix)
        assert many[name] == results[name]
