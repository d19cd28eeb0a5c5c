"""An error as one line, as a log ends with it."""

from __future__ import annotations

import pytest

from supcon_tf import exceptions


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
            RuntimeError("Graph execution error:\n\nat x\nOOM when allocating"),
            "RuntimeError: OOM when allocating",
        ),
    ],
)
def test_an_error_is_one_line(error, text):
    assert exceptions.one_line(error) == text
