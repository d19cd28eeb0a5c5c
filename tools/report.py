"""Puts runs side by side on one page: report.html."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("report")
