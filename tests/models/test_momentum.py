"""MomentumSupConModel: what a step does, on one device and on two."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from supcon_tf.keras_2 import keras

SIDE, BATCH, VIEWS, DIM = 8, 4, 2, 6


@keras.utils.register_keras_serializable(package="test_momentum")
class TinyEncoder(keras.Model):
    """Dense and BN, which trace in no time."""

    representation_dim = 8

    def __init__(self, name="encoder", **kwargs):
        super().__init__(name=name, **kwargs)
        self.dense = keras.layers.Dense(8)
        self.norm = keras.layers.BatchNormalization(synchronized=True)

    def build(self, input_shape):
        if not self.built:
            self.dense.build((None, SIDE * SIDE * 3))
            self.norm.build((None, 8))
            keras.layers.Layer.build(self, input_shape)

    def call(self, images, training=None):
        pixels = tf.reshape(tf.cast(images, tf.float32), [-1, SIDE * SIDE * 3])
        return tf.nn.relu(self.norm(self.dense(pixels / 255), training))

    def get_config(self):
        return keras.layers.Layer.get_config(self)


def make_batch(seed=0):
    """Views of four samples of two classes, dark and bright."""
    rng = np.random.default_rng(seed)
    labels = np.array([0, 1, 0, 1])
    levels = 60 + 120 * labels[:, None, None, None, None]
    noise = rng.normal(0, 40, [BATCH, VIEWS, SIDE, SIDE, 3])
    return np.clip(levels + noise, 0, 255).astype(np.uint8), labels


def make_model(momentum=0.9, size=24, run_eagerly=True, **options):
    """Eager where a test is not about tracing, which takes longest."""
    queue = losses.ProjectionQueue(size, DIM)
    head = models.ProjectionHead(DIM, (8,), use_batch_norm=True)
    model = models.MomentumSupConModel(
        TinyEncoder(), head, queue, momentum, **options
    )
    model.build((None, VIEWS, SIDE, SIDE, 3))
    model.compile(
        keras.optimizers.SGD(0.1),
        losses.SupConLoss(queue=queue),
        run_eagerly=run_eagerly,
    )
    return model


def copy_pairs(model):
    """The momentum copy and the network, for encoder and head."""
    return [
        (model.momentum_encoder, model.encoder),
        (model.momentum_head, model.projection_head),
    ]


def values(variables):
    return [variable.numpy() for variable in variables]


def momentum_projections(model, views):
    rows = tf.reshape(views, [-1, SIDE, SIDE, 3])
    representations = model.momentum_encoder(rows, training=True)
    return model.momentum_head(representations, training=True).numpy()


def assert_queued(model, start, projections, labels):
    """From a row of the queue on, these projections with their labels."""
    rows, row_labels, _ = model.queue.rows()
    end = start + BATCH * VIEWS
    np.testing.assert_allclose(rows[start:end], projections, atol=1e-4)
    np.testing.assert_array_equal(
        row_labels[start:end], np.repeat(labels, VIEWS)
    )


def test_a_step_updates_follows_and_enqueues():
    model = make_model(run_eagerly=False)
    for copy, network in copy_pairs(model):
        for copied, weight in zip(copy.weights, network.weights, strict=True):
            np.testing.assert_array_equal(copied, weight)
    expected = [values(c.trainable_weights) for c, _ in copy_pairs(model)]
    averages = values(model.momentum_encoder.non_trainable_weights)
    for step in range(4):
        views, labels = make_batch(step)
        model.train_on_batch(views, labels)
        for means, (copy, network) in zip(
            expected, copy_pairs(model), strict=True
        ):
            for i, weight in enumerate(values(network.trainable_weights)):
                means[i] = 0.9 * means[i] + 0.1 * weight
                np.testing.assert_allclose(
                    copy.trainable_weights[i], means[i], atol=1e-6
                )
                assert step == 0 or np.abs(weight - means[i]).max() > 0
        # Projections of this batch by the copies as they are now; BN has the
        # statistics of the batch.
        projections = momentum_projections(model, views)
        assert_queued(model, 8 * step % 24, projections, labels)
        assert model.queue.rows()[2].numpy().sum() == min(8 * (step + 1), 24)
    for before, after in zip(
        averages, model.momentum_encoder.non_trainable_weights, strict=True
    ):
        assert np.abs(before - after).max() > 1e-4


def test_the_optimizer_leaves_the_copies_alone():
    model = make_model(momentum=1.0)
    copied = model._copied_weights()
    before = values(copied)
    model.train_on_batch(*make_batch())
    np.testing.assert_equal(values(copied), before)
    weights = [w for _, net in copy_pairs(model) for w in net.trainable_weights]
    assert {id(w) for w in model.trainable_weights} == {id(w) for w in weights}
    ids = {id(w) for w in model.variables}
    assert ids == {id(w) for w in model.weights}
    assert ids >= {id(w) for w in [*copied, *model.queue.variables]}


def test_chunks_pass_the_copies_in_turn():
    model = make_model(gradient_cache_chunks=2)
    views, labels = make_batch()
    model.train_on_batch(views, labels)
    chunks = [momentum_projections(model, views[i : i + 2]) for i in (0, 2)]
    assert_queued(model, 0, np.concatenate(chunks), labels)


@pytest.mark.parametrize("is_built", [False, True])
def test_the_copies_freeze_with_their_networks(is_built):
    inputs = keras.Input([SIDE, SIDE, 3])
    rows = keras.layers.Flatten()(inputs)
    for name in ("first", "second"):  # of one shape: a swap would fit
        rows = keras.layers.Dense(SIDE * SIDE * 3, name=name)(rows)
    rows = keras.layers.BatchNormalization(name="norm")(rows)
    network = keras.Model(inputs, rows)
    queue = losses.ProjectionQueue(24, DIM)
    model = models.MomentumSupConModel(
        network, models.ProjectionHead(DIM, ()), queue, 0.5
    )
    if is_built:
        model.build((None, VIEWS, SIDE, SIDE, 3))
    network.get_layer("first").trainable = False
    network.get_layer("norm").trainable = False
    loss = losses.SupConLoss(queue=queue)
    model.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
    model.build((None, VIEWS, SIDE, SIDE, 3))
    copy = model.momentum_encoder.backbone
    starts = values(copy.get_layer("second").weights)
    model.train_on_batch(*make_batch())
    for name in ("first", "norm"):  # norm: no moving average either
        pairs = zip(
            values(copy.get_layer(name).weights),
            values(network.get_layer(name).weights),
            strict=True,
        )
        for copied, weight in pairs:
            np.testing.assert_array_equal(copied, weight)
    for start, copied, weight in zip(
        starts,
        values(copy.get_layer("second").weights),
        values(network.get_layer("second").weights),
        strict=True,
    ):
        np.testing.assert_allclose(copied, (start + weight) / 2, atol=1e-6)


@pytest.mark.slow
def test_fit_reaches_the_floor_of_the_loss():
    keras.utils.set_random_seed(0)
    model = make_model(momentum=0.8, run_eagerly=False)
    dataset = tf.data.Dataset.from_tensors(make_batch()).repeat(30)
    history = model.fit(dataset, epochs=3, verbose=0).history["loss"]
    # Two points, far apart: each anchor has 15 positives of its 31 contrasts.
    floor, chance = 0.1 * np.log(15), 0.1 * np.log(31)
    assert floor - 1e-6 < history[-1] < floor + 0.2 * (chance - floor), history


@pytest.mark.slow
def test_two_replicas_fill_the_same_queue(mirrored_strategy):
    strategy = mirrored_strategy
    keras.utils.set_random_seed(1)
    alone = make_model(run_eagerly=False)
    with strategy.scope():
        model = make_model(run_eagerly=False)
    model.set_weights(alone.get_weights())
    views, labels = make_batch()
    dataset = tf.data.Dataset.from_tensors((views, labels)).unbatch()
    for network in (model, alone):
        network.fit(dataset.batch(BATCH).repeat(4), verbose=0)
    assert alone.queue.filled == 24
    pairs = [*zip(alone.weights, model.weights, strict=True)]
    for weight, mirrored in pairs:
        copies = strategy.experimental_local_results(mirrored)
        for copy in copies:
            np.testing.assert_allclose(
                copy, weight, atol=1e-4, err_msg=weight.name
            )
        if "moving" not in weight.name:
            np.testing.assert_array_equal(*copies, err_msg=weight.name)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="`encoder_momentum` must be from 0"):
        make_model(momentum=1.5)
    model = make_model()
    for loss in (
        losses.SupConLoss(),
        losses.SupConLoss(queue=losses.ProjectionQueue(24, DIM)),
    ):
        with pytest.raises(ValueError, match="must have the queue of the mod"):
            model.compile("sgd", loss)
