"""Reports: what run directories hold, as one page for people.

A run is read (`contents`), each section turns runs into the values that it
shows (`overview`, `learning`, `classification`, `robustness`, `neighborhood`),
and the template of its name puts them into HTML (`page`, `templates/`).
TensorFlow is not imported: a report is drawn from files alone, in a second.
"""

from supcon_tf.reports.page import write_report
