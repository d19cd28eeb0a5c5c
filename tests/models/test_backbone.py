"""Any Keras model as an encoder."""

import functools
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models, serving, training
from supcon_tf.conversion import formats
from supcon_tf.keras_2 import keras

ROOT = pathlib.Path(__file__).parent.parent.parent
SIDE = 32


def small(pooling=None, rescaling=False, side=None):
    """Two convolutions, from pixels to a map of 6 channels or their mean."""
    inputs = keras.Input((side, side, 3))
    x = keras.layers.Rescaling(1 / 255)(inputs) if rescaling else inputs
    x = keras.layers.Conv2D(4, 3, 2, activation="relu")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Conv2D(6, 3, 2)(x)
    if pooling:
        x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, x)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(5)

    def call(self, inputs):
        return self.dense(tf.reduce_mean(inputs, axis=[1, 2]))


def preprocess_input(mode):
    """The function of `keras.applications` for a mode."""
    module = keras.applications.imagenet_utils
    return functools.partial(module.preprocess_input, mode=mode)


def images(count=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, [count, SIDE, SIDE, 3], np.uint8)


@pytest.mark.parametrize(
    ("pooling", "rescaling"), [(None, True), ("avg", False)]
)
def test_representations_are_pooled_and_of_unit_length(pooling, rescaling):
    backbone = small(pooling, rescaling)
    encoder = models.BackboneEncoder(backbone)
    representations = encoder(images()).numpy()
    pixels = images().astype(np.float32)
    features = backbone(pixels if rescaling else pixels / 127.5 - 1).numpy()
    if not pooling:
        features = features.mean(axis=(1, 2))
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    expected = features / norms
    np.testing.assert_allclose(representations, expected, rtol=1e-4, atol=1e-5)
    assert encoder.representation_dim == 6
    assert representations.dtype == np.float32
    pooled = models.BackboneEncoder(backbone, normalize=False)(images())
    np.testing.assert_allclose(pooled, features, rtol=1e-4, atol=1e-5)


def flatten():
    """A backbone whose features are its input."""
    return keras.Sequential(
        [keras.layers.Input((SIDE, SIDE, 3)), keras.layers.Flatten()]
    )


