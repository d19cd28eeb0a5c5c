"""An error as one line, as a log ends with it."""

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
