"""Evaluation of representations: classifiers, measures and pictures."""

from supcon_tf.evaluation.augmentation import plot_operations, show_augment
from supcon_tf.evaluation.confusion_plot import plot_confusion_matrix
from supcon_tf.evaluation.curves import accuracy_curve, plot_curves
from supcon_tf.evaluation.evaluate import evaluate
from supcon_tf.evaluation.hardness import plot_gradients
from supcon_tf.evaluation.plots import (
    plot_grid,
    plot_representation,
    plot_views,
)
from supcon_tf.evaluation.results import results_table
from supcon_tf.measures import (
    calibration_bins,
    expected_calibration_error,
    knn_predict,
    mean_corruption_error,
    prototype_predict,
    top_k_accuracy,
)
from supcon_tf.transfer import transfer_encoder, transfer_table
