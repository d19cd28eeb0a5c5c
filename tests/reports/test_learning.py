from __future__ import annotations

import numpy as np

from tests.reports import pages, run_files


def run_with(lines, name="run", **settings):
    epochs = [{"epoch": i + 1, **line} for i, line in enumerate(lines)]
    return run_files.bare_run(name, epochs=epochs, settings=settings)


def test_a_figure_per_quantity_and_the_rest_on_request():
    lines = [
        {"loss": 2.0, "new <x>": 1.0, "examples/s": 9.0, "loss/chance": 0.5}
    ] * 2
    body = pages.section("curves", run_with(lines))
    lead, folded = body.split("<details>")
    assert pages.titles(lead) == ["Loss"]
    assert pages.titles(folded) == ["Speed", "new <x>"]


def test_the_chance_level_is_drawn_where_it_is_recorded():
    lines = [{"loss": 2.0, "loss/chance": 0.5}, {"loss": 1.0}]
    assert ">chance<" in pages.section("curves", run_with(lines))
    assert ">chance<" not in pages.section("curves", run_with(lines[1:] * 2))


def test_gaps_are_skipped_and_nothing_finite_is_no_figure():
    lines = [{"loss": 1.0, "accuracy": None}, {"loss": None}, {"loss": 3.0}]
    body = pages.section("curves", run_with(lines))
    assert pages.titles(body) == ["Loss"]
    assert "1 at first, 3 at last" in body


def test_a_run_without_epochs():
    started = run_with([], epochs="5")
    assert not pages.section("curves", started)
    assert "Learning curves. Not made yet" in pages.left_out(started)
    assert "--resume" in pages.left_out(started)
    untrained = run_with([], epochs="0")
    assert not pages.section("curves", untrained)
    assert "Learning curves" not in pages.left_out(untrained)


def test_losses_of_different_objectives_are_not_compared():
    runs = [
        run_with([{"loss": 1.0}], name, objective=name)
        for name in ("supcon", "ce")
    ]
    assert "cannot be compared" in pages.section("curves", *runs)
    assert "cannot be compared" not in pages.section("curves", runs[0])


def test_views_of_the_same_images_are_shown_once():
    def run(name, level):
        views = np.full([2, 3, 4, 4, 3], level, np.uint8)
        samples = {"views": views, "view_labels": np.array([0, 1])}
        return run_files.bare_run(name, samples=samples)

    body = pages.section("views", run("a", 1), run("b", 1))
    assert body.count("<img") == 6
    assert "<h3><bdi>a</bdi>, <bdi>b</bdi></h3>" in body
    assert 'alt="view 3 of an image of bee"' in body
    body = pages.section("views", run("a", 1), run("b", 2))
    assert body.count("<img") == 12
