"""The memory of a training step, estimated before the first step."""

import pytest

from supcon_tf import models
from supcon_tf.keras_2 import keras
from supcon_tf.training import memory


@pytest.fixture(scope="module")
def encoder():
    encoder = models.Encoder("vgg8", width=0.125)
    encoder.build((None, 32, 32, 3))
    return encoder


def test_activations_are_the_inputs_of_the_gradient(encoder):
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


def test_a_step_beyond_the_memory_has_a_warning_with_remedies(
    encoder, tiny_settings, monkeypatch
):
    monkeypatch.setattr(memory, "activation_bytes", lambda *_: 200_000)
    size = {"image_size": 32, "batch_size": 256, "width": 0.125}

    def warning(share, **overrides):
        capacity = share and share * 512 * 200_000
        monkeypatch.setattr(memory, "available_bytes", lambda: capacity)
        return memory.warning(tiny_settings(**size, **overrides), encoder)

    assert warning(None) is warning(2.0) is None
    text = warning(1.0)
    assert text.startswith("the activations of 512 views take about 0.1 GB, of")
    assert "--gradient_cache_chunks=2 computes the same loss" in text
    assert "--batch_size=128, or a smaller --image_size" in text
    assert "--gradient_cache_chunks=8 " in warning(0.25)
    # The new number of chunks is a multiple of the present number.
    assert warning(1.0, gradient_cache_chunks=2) is None
    assert "--gradient_cache_chunks=8 " in warning(0.3, gradient_cache_chunks=2)
    text = warning(1.0, objective="ce")
    assert "chunks" not in text and "--batch_size=128" in text


def test_the_memory_of_this_machine_is_plausible():
    available = memory.available_bytes()
    assert available is None or 2**28 < available < 2**50
