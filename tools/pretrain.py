"""Stage 1: pretrains an encoder with the supervised contrastive loss."""

from checkout import commands

if __name__ == "__main__":
    commands.run("pretrain")
