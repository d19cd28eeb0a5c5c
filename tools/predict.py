"""Asks an exported model about images: classes, or representations."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("predict")
