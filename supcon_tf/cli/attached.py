"""A command of `supcon` that ends, saved, with the process that started it.

  python -m supcon_tf.cli.attached pretrain --run_dir=runs/mine --resume

Its standard input is a pipe that the other process holds open: the system
closes the pipe with any end of that process. A defect too ends in one line that
names it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

from supcon_tf import exceptions
from supcon_tf.cli import commands


def main() -> None:
    """Runs the command that the arguments name."""
    threading.Thread(target=_end_with_pipe, daemon=True).start()
    try:
        commands.main()
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"error: {exceptions.one_line(error)}")


def _end_with_pipe() -> None:
    """Ends this process, saved, when nobody holds the pipe any more."""
    os.read(0, 1)  # not of sys.stdin, which Python would close at its end
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
