r"""Takes the encoder of a run to another data set: linear or fine-tuned.

  python tools/transfer.py --run_dir=runs/digits --name=flowers \
    --dataset=folder --data_dir=flowers --method=linear

Prints a table; writes settings.flags, classes.json, transfer.json and
predictions.npz, and of a fine-tuning checkpoints/, into that sub-directory of
the run directory.
"""

from __future__ import annotations

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.TransferSettings) -> None:
    """Transfers; TensorFlow is imported once the settings are right."""
    from supcon_tf import evaluation

    print(evaluation.transfer_table(evaluation.transfer_encoder(chosen)))


if __name__ == "__main__":
    command_line.run(main, config.TransferSettings)
