"""Measures of representations and predictions: functions of arrays.

Classifiers that need no training, and metrics. `training` watches a run with
them, `evaluation` reports them.
"""

from supcon_tf.measures.classifiers import knn_predict, prototype_predict
from supcon_tf.measures.metrics import (
    calibration_bins,
    expected_calibration_error,
    top_k_accuracy,
)

__all__ = [
    "calibration_bins",
    "expected_calibration_error",
    "knn_predict",
    "prototype_predict",
    "top_k_accuracy",
]
