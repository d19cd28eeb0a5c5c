"""What every way to a model has in common."""

from __future__ import annotations

import pytest

from supcon_tf.clients import model


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
        ("", ""),
        ("x" * 999, "x" * 300),
    ],
)
def test_the_reason_of_an_error_is_its_telling_line(text, expected):
    assert model.reason(text) == expected


def test_outputs_of_a_batch_are_rows():
    outputs = {"a": [1, 2], "b": model.as_text([[b"\xc3\xbc"], [b"\xff"]])}
    assert model.rows(outputs) == [
        {"a": 1, "b": ["ü"]},
        {"a": 2, "b": ["\ufffd"]},
    ]
    with pytest.raises(ValueError, match="shorter"):
        model.rows({"a": [1, 2], "b": [1]})
