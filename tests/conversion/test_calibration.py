"""Images of all classes alike."""

from __future__ import annotations

import numpy as np
import pytest

from supcon_tf import data
from supcon_tf.conversion import calibration

LABELS = np.repeat([0, 1, 2], [50, 20, 3])


@pytest.mark.parametrize(
    ("count", "of_each"),
    [(3, [1, 1, 1]), (9, [3, 3, 3]), (23, [10, 10, 3]), (99, [50, 20, 3])],
)
def test_classes_are_drawn_alike(count, of_each):
    drawn = calibration.draw_alike(LABELS, count, seed=0)
    assert (np.diff(drawn) > 0).all()
    assert np.bincount(LABELS[drawn], minlength=3).tolist() == of_each


def test_fewer_images_than_classes_are_of_different_classes():
    drawn = calibration.draw_alike(np.repeat(range(10), 4), 6, seed=0)
    assert len(set(drawn // 4)) == 6


def test_a_draw_goes_by_its_seed():
    draws = [calibration.draw_alike(LABELS, 9, seed) for seed in (0, 0, 1)]
    assert draws[0].tolist() == draws[1].tolist() != draws[2].tolist()


def test_images_are_those_of_evaluation():
    digits = data.load("digits", "train")
    images = calibration.calibration_images(digits, 16, 20, seed=3)
    assert images.shape == (20, 16, 16, 3) and images.dtype == np.uint8
    drawn = calibration.draw_alike(digits.labels, 20, seed=3)
    (all_images,) = (
        x for x, _ in data.make_examples(digits, 5000, image_size=16)
    )
    np.testing.assert_array_equal(images, all_images.numpy()[drawn])
