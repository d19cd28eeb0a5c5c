"""Stage 1: pretrains an encoder with the supervised contrastive loss.

  python tools/pretrain.py --flagfile=flags/supcon_digits_resnet18.flags \
    --run_dir=runs/digits

Writes settings.flags, classes.json, checkpoints/, metrics.jsonl and
tensorboard/ into the run directory.
"""

from __future__ import annotations

from supcon_tf import config, settings


def main(chosen: config.PretrainSettings) -> None:
    """Pretrains; TensorFlow is imported once the settings are right."""
    from supcon_tf import training

    training.pretrain(chosen)


if __name__ == "__main__":
    settings.run(main, config.PretrainSettings)
