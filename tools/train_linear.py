"""Stage 2: trains a linear classifier on the frozen encoder of a run.

  python tools/train_linear.py --run_dir=runs/digits

Writes settings.flags, checkpoints/, metrics.jsonl and tensorboard/ into the
sub-directory `linear` of the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.LinearSettings) -> None:
    """Trains; TensorFlow is imported once the settings are right."""
    from supcon_tf import training

    training.train_linear(chosen)


if __name__ == "__main__":
    command_line.run(main, config.LinearSettings)
