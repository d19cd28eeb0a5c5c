"""Stage 2: trains a linear classifier on the frozen encoder of a run."""

from checkout import commands

if __name__ == "__main__":
    commands.run("train_linear")
