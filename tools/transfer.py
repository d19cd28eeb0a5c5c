"""Takes the encoder of a run to another data set: linear or fine-tuned."""

from checkout import commands

if __name__ == "__main__":
    commands.run("transfer")
