"""Puts runs side by side on one page: report.html.

  python tools/report.py runs/supcon runs/cross_entropy --run_dir=runs/both

Reads only what lies in the run directories, most of it written by
tools/evaluate.py, and writes one file that needs no network.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.ReportSettings) -> None:
    """Writes the page; TensorFlow is not needed."""
    from supcon_tf import reports

    file = f"{chosen.run_dir}/report.html"
    print(reports.write_report(chosen.runs, file, chosen.names or None))


if __name__ == "__main__":
    command_line.run(main, config.ReportSettings, positional="runs")
