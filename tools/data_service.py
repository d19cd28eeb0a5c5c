"""Serves views to training: reads and augments in processes of its own."""

from checkout import commands

if __name__ == "__main__":
    commands.run("data_service")
