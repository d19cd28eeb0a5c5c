"""The whole method on real images in minutes: `make demo`."""

from checkout import commands

if __name__ == "__main__":
    commands.run("demo")
