"""Commands that a process of their own starts, and ends."""

import signal
import subprocess
import sys

_PROGRAM = """
import time
from supcon_tf.cli import attached, commands

commands.main = lambda: {}
attached.main()
"""


def start(command):
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_it_ends_when_nobody_holds_its_input():
    with start("print('started', flush=True) or time.sleep(900)") as process:
        assert process.stdout.readline() == "started\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait() == -signal.SIGTERM


def test_it_ends_by_itself_while_its_input_is_held():
    with start("None") as process:
        assert process.wait() == 0


def test_the_last_line_names_a_defect():
    with start("1 / 0") as process:
        assert process.wait() == 1
        *_, traced, line = process.stderr.read().splitlines()
    assert traced == "ZeroDivisionError: division by zero"
    assert line == "error: ZeroDivisionError: division by zero"
