"""Parts of a rendered page, as tests read them."""

from __future__ import annotations

import html
import re

from supcon_tf.reports import page


def section(name, *runs):
    """The HTML of a section; "" where the page has none of this name."""
    start = f'<section id="{name}">'
    _, start, tail = page.render(runs).partition(start)
    return start and tail.partition("</section>")[0]


def left_out(*runs):
    """The text of the page on sections that it leaves out."""
    return words(section("left_out", *runs))


def words(markup):
    """The text of HTML, a space where a tag was."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", markup)).split())


def rows(markup):
    """Texts of the cells of all rows of tables; the best one ends in !."""
    return [
        [
            words(cell.replace('<span class="best">', "").replace("\n", ""))
            + ("!" if 'class="best"' in cell else "")
            for cell in re.findall("<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        for row in re.findall("<tr>(.*?)</tr>", markup, re.DOTALL)
    ]


def titles(markup):
    """The titles of figures."""
    return [
        words(title) for title in re.findall("<figcaption><b>(.*?)</b>", markup)
    ]
