"""Benchmarks: each point in a process of its own, rounds interleaved."""

from supcon_tf.benchmarks.input import bench_input
from supcon_tf.benchmarks.input_comparison import input_table
from supcon_tf.benchmarks.knn import bench_knn
from supcon_tf.benchmarks.knn_comparison import knn_table
from supcon_tf.benchmarks.learning import bench_learning, learning_table
from supcon_tf.benchmarks.loss import bench_loss
from supcon_tf.benchmarks.loss_comparison import loss_table
from supcon_tf.benchmarks.plots import plot_input, plot_loss, plot_step
from supcon_tf.benchmarks.serving import bench_serving
from supcon_tf.benchmarks.serving_comparison import serving_table
from supcon_tf.benchmarks.step import bench_step
from supcon_tf.benchmarks.step_comparison import step_table

__all__ = [
    "bench_input",
    "bench_knn",
    "bench_learning",
    "bench_loss",
    "bench_serving",
    "bench_step",
    "input_table",
    "knn_table",
    "learning_table",
    "loss_table",
    "plot_input",
    "plot_loss",
    "plot_step",
    "serving_table",
    "step_table",
]
