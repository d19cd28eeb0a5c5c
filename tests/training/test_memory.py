"""The memory of a training step, estimated before it is taken."""

import pytest

from supcon_tf import models
from supcon_tf.keras_2 import keras
from supcon_tf.training import memory


@pytest.fixture(scope="module")
def encoder():
    encoder = models.Encoder("vgg8", width=0.125)
    encoder.build((None, 32, 32, 3))
    return encoder


def test_activations_are_those_that_the_gradient_reads(encoder):
    """Of VGG: images, and per convolution its output before and after ReLU."""
    small, large = (memory.activation_bytes(encoder, side) for side in (32, 64))
    channels = [
        layer.filters
        for layer in encoder.stack.submodules
        if isinstance(layer, keras.layers.Conv2D)
    ]
    sides = (32, 32, 16, 16, 8, 8, 8, 8)
    outputs = 4 * sum(
        count * side**2 for count, side in zip(channels, sides, strict=True)
    )
    assert 2 * outputs < small < 3.5 * outputs
    assert large == pytest.approx(4 * small, rel=0.05)  # with the pixels


def test_what_does_not_fit_is_said_with_the_flag_that_helps(
    encoder, tiny_settings, monkeypatch
):
    needed = 512 * memory.activation_bytes(encoder, 32)
    size = {"image_size": 32, "batch_size": 256, "width": 0.125}

    def warning(share, **overrides):
        capacity = share and share * needed
        monkeypatch.setattr(memory, "available_bytes", lambda: capacity)
        return memory.warning(tiny_settings(**size, **overrides), encoder)

    assert warning(None) is warning(2.0) is None
    text = warning(1.0)
    assert text.startswith("the activations of 512 views take about 0.1 GB, of")
    assert "--gradient_cache_chunks=2 computes the same loss" in text
    assert "--batch_size=128, or a smaller --image_size" in text
    assert "--gradient_cache_chunks=8 " in warning(0.25)
    # Chunks that there are count, and are multiplied.
    assert warning(1.0, gradient_cache_chunks=2) is None
    assert "--gradient_cache_chunks=8 " in warning(0.3, gradient_cache_chunks=2)
    text = warning(1.0, objective="ce")
    assert "chunks" not in text and "--batch_size=128" in text


def test_the_machine_says_what_it_has():
    available = memory.available_bytes()
    assert available is None or 2**28 < available < 2**50
