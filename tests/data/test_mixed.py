import dataclasses

import numpy as np
import pytest

from supcon_tf import augment, data

CUT_MIX = augment.CutMix(num_classes=3)


@pytest.fixture
def source():
    images = np.random.default_rng(0).integers(0, 256, [12, 8, 8, 3], np.uint8)
    return data.from_arrays(images, np.arange(12) % 3)


@pytest.mark.slow(but=["shard1"])
@pytest.mark.parametrize("shard", [(0, 1), (1, 2)])
def test_a_batch_is_mixed_by_seed_step_and_worker(source, shard):
    options = {"seed": 5, "start_step": 2, "shard": shard, "crop_area": None}
    plain = data.make_views(source, 4, **options)
    mixed = data.make_views(source, 4, mix=CUT_MIX, **options)
    assert mixed.epochs.steps == plain.epochs.steps == 3
    for step, batch, (views, labels) in zip(
        range(2, 5), plain, mixed, strict=False
    ):
        seed = augment.fold_in([5, 1], step)
        expected = CUT_MIX(*batch, augment.fold_in(seed, shard[0]))
        np.testing.assert_array_equal(views, expected[0])
        np.testing.assert_array_equal(labels, expected[1])


def test_images_with_weights_are_not_mixed(source):
    weighted = dataclasses.replace(source, weights=np.ones(12, np.float32))
    with pytest.raises(ValueError, match="`mix` must be None .* got CutMix"):
        data.make_views(weighted, 4, mix=CUT_MIX)
