from __future__ import annotations

from supcon_tf.reports import page

FIGURE = (
    '<svg class="figure"><a id="m"/><b href="#m"/><i fill="url(#m)"/></svg>'
)


def render(*sections):
    return page.render("Report of <1>", "a & b", "<p>intro</p>", sections)


def test_title_and_contents_are_escaped():
    text = render(page.Section("one", "R&D", "why", "<p>body</p>"))
    assert "<title>a &amp; b: report of &lt;1&gt;</title>" in text
    assert "<h1>a &amp; b</h1>" in text
    assert '<a href="#one">R&amp;D</a>' in text
    assert '<section id="one">' in text


def test_ids_of_equal_figures_are_told_apart():
    text = render(page.Section("one", "One", "why", FIGURE + FIGURE))
    for number in (1, 2):
        assert (
            f'<a id="f{number}-m"/><b href="#f{number}-m"/>'
            f'<i fill="url(#f{number}-m)"/>'
        ) in text
    assert '<a href="#one">' in text  # those of the page stay


def test_empty_sections_are_named_once_per_command():
    text = render(
        page.Section("one", "One", "why", "<p>body</p>", "in part"),
        page.Section("two", "Two", absent="run it"),
        page.Section("three", "Three", absent="run it"),
        page.Section("four", "Four", absent="run that"),
        page.Section("five", "Five"),
    )
    assert '<p class="quiet">in part</p></div></section>' in text
    assert '<p class="quiet"><b>Two, Three.</b> run it</p>' in text
    assert '<p class="quiet"><b>Four.</b> run that</p>' in text
    assert '<a href="#two">' not in text and "Five" not in text


def test_nothing_may_be_fetched_or_run():
    assert "default-src 'none'" in render()
