"""Runs a grid of settings: both stages and the evaluation of every cell."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("sweep")
