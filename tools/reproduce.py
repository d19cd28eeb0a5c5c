"""Runs a table or a figure of the paper, ours beside the published."""

from checkout import commands

if __name__ == "__main__":
    commands.run("reproduce")
