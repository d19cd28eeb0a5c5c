"""Measures a run on its test images: numbers, and a page to look at."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("evaluate")
