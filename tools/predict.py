"""Asks an exported model about images: classes, or representations."""

from checkout import commands

if __name__ == "__main__":
    commands.run("predict")
