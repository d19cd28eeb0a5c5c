"""Puts runs side by side on one page: report.html."""

from checkout import commands

if __name__ == "__main__":
    commands.run("report")
