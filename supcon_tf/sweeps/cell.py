"""The program of a cell's process: its trainings and the evaluation.

  python -m supcon_tf.sweeps.cell SWEEP/cells/NAME

The process goes on where an earlier one of the cell ended. Its output is the
cell's log: a heading per part, and, where it fails, one line at the end.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import threading
import traceback

from supcon_tf import config, evaluation, exceptions, locks, training
from supcon_tf.sweeps import records

# In this order; a cell has the trainings whose settings it has.
_TRAININGS = (
    (records.STAGE_1, training.pretrain, config.PretrainSettings),
    ("fine-tuning", training.finetune_text, config.FinetuneTextSettings),
    ("linear stage", training.train_linear, config.LinearSettings),
)


def main(path: str) -> None:
    """Runs the cell; evaluation.json in its run is its last act."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Where memory runs out, the system ends this process before any other.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    cell = records.CellDirectory(pathlib.Path(path))
    try:
        evaluate = cell.read_settings(config.EvaluateSettings)
        # A sweep that was killed and started again may meet its earlier cell.
        with locks.held(evaluate.run_dir, locks.TRAINING, wait=True):
            for heading, train, settings_class in _TRAININGS:
                if cell.has(settings_class):
                    print(records.HEADING + heading, flush=True)
                    train(cell.read_settings(settings_class, "--resume"))
            print(f"{records.HEADING}evaluation", flush=True)
            evaluation.evaluate(evaluate)
    except Exception as error:  # Whatever a cell raises is its result.
        traceback.print_exc()
        sys.exit(records.ERROR + exceptions.one_line(error))


def _end_with_parent() -> None:
    """Ends this process, saved, when the sweep that started it is gone."""
    sys.stdin.read()  # empty, and closed when the parent ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
