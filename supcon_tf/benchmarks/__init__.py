"""Benchmarks: each point in a process of its own, rounds interleaved."""

from supcon_tf.benchmarks.comparison import loss_table
from supcon_tf.benchmarks.loss import bench_loss
from supcon_tf.benchmarks.plots import plot_loss

__all__ = ["bench_loss", "loss_table", "plot_loss"]
