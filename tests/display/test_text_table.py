"""Tables line up."""

from supcon_tf.display import text_table


def test_columns_line_up():
    rows = [
        ["", "top-1", "MB"],
        ["float model", "0.5", "-"],
        ["x", "1", "12.5"],
    ]
    assert text_table.text_table(rows).splitlines() == [
        "             top-1    MB",
        "float model    0.5     -",
        "x                1  12.5",
    ]
