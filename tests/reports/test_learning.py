from __future__ import annotations

import re

import numpy as np

from supcon_tf.reports import learning
from tests.reports import run_files


def run_with(lines, name="run", **settings):
    epochs = [{"epoch": i + 1, **x} for i, x in enumerate(lines)]
    return run_files.bare_run(name, epochs=epochs, settings=settings)


def titles(body):
    return re.findall("<figcaption><b>(.*?)</b>", body)


def test_a_figure_per_quantity_and_the_rest_on_request():
    lines = [
        {"loss": 2.0, "new <x>": 1.0, "images/s": 9.0, "loss/chance": 0.5}
    ] * 2
    body = learning.curves_section([run_with(lines)]).body
    shown, folded = body.split("<details>")
    assert titles(shown) == ["Loss"]
    assert titles(folded) == ["Speed", "new &lt;x&gt;"]


def test_the_chance_level_is_drawn_where_it_is_recorded():
    with_chance = [{"loss": 2.0, "loss/chance": 0.5}, {"loss": 1.0}]
    assert ">chance<" in learning.curves_section([run_with(with_chance)]).body
    without = [{"loss": 2.0}, {"loss": 1.0}]
    assert ">chance<" not in learning.curves_section([run_with(without)]).body


def test_gaps_are_skipped_and_nothing_finite_is_no_figure():
    lines = [{"loss": 1.0, "accuracy": None}, {"loss": None}, {"loss": 3.0}]
    body = learning.curves_section([run_with(lines)]).body
    assert titles(body) == ["Loss"]
    assert "1 at first, 3 at last" in body


def test_a_run_without_epochs():
    started = learning.curves_section([run_with([], epochs="5")])
    assert not started.body and "--resume" in started.absent
    untrained = learning.curves_section([run_with([], epochs="0")])
    assert not untrained.body and not untrained.absent


def test_losses_of_different_objectives_are_not_compared():
    runs = [
        run_with([{"loss": 1.0}], name, objective=name)
        for name in ("supcon", "ce")
    ]
    assert "cannot be compared" in learning.curves_section(runs).explanation
    same = learning.curves_section(runs[:1] * 2).explanation
    assert "cannot be compared" not in same


def test_views_of_the_same_images_are_shown_once():
    def run(name, level):
        views = np.full([2, 3, 4, 4, 3], level, np.uint8)
        samples = {"views": views, "view_labels": np.array([0, 1])}
        return run_files.bare_run(name, samples=samples)

    body = learning.views_section([run("a", 1), run("b", 1)]).body
    assert body.count("<img") == 6
    assert "<h3><bdi>a</bdi>, <bdi>b</bdi></h3>" in body
    assert 'alt="view 3 of an image of bee"' in body
    body = learning.views_section([run("a", 1), run("b", 2)]).body
    assert body.count("<img") == 12
