"""Makes a classifier of your images from a pretrained network."""

from checkout import commands

if __name__ == "__main__":
    commands.run("finetune")
