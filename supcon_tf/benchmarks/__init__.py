"""Benchmarks: each point in a process of its own, rounds interleaved."""

from supcon_tf.benchmarks.input import bench_input
from supcon_tf.benchmarks.input_comparison import input_table
from supcon_tf.benchmarks.loss import bench_loss
from supcon_tf.benchmarks.loss_comparison import loss_table
from supcon_tf.benchmarks.plots import plot_input, plot_loss

__all__ = [
    "bench_input",
    "bench_loss",
    "input_table",
    "loss_table",
    "plot_input",
    "plot_loss",
]
