"""Stage 1: pretrains an encoder with the supervised contrastive loss."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("pretrain")
