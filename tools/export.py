"""Exports a run as a SavedModel for TF Serving."""

from checkout import commands

if __name__ == "__main__":
    commands.run("export")
