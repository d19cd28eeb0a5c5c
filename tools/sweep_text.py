"""Runs a grid of settings on labelled sentences."""

from checkout import commands

if __name__ == "__main__":
    commands.run("sweep_text")
