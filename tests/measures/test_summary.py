"""The summary is made of its parts, and is JSON."""

from __future__ import annotations

import json

import numpy as np

from supcon_tf import measures


def test_the_summary_is_its_parts_and_survives_json():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(6), 50).astype(np.float32)
    labels = generator.integers(5, size=50)  # None of class 5.
    summary = measures.classification_summary(probabilities, labels, 7)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert set(summary) == {
        *("top_1", "top_5", "ece", "nll", "brier", "per_class_recall"),
        *("confusion_matrix", "calibration_bins"),
    }
    for name, measure in {
        "ece": lambda *p: measures.expected_calibration_error(*p, 7),
        "nll": measures.negative_log_likelihood,
        "brier": measures.brier_score,
        "top_1": lambda *p: measures.top_k_accuracy(*p, 1),
        "top_5": lambda *p: measures.top_k_accuracy(*p, 5),
    }.items():
        assert summary[name] == measure(probabilities, labels)
    matrix = np.array(summary["confusion_matrix"])
    assert matrix.sum() == 50
    assert np.trace(matrix) / 50 == summary["top_1"]
    assert summary["per_class_recall"][5] is None
    bins = summary["calibration_bins"]
    assert sum(bins["count"]) == 50 and len(bins["accuracy"]) == 7
    assert set(bins) == {"count", "confidence", "accuracy"}
