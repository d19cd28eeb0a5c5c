"""Takes the encoder of a run to another data set: linear or fine-tuned."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("transfer")
