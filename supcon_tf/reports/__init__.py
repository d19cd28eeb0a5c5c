"""Reports: what run directories hold, as one page for people.

TensorFlow is not imported: a report is drawn from files alone, in a second.
"""

from supcon_tf.reports.stage import write_report

__all__ = ["write_report"]
