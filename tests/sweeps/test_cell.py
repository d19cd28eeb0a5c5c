"""The last words of a cell that fails; the rest is tested as a process."""

from __future__ import annotations

import pytest

from supcon_tf.sweeps import cell


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("--a must be b\nand more"), "ValueError: --a must be b"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (
            TypeError(
                "in user code:\n\n    File x, line 1\n    TypeError: bad\n"
            ),
            "TypeError: bad",
        ),
        (
            RuntimeError(
                "Graph execution error:\n\nat x\nOOM when allocating [3]"
            ),
            "RuntimeError: OOM when allocating [3]",
        ),
    ],
)
def test_an_error_is_one_line(error, text):
    assert cell.one_line(error) == text
