"""Every example is encoded once, by any number of replicas."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, models
from supcon_tf.data import progress as data_progress
from supcon_tf.training import representations

NUM_IMAGES = 23


@pytest.fixture(scope="module")
def source():
    images = np.random.default_rng(0).integers(
        0, 256, [NUM_IMAGES, 8, 8, 3], np.uint8
    )
    return data.from_arrays(images, np.arange(NUM_IMAGES))


@pytest.fixture(scope="module")
def encoder(mirrored_strategy):
    """An encoder on two replicas, whose representations differ by image."""
    with mirrored_strategy.scope():
        model = models.Encoder("vgg8", width=0.05)
        model.build((None, 8, 8, 3))
    rng = np.random.default_rng(1)
    ranges = {"moving_variance": (0.01, 0.1), "beta": (0.0, 1.0)}
    for variable in model.variables:
        kind = variable.name.rpartition("/")[2].partition(":")[0]
        if kind in ranges:
            variable.assign(rng.uniform(*ranges[kind], variable.shape))
    return model


@pytest.fixture(scope="module")
def expected(encoder, source):
    """One image at a time."""
    images = (image for image, _ in data.make_examples(source, 1))
    return np.concatenate([encoder(batch, training=False) for batch in images])


@pytest.mark.slow(but=["7"])
@pytest.mark.parametrize("batch_size", [1, 6, 7, 64])
def test_replicas_encode_like_one_device(
    encoder, source, expected, mirrored_strategy, batch_size
):
    for strategy in (None, mirrored_strategy):
        got, labels = representations.represent(
            encoder, source, batch_size=batch_size, strategy=strategy
        )
        np.testing.assert_array_equal(labels, np.arange(NUM_IMAGES))
        assert got.dtype == np.float32 and got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
    assert np.abs(np.diff(expected, axis=0)).max(1).min() > 1e-3  # all differ


class Spy:
    """The encoder, which notes the shapes of its traces."""

    def __init__(self, encoder):
        self.encoder, self.seen = encoder, []

    def __call__(self, images, training):
        assert training is False
        self.seen.append(images.shape.as_list())
        tf.debugging.assert_equal(tf.shape(images)[0], images.shape[0])
        return self.encoder(images, training=training)


def test_replicas_get_full_parts_of_static_size(
    encoder, source, mirrored_strategy
):
    """Also in the last batch, which holds two images of seven."""
    spy = Spy(encoder)
    before = [v.numpy() for v in encoder.variables]
    got, _ = representations.represent(
        spy, source, batch_size=7, strategy=mirrored_strategy
    )
    assert len(got) == NUM_IMAGES
    assert spy.seen == [[4, 8, 8, 3]] * 2  # traced once, by both replicas
    for variable, value in zip(encoder.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_splits_of_one_size_share_a_trace(encoder, source):
    spy = Spy(encoder)
    represent = representations.representer(spy, batch_size=10)
    first, _ = represent(source)
    again, _ = represent(source)
    np.testing.assert_array_equal(first, again)
    assert len(spy.seen) == 1


def test_a_wrong_batch_size_is_named(encoder, source):
    with pytest.raises(ValueError, match="`batch_size` must be in 1.*, got 0"):
        representations.represent(encoder, source, batch_size=0)


def test_a_long_split_has_a_progress_bar(encoder, source, monkeypatch, capsys):
    monkeypatch.setattr(data_progress, "_QUIET_SECONDS", 0.0)
    representations.represent(encoder, source, batch_size=10)
    assert "encoding     10 of 23, " in capsys.readouterr().err
