"""Measures a run on its test images: numbers, and a page to look at.

  python tools/evaluate.py --run_dir=runs/digits

Prints a table; writes evaluation.json and report.html into the run directory,
and beside them predictions.npz, representations.npz and samples.npz.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.EvaluateSettings) -> None:
    """Evaluates; TensorFlow is imported once the settings are right."""
    from supcon_tf import evaluation, reports

    results = evaluation.evaluate(chosen)
    print(evaluation.results_table({chosen.run_dir: results}))
    file = f"{chosen.run_dir}/report.html"
    print(f"\nreport       {reports.write_report([chosen.run_dir], file)}")


if __name__ == "__main__":
    command_line.run(main, config.EvaluateSettings)
