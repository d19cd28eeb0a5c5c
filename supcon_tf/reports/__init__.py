"""Reports: run directories as one HTML page.

`contents` reads a run, the view of each section turns runs into values
(`overview`, `learning`, `classification`, `robustness`, `neighborhood`), and
the template of the same name turns values into HTML (`page`, `templates/`).
Reports import no TensorFlow and take a second.
"""

from supcon_tf.reports.page import write_report
