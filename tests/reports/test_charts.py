from __future__ import annotations

import re
import xml.dom.minidom

from supcon_tf.reports import charts


def draw(label='a < b & "c"'):
    with charts.drawing() as (drawn, plot):
        plot.plot([0, 1, 2], [0.375, 0.4, 0.4251], marker="o")
        plot.set_yticks([0.375, 0.4251])
        return charts.to_svg(drawn, label)


def test_the_element_is_labelled_small_and_valid():
    text = draw()
    root = xml.dom.minidom.parseString(text).documentElement
    assert root.getAttribute("aria-label") == 'a < b & "c"'
    assert root.getAttribute("viewBox") == "0 0 340 195"
    assert len(text) < 12_000
    for part in ("<metadata", "<style", "<!--", "xlink", "DejaVu", "font-fam"):
        assert part not in text


def test_ids_are_used_and_those_of_two_figures_differ():
    text = draw()
    ids = re.findall(r' id="([^"]*)"', text)
    assert ids and len(set(ids)) == len(ids)
    assert set(ids) == set(re.findall(r'(?:href="|url\()#([^")]*)', text))
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', draw("other")))


def test_places_are_rounded_and_words_are_not():
    text = draw()
    assert ">0.3750<" in text and ">0.4251<" in text
    assert not re.search(r"<[^>]*\d\.\d{3,}", text)


def test_the_same_figure_is_the_same_text():
    assert draw() == draw()
