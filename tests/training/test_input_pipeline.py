from __future__ import annotations

import pytest

from supcon_tf import augment, config
from supcon_tf.training import (
    input_pipeline,
)

_SIM = {
    "strength": 0.8,
    "jitter_probability": 0.7,
    "grayscale_probability": 0.1,
    "warp_probability": 0.3,
    "blur_probability": 0.4,
}
_RAND = {
    "num_layers": 3,
    "magnitude": 6.5,
    "num_operations": 14,
    "probability": 0.9,
    "fill": (1, 2, 3),
}


@pytest.mark.parametrize(
    "name, made, arguments",
    [
        ("autoaugment", augment.AutoAugment, {"policy": "svhn"} | _RAND),
        ("randaugment", augment.RandAugment, _RAND),
        ("simaugment", augment.SimAugment, _SIM),
        ("stacked_randaugment", augment.StackedRandAugment, _RAND | _SIM),
    ],
)
def test_augmentation_takes_all_its_flags(name, made, arguments):
    chosen = config.AugmentationSettings(
        run_dir="unused",
        augmentation=name,
        autoaugment_policy="svhn",
        randaugment_layers=3,
        randaugment_magnitude=6.5,
        randaugment_operations=14,
        randaugment_probability=0.9,
        fill=(1, 2, 3),
        jitter_strength=0.8,
        jitter_probability=0.7,
        grayscale_probability=0.1,
        warp_probability=0.3,
        blur_probability=0.4,
    )
    policy = input_pipeline.augmentation(chosen)
    assert type(policy) is made
    expected = {key: arguments[key] for key in policy.get_config()}
    assert policy.get_config() == expected


def test_defaults_of_the_flags_are_those_of_the_policies():
    for name, policy in (
        ("autoaugment", augment.AutoAugment()),
        ("randaugment", augment.RandAugment()),
        ("simaugment", augment.SimAugment()),
        ("stacked_randaugment", augment.StackedRandAugment()),
    ):
        chosen = config.AugmentationSettings(run_dir="-", augmentation=name)
        made = input_pipeline.augmentation(chosen)
        assert made.get_config() == policy.get_config()


def test_identity_is_no_policy():
    chosen = config.AugmentationSettings(run_dir="-", augmentation="identity")
    assert input_pipeline.augmentation(chosen) is None


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"randaugment_operations": 15}, "operations must be 14 or 16, got 15"),
        ({"fill": (1, 2)}, "--fill must be three numbers 0 to 255, got 1,2"),
        ({"fill": (1, 2, 256)}, "--fill must be .* got 1,2,256"),
        ({"randaugment_magnitude": 11.0}, "must be at most 10, got 11.0"),
        ({"autoaugment_policy": "v1"}, "one of imagenet, v0, .* got 'v1'"),
    ],
)
def test_bad_flags_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        config.AugmentationSettings(run_dir="-", **flags)
