"""Searches a gallery for images or texts: similar rows, and the class."""

from checkout import commands

if __name__ == "__main__":
    commands.run("search")
