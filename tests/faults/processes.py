"""Processes of fault tests: killed processes, and holders of locks."""

import contextlib
import pathlib
from collections.abc import Iterator

from tests import forks

# Runs a program again and again, each time in a process of its own, which is
# killed as it is about to change something below a folder: before its first
# change, before its second, until it comes to its end. `prepare` comes before
# and `verify` behind each, in the process that stays.
_KILLED_EVERYWHERE = """
import os, signal, sys

FOLDER = sys.argv[1]
{program}
CHANGES = {{"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}}

def changes(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        written = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return written and str(path).startswith(FOLDER)
    return event in CHANGES and str(arguments[0]).startswith(FOLDER)

for count in range(1000):
    prepare()
    child = os.fork()
    if not child:
        left = count

        def hook(event, arguments):
            global left
            if (event == "open" or event in CHANGES) and changes(
                event, arguments
            ):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        run()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    verify(count)
    if code == 0:
        break
print(count)
"""


def kill_everywhere(program: str, folder: pathlib.Path) -> int:
    """Kills a process before each change that it makes below a folder.

    Args:
      program: defines `prepare()`, `run()` and `verify(count)`, after so many
        changes; the folder is `FOLDER`.
      folder: below which files are changed.

    Returns:
      The number of changes that the whole program makes.
    """
    text = _KILLED_EVERYWHERE.format(program=program)
    result = forks.run(text, str(folder))
    assert result.returncode == 0, result.stderr[-3000:]
    return int(result.stdout.splitlines()[-1])


@contextlib.contextmanager
def holder(program: str, *arguments: str) -> Iterator[forks.Fork]:
    """A process of a program that prints a line, and then stays."""
    fork = forks.Fork(f"{program}\nimport time\ntime.sleep(900)", *arguments)
    try:
        fork.read_line()
        yield fork
    finally:
        fork.kill()
        fork.wait()


_HOLDS_A_LOCK = """
import sys
from supcon_tf.disk import locks

lock = locks.held(sys.argv[1], sys.argv[2])
lock.__enter__()
print("held", flush=True)
"""


def lock_holder(
    folder: pathlib.Path | str, work: str
) -> contextlib.AbstractContextManager[forks.Fork]:
    """A process that holds the lock of a work in a folder."""
    return holder(_HOLDS_A_LOCK, str(folder), work)