@pytest.mark.parametrize("mode", ["none", "tf", "torch", "caffe"])
def test_preprocessing_is_that_of_keras_applications(mode):
    encoder = models.BackboneEncoder(flatten(), mode, normalize=False)
    expected = images().astype(np.float32)
    if mode != "none":
        expected = keras.applications.imagenet_utils.preprocess_input(
            expected.copy(), mode=mode
        )
    np.testing.assert_allclose(
        encoder(images()), expected.reshape(4, -1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "pair", [(0.5, -1), ([0.1, 0.2, 0.3], (1.0, 2.0, 3.0)), [[2.0], 0.0]]
)
def test_preprocessing_is_a_scale_and_an_offset(pair, tmp_path):
    encoder = models.BackboneEncoder(flatten(), pair, normalize=False)
    expected = images() * np.array(pair[0]) + np.array(pair[1])
    features = encoder(images())
    np.testing.assert_allclose(features, expected.reshape(4, -1), rtol=1e-5)
    encoder.save(tmp_path / "e.keras")
    loaded = keras.models.load_model(tmp_path / "e.keras")
    np.testing.assert_array_equal(loaded(images()), features)
    assert encoder.takes_pixels
    for wrong in ((1.0,), (1.0, "a"), (1.0, [[2.0]])):
        with pytest.raises(ValueError, match="or a scale and an offset of pix"):
            models.BackboneEncoder(flatten(), wrong)


def test_a_plain_model_trains_in_every_model():
    views = np.stack([images(8), images(8, 1)], axis=1)
    head = models.ProjectionHead(4)
    for model, loss, inputs, run_eagerly in (
        (
            models.SupConModel(Subclassed(), head, gradient_cache_chunks=2),
            losses.SupConLoss(),
            views,
            False,
        ),
        (
            models.ClassifierModel(small(), 2),
            losses.CrossEntropyLoss(),
            views,
            True,
        ),
        (
            models.LinearClassifier(small("avg"), 2),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            views[:, 0],
            True,
        ),
    ):
        model.compile(training.SGD(0.1), loss, run_eagerly=run_eagerly)
        model.fit(inputs, np.arange(8) % 2, verbose=0)
        assert isinstance(model.encoder, models.BackboneEncoder)


def batch_norm(encoder):
    """The only batch norm of an encoder."""
    kind = keras.layers.BatchNormalization
    (norm,) = [part for part in encoder.submodules if isinstance(part, kind)]
    return norm


def test_batch_norm_of_replicas_is_synchronized(mirrored_strategy):
    with mirrored_strategy.scope():
        encoder = models.BackboneEncoder(small())
        encoder.build((None, SIDE, SIDE, 3))
    assert batch_norm(encoder).synchronized and not batch_norm(encoder).fused


@pytest.mark.slow
def test_batch_norm_spans_the_replicas(mirrored_strategy):
    """After a step its statistics are those of the whole batch."""
    views = np.stack([images(8), images(8, 1)], axis=1)
    views[:4] //= 8  # of one replica: its own variance is far smaller

    def statistics(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = models.SupConModel(small(), models.ProjectionHead(4, ()))
            model.build((None, 2, SIDE, SIDE, 3))
            model.compile(training.SGD(0.1), losses.SupConLoss())
        norm = batch_norm(model.encoder)
        norm.momentum = 0.0
        batches = tf.data.Dataset.from_tensors((views, np.arange(8) % 2))
        model.fit(batches, verbose=0)
        return [norm.moving_mean.numpy(), norm.moving_variance.numpy()]

    expected = statistics(tf.distribute.get_strategy())
    mirrored = statistics(mirrored_strategy)
    np.testing.assert_allclose(expected, mirrored, rtol=1e-2, atol=1e-5)


def test_exports_represent_images_alike(tmp_path):
    backbone = small()
    serving.export_saved_model(backbone, tmp_path / "1", image_size=SIDE)
    encoder = models.BackboneEncoder(backbone)
    expected = encoder(images())
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    answer = loaded.signatures["represent_images"](tf.constant(images()))
    np.testing.assert_allclose(answer["representation"], expected, atol=1e-6)
    content = formats.to_tflite(formats.ImageModel(backbone, SIDE))
    converted = formats.tflite_function(content)(images())
    np.testing.assert_allclose(converted, expected, atol=1e-5)


@pytest.mark.slow
def test_the_documents_python_runs():
    text = (ROOT / "docs" / "guides" / "weights.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "epochs=3, steps_per_epoch=data.steps_per_epoch(digits, 64)" in code
    code = re.sub(
        "epochs=3, steps_per_epoch=.*", "epochs=1, steps_per_epoch=1)", code
    )
    names = {}
    exec(code, names)
    assert names["representations"].shape == (360, 256)


def test_other_outputs_and_sizes_are_refused():
    inputs = keras.Input((SIDE, SIDE, 3))
    two_outputs = keras.Model(inputs, [inputs, inputs])
    numbers = keras.Model(inputs, tf.reduce_mean(inputs, axis=[1, 2, 3]))
    inputs = keras.Input((16, 16, 3))
    rows = keras.layers.Flatten()(inputs)
    small_images = keras.Model(inputs, keras.layers.Dense(2)(rows))
    for backbone, message in (
        (two_outputs, "`backbone` must put out .batch, dim. or"),
        (numbers, "`backbone` must put out .batch, dim. or"),
        (small_images, "`backbone` must take images .None, 32, 32"),
    ):
        with pytest.raises(ValueError, match=message):
            models.BackboneEncoder(backbone).build((None, SIDE, SIDE, 3))


def scaled(make_pixels):
    """A backbone that makes something of the pixels before its weights."""
    inputs = keras.Input((SIDE, SIDE, 3))
    return keras.Model(inputs, small()(make_pixels(inputs)))


@pytest.mark.parametrize(
    "make_pixels",
    [
        *map(preprocess_input, ("tf", "torch", "caffe")),
        lambda pixels: pixels * (1 / 255),
        keras.layers.Lambda(preprocess_input("tf")),
    ],
)
def test_pixels_are_not_scaled_twice(make_pixels):
    backbone = scaled(make_pixels)
    with pytest.raises(ValueError, match="`preprocessing` must be given for"):
        models.as_encoder(keras.Sequential([backbone]))
    encoder = models.BackboneEncoder(backbone, "none", normalize=False)
    expected = tf.reduce_mean(backbone(images().astype("float32")), [1, 2])
    np.testing.assert_allclose(encoder(images()), expected, rtol=1e-5)


def test_a_config_of_an_older_version_scales_as_before():
    encoder = models.BackboneEncoder(scaled(preprocess_input("tf")), "tf")
    config = encoder.get_config() | {"preprocessing": "auto"}
    loaded = models.BackboneEncoder.from_config(config)
    assert loaded.preprocessing == "tf"


def test_a_layer_may_resize_pixels():
    resize = keras.layers.Lambda(lambda x: tf.image.resize(x, [16, 16]))
    crop = scaled(lambda pixels: pixels[:, 1:-1, 1:-1])
    for backbone in (scaled(resize), crop):
        assert models.as_encoder(backbone).takes_pixels


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="`preprocessing` must be one of auto"):
        models.BackboneEncoder(small(), "mean")
    with pytest.raises(ValueError, match="`backbone` must be a keras.Model"):
        models.BackboneEncoder(keras.layers.Dense(2))
