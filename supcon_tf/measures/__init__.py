"""Measures of representations and predictions: functions of arrays.

Classifiers that need no training, and metrics. `training` watches a run with
them, `evaluation` reports them.
"""

from supcon_tf.measures.classifiers import (
    class_prototypes,
    knn_predict,
    prototype_predict,
    vote,
)
from supcon_tf.measures.hypersphere import alignment, uniformity
from supcon_tf.measures.metrics import (
    brier_score,
    calibration_bins,
    classification_summary,
    confusion_matrix,
    expected_calibration_error,
    negative_log_likelihood,
    per_class_recall,
    top_k_accuracy,
)
from supcon_tf.measures.neighbors import nearest_neighbors
from supcon_tf.measures.retrieval import retrieval_summary
from supcon_tf.measures.robustness import (
    ALEXNET_CLEAN_ERROR,
    ALEXNET_ERRORS,
    Errors,
    mean_corruption_error,
    mean_corruption_error_unnormalized,
    missing_errors,
    relative_mean_corruption_error,
)

__all__ = [
    "ALEXNET_CLEAN_ERROR",
    "ALEXNET_ERRORS",
    "Errors",
    "alignment",
    "brier_score",
    "calibration_bins",
    "class_prototypes",
    "classification_summary",
    "confusion_matrix",
    "expected_calibration_error",
    "knn_predict",
    "mean_corruption_error",
    "mean_corruption_error_unnormalized",
    "missing_errors",
    "nearest_neighbors",
    "negative_log_likelihood",
    "per_class_recall",
    "prototype_predict",
    "relative_mean_corruption_error",
    "retrieval_summary",
    "top_k_accuracy",
    "uniformity",
    "vote",
]
