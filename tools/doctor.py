"""Says what is installed, what computes, and which known trap applies."""

from checkout import commands

if __name__ == "__main__":
    commands.run("doctor")
