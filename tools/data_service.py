"""Serves views to training: reads and augments in processes of its own."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("data_service")
