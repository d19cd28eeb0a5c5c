r"""Stage 1: pretrains an encoder with the supervised contrastive loss.

  python tools/pretrain.py --flagfile=flags/supcon_digits_resnet18.flags \
    --run_dir=runs/digits

Writes settings.flags, classes.json, checkpoints/, metrics.jsonl and
tensorboard/ into the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.PretrainSettings) -> None:
    """Pretrains; TensorFlow is imported once the settings are right."""
    from supcon_tf import training

    training.pretrain(chosen)


if __name__ == "__main__":
    command_line.run(main, config.PretrainSettings)
