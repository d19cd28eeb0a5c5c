import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, config, data
from supcon_tf.data import subsets
from supcon_tf.training import input_pipeline

_SIM = {  # setting to argument and value
    "jitter_strength": ("strength", 0.8),
    "grayscale_probability": ("grayscale_probability", 0.1),
    "warp_probability": ("warp_probability", 0.3),
    "blur_probability": ("blur_probability", 0.4),
    "rotation_probability": ("rotation_probability", 0.6),
}
_AUTO = {"autoaugment_policy": ("policy", "svhn")}
_RAND = {
    "randaugment_layers": ("num_layers", 3),
    "randaugment_magnitude": ("magnitude", 6.5),
}


@pytest.mark.parametrize(
    "name, kind, settings",
    [
        ("autoaugment", augment.AutoAugment, _AUTO),
        ("randaugment", augment.RandAugment, _RAND),
        ("simaugment", augment.SimAugment, _SIM),
        ("stacked_randaugment", augment.StackedRandAugment, _RAND | _SIM),
    ],
)
def test_augmentation_takes_all_its_flags(name, kind, settings):
    flags = {flag: value for flag, (_, value) in (_AUTO | _RAND | _SIM).items()}
    policy = input_pipeline.augmentation(
        config.AugmentationSettings("unused", augmentation=name, **flags)
    )
    assert type(policy) is kind
    assert policy.get_config() == kind().get_config() | dict(settings.values())
    unused = config.AugmentationSettings(
        "unused", augmentation=name, **flags
    ).unused_parameters
    assert {*unused} == flags.keys() - settings.keys()
    alone = {flag: flags[flag] for flag in settings}
    used = config.AugmentationSettings("unused", augmentation=name, **alone)
    assert not used.unused_parameters


def test_policies_have_the_papers_defaults_and_flags_milder_ones():
    names = ("jitter_strength", "warp_probability", "blur_probability")
    paper = dict.fromkeys(names, 0.5)
    milder = config.AugmentationSettings(run_dir="-")
    assert all(getattr(milder, name) < paper[name] for name in paper)
    for name, policy in (
        ("autoaugment", augment.AutoAugment()),
        ("randaugment", augment.RandAugment()),
        ("simaugment", augment.SimAugment()),
        ("stacked_randaugment", augment.StackedRandAugment()),
    ):
        settings = config.AugmentationSettings(
            run_dir="-", augmentation=name, **paper
        )
        augmentation = input_pipeline.augmentation(settings)
        assert augmentation.get_config() == policy.get_config()
    none = config.AugmentationSettings(run_dir="-", augmentation="identity")
    assert input_pipeline.augmentation(none) is None


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"randaugment_magnitude": 11.0}, "must be at most 10, got 11.0"),
        ({"autoaugment_policy": "v1"}, "one of imagenet, v0, .* got 'v1'"),
    ],
)
def test_bad_flags_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        config.AugmentationSettings(run_dir="-", **flags)


def digits_source(split="train", **options):
    settings = config.PretrainSettings("x", dataset="digits", **options)
    return input_pipeline.source(settings, split)


def pixels(source):
    images = source.records(None).map(source.read).as_numpy_iterator()
    return [image.tobytes() for image, _ in images]


def test_a_part_of_the_training_images_is_drawn():
    sizes = np.bincount(digits_source().labels)
    subset = digits_source(images_per_label=7, draw=3)
    assert (np.bincount(subset.labels) == 7).all()
    share = digits_source(train_fraction=0.25)
    assert (np.bincount(share.labels) == np.round(sizes / 4)).all()
    images = pixels(subset)
    assert {*pixels(digits_source())}.issuperset(images)
    assert pixels(digits_source(images_per_label=7, draw=3)) == images
    assert pixels(digits_source(images_per_label=7, draw=4)) != images
    assert digits_source("test", images_per_label=7).num_examples == 360
    assert digits_source(train_fraction=1).num_examples == sizes.sum()


