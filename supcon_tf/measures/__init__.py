"""Measures of representations and predictions: functions of arrays.

Classifiers that need no training, and metrics. `training` watches a run with
them, `evaluation` reports them.
"""

from supcon_tf import tracing
from supcon_tf.measures.classifiers import (
    class_prototypes,
    default_neighbors,
    knn_predict,
    prototype_predict,
    prototype_similarities,
    vote,
)
from supcon_tf.measures.hypersphere import alignment, uniformity
from supcon_tf.measures.metrics import (
    brier_score,
    calibration_bins,
    confusion_matrix,
    expected_calibration_error,
    label_ranks,
    level_summary,
    negative_log_likelihood,
    per_class_recall,
    shot_summary,
    top_k_accuracy,
)
from supcon_tf.measures.multi_label import (
    multi_label_summary,
    share_of_neighbors,
)
from supcon_tf.measures.neighbors import nearest_among, nearest_neighbors
from supcon_tf.measures.predictions import (
    Predictions,
    classification_summary,
    confusions,
    knn_predictions,
    parts,
    predict_in_parts,
    summarize,
)
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
from supcon_tf.measures.unknown import (
    Mahalanobis,
    known_threshold,
    mahalanobis_scores,
    neighbor_scores,
    unknown_summary,
)
