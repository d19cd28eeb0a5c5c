from __future__ import annotations

import re
import xml.dom.minidom

import numpy as np

from supcon_tf.display import palette
from supcon_tf.reports import figures


def words(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_curves_share_their_axis_and_keep_their_colours():
    options = {"last_epoch": 20, "in_percent": True}
    svg = figures.plot_curves({2: ([1, 2], [0.5, 0.6])}, "x", **options)
    assert {"0", "5", "10", "15", "20", "epoch"} <= set(words(svg))
    assert "50%" in words(svg)
    assert palette.COLORS[2] in svg
    assert palette.COLORS[0] not in svg
    # Percentages that are close keep their digits.
    svg = figures.plot_curves({0: ([1, 2], [0.991, 0.993])}, "x", **options)
    ticks = [word for word in words(svg) if word.endswith("%")]
    assert len(set(ticks)) == len(ticks) > 2


def test_chance_is_one_level_for_runs_that_share_it():
    def count(*levels):
        lines = {i: ([1, 2], [1.0, 0.5]) for i in range(2)}
        chance = dict(enumerate(levels))
        svg = figures.plot_curves(lines, "x", last_epoch=2, chance=chance)
        return words(svg).count("chance")

    assert count() == 0
    assert count(1.0, 1.001) == 1
    assert count(1.0, 1.5) == 2


def test_severities_begin_with_clean_images():
    line = {3: 0.1, 0: 0.9, 1: 0.5}
    others = {0: [line] * 4}
    svg = figures.plot_severities({0: line}, others, "x", in_percent=False)
    assert words(svg)[:3] == ["clean", "1", "3"]
    assert svg.count("stroke-opacity: 0.3") == 4


def test_points_have_the_colour_and_mark_of_their_class():
    plane = np.random.default_rng(0).normal(size=[9, 2])
    labels = np.array([0, 0, 4, 4, 4, 4, 11, 11, 11])
    svg = figures.plot_plane(plane, labels, "x")
    assert svg.count("<use") == 9
    for color, count in (("0", 2), ("4", 4), ("1", 3)):
        fill = f"fill: {palette.COLORS[int(color)]}"
        assert len(re.findall(f"<use[^>]*{fill}", svg)) == count


def test_a_bin_is_a_bar_where_it_has_images():
    bins = {
        "count": [0, 3, 1],
        "confidence": [None, 0.5, 0.9],
        "accuracy": [None, 1 / 3, 1.0],
    }
    svg = figures.plot_reliability(bins, "x")
    assert svg.count(f"fill: {palette.COLORS[0]}") == 2
    assert {"accuracy", "confidence", "examples"} <= set(words(svg))


def draw(label='a < b & "c"'):
    with figures.drawing() as (drawn, plot):
        plot.plot([0, 1, 2], [0.375, 0.4, 0.4251], marker="o")
        plot.set_yticks([0.375, 0.4251])
        return figures.to_svg(drawn, label)


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
    assert draw() == text
    assert ">0.3750<" in text and ">0.4251<" in text
    assert not re.search(r"<[^>]*\d\.\d{3,}", text)
