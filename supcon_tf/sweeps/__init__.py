"""Sweeps: a grid of settings, a process per cell, one table and one figure."""

from supcon_tf.sweeps.figure import plot_sweep
from supcon_tf.sweeps.grid import Cell, list_cells
from supcon_tf.sweeps.paper import reproduce, table_of_paper
from supcon_tf.sweeps.run import run_sweep
from supcon_tf.sweeps.table import sweep_table
