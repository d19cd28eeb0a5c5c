"""Policies by name, and Keras' own layers as policies."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, config, data
from supcon_tf.augment import named
from supcon_tf.keras_2 import keras
from supcon_tf.training import input_pipeline


def images(count=8, side=16):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, [count, side, side, 3]).astype(np.uint8)


@pytest.mark.parametrize("name", named._NAMED)
def test_names_and_flags_give_the_same_policy(name):
    by_flag = input_pipeline.augmentation(
        config.PretrainSettings("run", augmentation=name)
    )
    policy = augment.policy(name)
    assert type(policy) is type(by_flag)
    if policy is not None:
        assert policy.get_config() == by_flag.get_config()


def test_every_choice_of_the_flag_has_a_name():
    with pytest.raises(ValueError) as error:
        config.PretrainSettings("run", augmentation="other")
    assert all(name in str(error.value) for name in named._NAMED)


def test_policies_are_returned_unchanged():
    policy = augment.SimAugment()
    assert augment.policy(policy) is policy
    assert augment.policy(None) is None


@pytest.mark.parametrize("kind", [augment.AutoAugment, keras.layers.RandomFlip])
def test_a_class_is_no_policy(kind):
    with pytest.raises(ValueError, match="not the class of one, got <class"):
        augment.policy(kind)


LAYERS = {
    "flip": lambda: keras.layers.RandomFlip("horizontal"),
    "brightness": lambda: keras.layers.RandomBrightness(0.9),
    "several": lambda: keras.Sequential(
        [keras.layers.RandomRotation(0.1), keras.layers.RandomContrast(0.5)]
    ),
}


@pytest.mark.slow(but=["flip"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_keras_augment_views(name):
    source = data.from_arrays(images(), np.arange(8))
    options = {"crop_area": None, "horizontal_flip": False}
    views = data.make_views(source, 8, augmentation=LAYERS[name](), **options)
    assert views.element_spec[0] == tf.TensorSpec([8, 2, 16, 16, 3], tf.uint8)
    batch, labels = next(views.as_numpy_iterator())
    unaugmented = images()[labels][:, None]
    assert (batch != unaugmented).any()
    if name == "flip":
        mirrored = unaugmented[:, :, :, ::-1]
        is_flip = (batch == unaugmented) | (batch == mirrored)
        assert is_flip.reshape(16, -1).all()


def test_a_layer_that_changes_the_shape_is_refused():
    policy = augment.policy(keras.layers.RandomCrop(8, 8))
    with pytest.raises(ValueError, match="must leave images of the same shape"):
        policy(images(), np.zeros([8, 2], np.int32))


SCALING = {
    "unit": lambda: keras.layers.Rescaling(1 / 255),
    "centred": lambda: keras.layers.Rescaling(1 / 127.5, -1),
    "clipped": lambda: keras.layers.RandomBrightness(0.2, value_range=(0, 1)),
    "several": lambda: keras.Sequential(
        [keras.layers.Rescaling(1 / 255), keras.layers.RandomContrast(0.2)]
    ),
}


@pytest.mark.parametrize("name", SCALING)
def test_a_layer_that_scales_is_refused(name):
    message = "must keep images in 0..255: leave Rescaling layers out"
    policy = augment.policy(SCALING[name]())
    with pytest.raises(ValueError, match=message):
        policy(images(), np.zeros([8, 2], np.int32))
    source = data.from_arrays(images(), np.arange(8))
    with pytest.raises(ValueError, match=message):
        data.make_views(source, 8, augmentation=SCALING[name]())


def test_images_that_are_nearly_black_are_no_error():
    black = images() // 255
    policy = augment.policy(keras.layers.RandomContrast(0.5))
    for pixels in (black, black.astype(np.float32)):
        assert policy(pixels, np.zeros([8, 2], np.int32)).dtype == pixels.dtype
    back = [keras.layers.Rescaling(1 / 255), keras.layers.Rescaling(255)]
    policy = augment.policy(keras.Sequential(back))
    unchanged = policy(images(), np.zeros([8, 2], np.int32))
    np.testing.assert_array_equal(unchanged, images())
