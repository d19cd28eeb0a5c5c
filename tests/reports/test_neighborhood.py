from __future__ import annotations

import base64
import io
import re

import numpy as np
from matplotlib import image

from tests.reports import pages, run_files


def sampled(predicted=(0, 0), side=8):
    images = np.zeros([2, side, side, 3], np.uint8)
    images[0, 1, 2] = (10, 20, 30)
    return {
        "images": images,
        "labels": np.array([0, 1]),
        "predicted": np.array(predicted),
        "neighbors": np.zeros([2, 3, side, side, 3], np.uint8),
        "neighbor_labels": np.array([[0, 1, 0], [1, 1, 5]]),
        "neighbor_similarities": np.full([2, 3], 0.98765, np.float32),
    }


def test_right_and_wrong_are_told_by_sign_and_frame():
    run = run_files.bare_run(samples=sampled())
    body = pages.section("neighbors", run)
    first, second = body.split('<div class="sample">')[1:]
    assert re.findall("[✓✗]", first) == ["✓", "✓", "✗", "✓"]
    assert re.findall("[✓✗]", second) == ["✗", "✓", "✓", "✗"]
    assert first.count("pictured wrong") == 1
    assert second.count("pictured wrong") == 2
    assert 'alt="test image of bee, predicted ant"' in second
    assert 'alt="training image of 5, similarity 0.988"' in second
    assert "<small>0.988</small>" in second
    encoded = re.search('src="data:image/png;base64,([^"]*)"', body)[1]
    pixels = image.imread(io.BytesIO(base64.b64decode(encoded)), "png")
    picture = np.round(255 * pixels[..., :3]).astype(np.uint8)
    np.testing.assert_array_equal(picture, sampled()["images"][0])


def test_without_a_classifier_there_is_no_prediction():
    run = run_files.bare_run(samples=sampled(predicted=(-1, -1)))
    body = pages.section("neighbors", run)
    assert "predicted" not in body
    assert 'alt="test image of ant"' in body


def test_photographs_are_smoothed():
    runs = [run_files.bare_run(samples=sampled(side=side)) for side in (64, 65)]
    small, large = (pages.section("neighbors", run) for run in runs)
    assert "photo" not in small and large.count(" photo") == 8


def planar(labels, plane=None):
    if plane is None:
        plane = np.random.default_rng(0).normal(size=[len(labels), 2])
    return {
        "plane": plane,
        "labels": np.array(labels),
        "plane_method": np.array("pca"),
    }


def test_the_plane_and_its_legend():
    runs = [
        run_files.bare_run(n, representations=planar([0, 1, 1])) for n in "ab"
    ]
    body = pages.section("representations", *runs)
    assert body.count('<svg class="figure"') == 2
    assert body.count('<ul class="legend">') == 1  # of both
    assert "PCA: the two directions" in body
    other = run_files.bare_run(
        "c", class_names=("x", "y"), representations=planar([0, 1])
    )
    body = pages.section("representations", runs[0], other)
    assert body.count('<ul class="legend">') == 2


def test_a_plane_without_legend_or_spread_has_a_note():
    run = run_files.bare_run(representations=planar(list(range(71))))
    body = pages.section("representations", run)
    assert "there is no legend" in pages.words(body)  # as marks repeat
    arrays = planar([0, 1], np.zeros([2, 2]))
    run = run_files.bare_run(representations=arrays)
    body = pages.section("representations", run)
    assert "all the same, or fewer than three" in body
