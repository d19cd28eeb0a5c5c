"""Runs a grid of settings: both stages and the evaluation of every cell."""

from checkout import commands

if __name__ == "__main__":
    commands.run("sweep")
