"""Shows what the augmentation does to images, before anything is trained.

  python tools/show_augment.py --augmentation=autoaugment
  python tools/show_augment.py --dataset=folder --data_dir=DIR --image_size=160

Writes views.png, the first views that training makes of some images, and
operations.png, one image under every operation, into the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.ShowAugmentSettings) -> None:
    """Draws; TensorFlow is imported once the settings are right."""
    from supcon_tf import evaluation

    for path in evaluation.show_augment(chosen):
        print(path)


if __name__ == "__main__":
    command_line.run(main, config.ShowAugmentSettings)
