"""Makes a run directory from a checkpoint of another project."""

from checkout import commands

if __name__ == "__main__":
    commands.run("import_weights")
