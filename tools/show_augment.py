"""Shows what the augmentation does to images, before anything is trained."""

import checkout  # noqa: F401

from supcon_tf import commands

if __name__ == "__main__":
    commands.run("show_augment")
