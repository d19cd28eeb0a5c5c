"""Encoder: contract of its output, stem, normalisation, saving, strategy."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models


def _images(count=3, side=16):
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def _small(**kwargs):
    return models.Encoder("resnet18", **({"width": 0.125} | kwargs))


@pytest.mark.parametrize(
    ("architecture", "policy"),
    [
        ("resnet50", "float32"),
        ("resnet18", "mixed_bfloat16"),
        ("vgg8", "mixed_float16"),
    ],
)
def test_representations_are_float32_and_of_unit_length(architecture, policy):
    encoder = models.Encoder(architecture, width=0.0625, dtype=policy)
    for training in (False, True):
        r = encoder(_images(), training=training)
        assert r.dtype == tf.float32
        assert r.shape == (3, encoder.representation_dim)
        np.testing.assert_allclose(np.linalg.norm(r, axis=-1), 1, atol=1e-6)
    stack = encoder.stack
    assert stack.compute_dtype == policy.removeprefix("mixed_")
    assert all(v.dtype == tf.float32 for v in encoder.variables)


def test_representation_dim_is_set_at_construction():
    for architecture, width, expected in (
        ("resnet18", 1.0, 512),
        ("resnet34", 2.0, 1024),
        ("resnet50", 1.0, 2048),
        ("resnet200", 0.5, 1024),
        ("vgg8", 1.0, 256),
        ("vgg16", 0.25, 128),
    ):
        encoder = models.Encoder(architecture, width=width)
        assert encoder.representation_dim == expected


@pytest.mark.parametrize(
    ("stem", "side", "expected"),
    [
        ("auto", 64, "cifar"),
        ("auto", 65, "imagenet"),
        ("cifar", 224, "cifar"),
        ("imagenet", None, "imagenet"),
    ],
)
def test_stem(stem, side, expected):
    encoder = _small(stem=stem)
    assert encoder.resolved_stem is None
    encoder.build((None, side, side, 3))
    assert encoder.resolved_stem == expected
    kernel = encoder.stack.stem_conv.conv.kernel
    assert kernel.shape[0] == (7 if expected == "imagenet" else 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"architecture": "resnet19"},
            "`architecture` must be one of resnet18, resnet34, resnet50, "
            "resnet101, resnet152, resnet200, vgg8, vgg16, got 'resnet19'",
        ),
        ({"stem": "torch"}, "`stem` must be one of auto, cifar, imagenet, got"),
        (
            {"architecture": "vgg8", "stem": "cifar"},
            "`stem` must be 'auto' for VGG, got 'cifar'",
        ),
        ({"width": 0.0}, "`width` must be positive, got 0.0"),
        ({"width": float("nan")}, "`width` must be positive, got nan"),
        ({"image_std": (1.0, 0.0, 1.0)}, "`image_std` must be positive, got"),
        (
            {"image_mean": 0.5},
            "`image_mean` must be a tuple, as (0.5,) * 3, got",
        ),
        ({"image_mean": ()}, "`image_mean` must have 1 to 16 channels, got"),
        ({"image_std": (1.0,) * 17}, "`image_std` must have 1 to 16 channels"),
    ],
)
def test_bad_argument(arguments, message):
    with pytest.raises(ValueError) as error:
        models.Encoder(**arguments)
    assert str(error.value).startswith(message)


def test_bad_images():
    message = r"`images` must be \[batch, height, width, channels\] of 1 to 16"
    encoder = _small()
    with pytest.raises(ValueError, match=message):
        encoder.build((None, 16, 16, 17))
    with pytest.raises(ValueError, match="`image_mean` must have the 4 channe"):
        _small(image_mean=(0.4, 0.5, 0.6)).build((None, 16, 16, 4))
    encoder(_images())
    for shape in ((16, 16, 3), (2, 16, 16, 17), (2, 2, 16, 16, 3)):
        with pytest.raises(ValueError, match=message):
            encoder(np.zeros(shape, np.uint8))
    message = "where the image size is not static, got 'auto'"
    with pytest.raises(ValueError, match=message):
        _small().build((None, None, None, 3))


def _seen_by_the_stack(encoder):
    seen, call = [], encoder.stack.call
    encoder.stack.call = lambda images, training: (
        seen.append(images) or call(images, training=training)
    )
    return seen


def test_images_are_normalised_inside():
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    images = _images()
    encoder = _small(image_mean=mean, image_std=std)
    output = encoder(images)
    seen = _seen_by_the_stack(encoder)
    np.testing.assert_array_equal(encoder(images), output)
    expected = (images.astype(np.float64) / 255 - mean) / std
    np.testing.assert_allclose(seen[0], expected, atol=1e-6)

    raw = _small(image_mean=(0, 0, 0), image_std=(1 / 255,) * 3)
    raw.build((None, 16, 16, 3))
    raw.set_weights(encoder.get_weights())
    np.testing.assert_allclose(
        raw(expected.astype(np.float32)), output, atol=1e-5
    )


def test_images_are_normalised_in_float32_then_cast():
    encoder = _small(dtype="mixed_bfloat16")
    encoder.build((None, 16, 16, 3))
    conv = encoder.stack.blocks[3].branch[1].conv
    assert conv.compute_dtype == "bfloat16"  # as made, not as when built
    seen = _seen_by_the_stack(encoder)
    images = _images()
    for inputs in (images, images.astype(np.float32)):
        encoder(inputs)
        expected = (tf.cast(inputs, tf.float32) / 255 - 0.5) / 0.5
        np.testing.assert_array_equal(
            seen.pop().numpy(), tf.cast(expected, tf.bfloat16).numpy()
        )


def test_without_normalize_the_pooled_activations_come_out():
    encoder, pooled = _small(), _small(normalize=False)
    images = _images()
    representations = encoder(images)
    pooled.build(images.shape)
    pooled.set_weights(encoder.get_weights())
    raw = pooled(images).numpy()
    pixels = tf.constant((images / 255.0 - 0.5) / 0.5, tf.float32)
    np.testing.assert_allclose(
        raw, tf.reduce_mean(pooled.stack(pixels), axis=[1, 2]), atol=1e-5
    )
    raw /= np.linalg.norm(raw, axis=-1, keepdims=True)
    np.testing.assert_allclose(representations, raw, atol=1e-6)


def test_names_are_the_same_from_build_call_and_nesting():
    built, called = _small(), _small()
    nested = models.SupConModel(_small(), models.ProjectionHead(8, (8,)))
    built.build((None, 16, 16, 3))
    called(_images())
    nested(_images(4).reshape(2, 2, 16, 16, 3))
    names = [v.name for v in built.variables]
    assert names[0] == "encoder/resnet18/stem/conv/kernel:0"
    assert "encoder/resnet18/group1_block0/shortcut/bn/gamma:0" in names
    assert "encoder/resnet18/group3_block1/second/bn/moving_mean:0" in names
    assert len(set(names)) == len(names)
    assert names == [v.name for v in called.variables]
    assert names == [v.name for v in nested.encoder.variables]
    before = [v.ref() for v in built.variables]
    built.build((None, 16, 16, 3))
    built(_images(), training=True)
    assert [v.ref() for v in built.variables] == before
