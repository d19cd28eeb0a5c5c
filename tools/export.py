"""Exports a run as a SavedModel for TF Serving."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("export")
