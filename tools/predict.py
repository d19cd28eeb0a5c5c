r"""Asks an exported model about images: classes, or representations.

  python tools/predict.py --run_dir=runs/digits photo.jpg folder/

asks the newest version of runs/digits/export in this process, and

  python tools/predict.py --run_dir=runs/digits photo.jpg folder/ \
    --server=grpc://localhost:8500 --output=answers.jsonl

the model `digits` of a TF Serving; its REST interface, http://localhost:8501,
needs no TensorFlow here. Writes CSV to stdout, or the output file once all is
answered. An image that the model refuses has an error in its row, and makes
the exit code 1.
"""

from __future__ import annotations

import os
import sys

import checkout  # noqa: F401

from supcon_tf import command_line, config


def main(chosen: config.PredictSettings) -> None:
    """Predicts; TensorFlow is imported where the model needs it."""
    from supcon_tf import clients

    try:
        failed = clients.predict(chosen)
    except KeyboardInterrupt:
        os._exit(130)  # at once, whatever threads wait for
    if chosen.output:
        print(chosen.output)
    if failed:
        sys.exit(f"error: no answer for {failed} of the images, see `error`")


if __name__ == "__main__":
    command_line.run(main, config.PredictSettings, positional="images")
