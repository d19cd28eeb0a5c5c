"""Measures a run on its test images: numbers, and a page to look at."""

from checkout import commands

if __name__ == "__main__":
    commands.run("evaluate")
