from __future__ import annotations

import pytest

from supcon_tf.reports import markup


@pytest.mark.parametrize(
    "make", [markup.escape, markup.name, markup.code, markup.command]
)
def test_text_is_escaped(make):
    made = make("<i>&\"'")
    for sign in ("<i>", '"', "'"):
        assert sign not in made.replace("<code><span>", "")
    assert "&lt;i&gt;&amp;&quot;&#x27;" in made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1,234.500"),
        (-0.25, "−0.250"),
        (None, "–"),
        (float("inf"), "–"),
    ],
)
def test_numbers(value, text):
    assert markup.number(value) == text


def test_percentages_are_not_broken():
    assert markup.percent(0.5) == "50.0\N{NO-BREAK SPACE}%"
    assert markup.percent(float("nan")) == "–"


def test_marks_repeat_after_their_last():
    assert markup.mark(0) == markup.mark(70)
    assert len({markup.mark(index) for index in range(70)}) == 70


def test_a_path_breaks_after_its_slashes():
    assert markup.path("a/<b>.jpg") == (
        '<bdi class="path">a/<wbr>&lt;b&gt;.jpg</bdi>'
    )
