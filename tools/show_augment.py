"""Shows what the augmentation does to images, before anything is trained."""

from checkout import commands

if __name__ == "__main__":
    commands.run("show_augment")
