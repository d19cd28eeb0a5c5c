"""Makes a gallery of labelled images or texts, and adds or removes rows."""

from checkout import commands

if __name__ == "__main__":
    commands.run("index")
