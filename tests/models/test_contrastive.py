"""SupConModel: folding of views, gradients, fit, saving."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models

ROOT = pathlib.Path(__file__).parents[2]


def _views(batch: int = 3, views: int = 2) -> np.ndarray:
    rng = np.random.default_rng(batch)
    shape = (batch, views, 16, 16, 3)
    return rng.integers(0, 256, shape).astype(np.uint8)


def _model() -> models.SupConModel:
    encoder = models.Encoder("resnet18", width=0.125)
    return models.SupConModel(encoder, models.ProjectionHead(8, (16,)))


def _agreement(labels: tf.Tensor, projections: tf.Tensor) -> tf.Tensor:
    return -tf.reduce_sum(projections[:, 0] * projections[:, 1], axis=-1)


@pytest.mark.parametrize("num_views", [1, 2, 3])
def test_output(num_views: int) -> None:
    z = _model()(_views(3, num_views), training=True)
    assert z.dtype == tf.float32
    assert z.shape == (3, num_views, 8)
    np.testing.assert_allclose(np.linalg.norm(z, axis=-1), 1, atol=1e-5)


def test_views_share_one_batch_norm_pass() -> None:
    model = _model()
    views = _views()
    model.build(views.shape)
    weights = model.get_weights()
    z = model(views, training=True)
    moved = model.get_weights()

    model.set_weights(weights)
    stacked = np.concatenate([views[:, 0], views[:, 1]])
    representations = model.encoder(stacked, training=True)
    by_hand = model.projection_head(representations, training=True)
    np.testing.assert_allclose(z[:, 0], by_hand[:3], atol=1e-4)
    np.testing.assert_allclose(z[:, 1], by_hand[3:], atol=1e-4)
    for one, other in zip(moved, model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

    apart = model.encoder(views[:, 0], training=True)
    assert np.abs(apart - representations[:3]).max() > 1e-3


@pytest.mark.parametrize("training", [False, True])
def test_permuting_views_permutes_projections(training: bool) -> None:
    model = _model()
    views = _views(3, 3)
    order = [2, 0, 1]
    z = model(views, training=training).numpy()
    permuted = model(views[:, order], training=training)
    np.testing.assert_allclose(permuted, z[:, order], atol=1e-4)


def test_dynamic_batch_and_views() -> None:
    model = _model()
    signature = tf.TensorSpec((None, None, 16, 16, 3), tf.uint8)
    function = tf.function(lambda x: model(x), input_signature=[signature])
    for batch, views in ((2, 2), (3, 1)):
        x = _views(batch, views)
        np.testing.assert_allclose(function(x), model(x), atol=1e-5)
    static = tf.function(model).get_concrete_function(
        tf.TensorSpec((None, 2, 16, 16, 3), tf.uint8), training=False
    )
    assert static.output_shapes.as_list() == [None, 2, 8]


def test_gradient_reaches_the_encoder() -> None:
    model = _model()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(_agreement(None, model(_views(), training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    names = [v.name for v in model.trainable_variables]
    missing = [n for n, g in zip(names, gradients, strict=True) if g is None]
    assert not missing
    stem = gradients[names.index("encoder/resnet18/stem/conv/kernel:0")]
    assert np.abs(stem).max() > 0


def test_fit_trains_with_compile_and_fit_alone() -> None:
    model = _model()
    model.compile(tf.keras.optimizers.SGD(0.1), _agreement)
    dataset = tf.data.Dataset.from_tensor_slices((_views(8), np.zeros(8)))
    model.fit(dataset.batch(3), epochs=1, verbose=0)
    before = model.encoder.get_weights()
    history = model.fit(dataset.batch(4), epochs=2, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    assert (before[0] != model.encoder.get_weights()[0]).any()


def test_rank_is_checked() -> None:
    message = r"`views` must be \[batch, views, height, width, 3\], got shape"
    model = _model()
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    model(_views())
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    with pytest.raises(ValueError, match=r"`images` must be"):
        model(_views()[..., :1])


def test_round_trip(tmp_path: pathlib.Path) -> None:
    model = _model()
    model(_views(), training=True)
    expected = model(_views())
    copy = models.SupConModel.from_config(model.get_config())
    assert copy.get_config() == model.get_config()
    copy.build((None, 2, 16, 16, 3))
    assert [v.name for v in copy.variables] == [v.name for v in model.variables]
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "c"))
    tf.train.Checkpoint(model=copy).read(path).assert_consumed()
    np.testing.assert_array_equal(copy(_views()), expected)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(_views()), expected)


_TWO_REPLICAS = """
import numpy as np
import tensorflow as tf
from supcon_tf import models

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)
views = np.random.default_rng(0).integers(0, 256, (4, 2, 8, 8, 3), np.uint8)

def train(strategy):
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        encoder = models.Encoder("vgg8", width=0.0625)
        model = models.SupConModel(
            encoder, models.ProjectionHead(4, (8,), use_batch_norm=True)
        )
        model.compile("sgd", lambda y, z: tf.reduce_sum(z[:, 0] * z[:, 1], -1))
    data = tf.data.Dataset.from_tensors((views, np.zeros(4, np.int32)))
    model.fit(data, verbose=0)
    bn = [encoder.stack.convs[0].bn, model.projection_head.norms[0]]
    assert {layer.synchronized for layer in bn} == {
        strategy.num_replicas_in_sync == 2
    }
    return [v.numpy() for v in model.variables if "variance" not in v.name]

one = train(tf.distribute.get_strategy())
two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
for a, b in zip(one, two):
    np.testing.assert_allclose(a, b, atol=2e-5)
"""


def test_batch_norm_spans_two_replicas() -> None:
    # In a process of its own: logical devices are set before TF starts.
    # The moving variance differs by design: fused BN stores the unbiased one.
    result = subprocess.run(
        [sys.executable, "-c", _TWO_REPLICAS],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50", "vgg16"])
def test_a_keras_file_holds_every_weight(architecture, tmp_path) -> None:
    model = models.SupConModel(
        models.Encoder(architecture, width=0.05),
        models.ProjectionHead(4, (8,), use_batch_norm=True),
    )
    model.build((None, 2, 16, 16, 3))
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    model.save(tmp_path / "model.keras")
    again = tf.keras.models.load_model(tmp_path / "model.keras")
    for weight, loaded in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight, loaded, err_msg=weight.name)
