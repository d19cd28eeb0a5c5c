"""The lines of errors, in logs and in messages."""

import pytest

from supcon_tf import exceptions


def test_an_error_is_one_line():
    autograph = "in user code:\n\n    File x, line 1\n    TypeError: bad\n"
    graph = "Graph execution error:\n\nat x\nOOM when allocating"
    for error, line in (
        (ValueError("--a must be b\nand more"), "ValueError: --a must be b"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (TypeError(autograph), "TypeError: bad"),
        (RuntimeError(graph), "RuntimeError: OOM when allocating"),
    ):
        assert exceptions.one_line(error) == line


def test_a_line_is_not_long():
    """Keras lists every layer of a model in one."""
    line = exceptions.one_line(ValueError("layer, " * 9999))
    assert line.startswith("ValueError: layer, layer,")
    assert line.endswith(" ...") and len(line) == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue is full", "queue is full"),
        ("the first line\nand more", "the first line"),
        ("no image\n\t [[{{node map/while/Decode}}]]\nstack", "no image"),
        (
            "2 root error(s) found.\n  (0) INVALID_ARGUMENT: no image\n\t "
            "[[{{node a}}]]\n  (1) INVALID_ARGUMENT: no image\n",
            "no image",
        ),
        (
            "Graph execution error:\n\nDetected at node Decode defined at "
            "(most recent call last):\n<stack traces unavailable>\n"
            "{{function_node f}} {{node g}} no image\n\t [[{{node h}}]] "
            "[Op:__inference_9]",
            "no image",
        ),
        ("assertion failed: [sides are, got ] [0]", "sides are, got  0"),
        ("", ""),
        ("x" * 999, "x" * 300),
    ],
)
def test_the_reason_of_an_error_is_its_telling_line(text, expected):
    assert exceptions.reason(text) == expected