def test_a_share_of_the_images_has_every_class():
    """Also a class of one image, which would never be trained."""
    images = np.zeros([9, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 0, 0, 0, 1, 2, 2, 2, 2])
    settings = config.PretrainSettings("x", train_fraction=0.5)
    drawn = input_pipeline._draw_images(settings, source)
    assert np.bincount(drawn.labels).tolist() == [2, 1, 2]


def test_more_images_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="--images_per_label must be at most"):
        digits_source(images_per_label=500)


@pytest.mark.slow
def test_mixing_is_a_function_of_seed_and_step(tiny_settings):
    settings = tiny_settings(objective="ce", mixing="mixup")
    images = input_pipeline.source(settings, "train")
    mix = input_pipeline.mixing(settings, 3)

    def batches(count, settings=settings, **options):
        dataset = input_pipeline.views(settings, images, 16, 2, mix, **options)
        assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        return list(dataset.take(count).as_numpy_iterator())

    sequence = batches(5)
    batch = batches(1, start_step=4)[0]
    np.testing.assert_array_equal(batch[0], sequence[4][0])
    np.testing.assert_array_equal(batch[1], sequence[4][1])
    weights = [soft.max(axis=1) for _, soft in sequence]
    assert len({tuple(weight) for weight in weights}) == 5
    other = batches(1, dataclasses.replace(settings, seed=1))[0]
    assert (other[1].max(axis=1) != weights[0]).any()


def test_mixing_has_its_options(tiny_settings):
    for settings, alpha in (
        ({"mixing": "mixup"}, 0.2),
        ({"mixing": "cutmix"}, 1.0),
        ({"mixing": "cutmix", "mixing_alpha": 0.5}, 0.5),
    ):
        mix = input_pipeline.mixing(
            tiny_settings(objective="ce", **settings), 3
        )
        assert type(mix).__name__.lower() == settings["mixing"]
        assert mix.get_config() == {"num_classes": 3, "alpha": alpha}
    assert input_pipeline.mixing(tiny_settings(), 3) is None
    for overrides, message in (
        (
            {"mixing": "mixup", "objective": "simclr"},
            "--mixing must be left out with --objective=simclr",
        ),
        ({"mixing": "mixup", "objective": "max_margin"}, "only supcon, ce, "),
        (
            {"mixing_alpha": 0.2, "objective": "ce"},
            "--mixing_alpha must be left out with --mixing=none, got 0.2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            tiny_settings(**overrides)


@pytest.mark.slow(but=["folder"])
@pytest.mark.parametrize("kind", ["folder", "tfrecord"])
def test_duplicates_can_be_left_out(image_folder, tmp_path, kind):
    """Of the test split, where they are byte for byte training images."""
    shutil.copytree(image_folder, tmp_path / "data")
    for name in ("dark", "mid"):
        shutil.copy(
            tmp_path / f"data/train/{name}/03.jpg",
            tmp_path / f"data/test/{name}/copied.jpg",
        )
    directory, options = tmp_path / "data", {"dataset": kind, "image_size": 16}
    if kind == "tfrecord":
        splits = {
            split: data.load("folder", split, str(directory))
            for split in ("train", "test")
        }
        data.write_tfrecords(splits, tmp_path / "records")
        directory = tmp_path / "records"
    settings = config.PretrainSettings("x", data_dir=str(directory), **options)
    test = input_pipeline.source(settings, "test")
    train = input_pipeline.source(settings, "train")
    assert (test.num_examples, len(subsets.duplicates(test, train))) == (23, 2)
    without = dataclasses.replace(settings, drop_duplicates=True)
    test = input_pipeline.source(without, "test")
    assert test.num_examples == 21 and not len(subsets.duplicates(test, train))
    assert (
        sum(len(y) for _, y in data.make_examples(test, 8, image_size=16)) == 21
    )
    # Not of training images that are not drawn.
    none_drawn = dataclasses.replace(without, images_per_label=1, draw=1)
    assert input_pipeline.source(none_drawn, "test").num_examples >= 21
    with pytest.raises(ValueError, match="drop_duplicates must come with"):
        dataclasses.replace(without, check_images=False)
