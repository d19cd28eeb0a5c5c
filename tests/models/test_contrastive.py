"""SupConModel: views, gradients, fit, classifier, chunks."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from supcon_tf.keras_2 import keras
from supcon_tf.models import layers


def _views(batch=3, views=2):
    rng = np.random.default_rng(batch)
    shape = (batch, views, 16, 16, 3)
    return rng.integers(0, 256, shape).astype(np.uint8)


def _model():
    encoder = models.Encoder("vgg8", width=0.125)
    return models.SupConModel(encoder, models.ProjectionHead(8, (16,)))


def _agreement(labels, projections):
    return -tf.reduce_sum(projections[:, 0] * projections[:, 1], axis=-1)


def test_views_share_one_batch_norm_pass():
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
    for weight, expected in zip(moved, model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)

    apart = model.encoder(views[:, 0], training=True)
    assert np.abs(apart - representations[:3]).max() > 1e-3


@pytest.mark.parametrize("training", [False, True])
def test_permuting_views_permutes_projections(training):
    model = _model()
    views = _views(3, 3)
    order = [2, 0, 1]
    z = model(views, training=training).numpy()
    permuted = model(views[:, order], training=training)
    np.testing.assert_allclose(permuted, z[:, order], atol=1e-4)


def test_dynamic_batch_and_views():
    model = _model()
    signature = tf.TensorSpec((None, None, 16, 16, 3), tf.uint8)
    function = tf.function(
        lambda pixels: model(pixels), input_signature=[signature]
    )
    for batch, views in ((2, 2), (3, 1)):
        pixels = _views(batch, views)
        np.testing.assert_allclose(function(pixels), model(pixels), atol=1e-5)
    static = tf.function(model).get_concrete_function(
        tf.TensorSpec((None, 2, 16, 16, 3), tf.uint8), training=False
    )
    assert static.output_shapes.as_list() == [None, 2, 8]


def test_fit_trains_with_compile_and_fit_alone():
    model = _model()
    model.compile(keras.optimizers.SGD(0.1), _agreement)
    dataset = tf.data.Dataset.from_tensor_slices((_views(8), np.zeros(8)))
    model.fit(dataset.batch(3), epochs=1, verbose=0)
    before = model.encoder.get_weights()
    history = model.fit(dataset.batch(4), epochs=2, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    assert (before[0] != model.encoder.get_weights()[0]).any()


def test_rank_is_checked():
    message = (
        r"`views` must be \[batch, views, height, width, channels\], as .* got"
    )
    model = _model()
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    model(_views())
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    with pytest.raises(ValueError, match=r"`images` must be"):
        model(_views()[..., :1])


def test_batch_norm_is_synchronized_on_replicas_alone(mirrored_strategy):
    """What that is worth, losses/test_replicas.py shows."""
    for strategy in (tf.distribute.get_strategy(), mirrored_strategy):
        with strategy.scope():
            model = models.SupConModel(
                models.Encoder("vgg8", width=0.0625),
                models.ProjectionHead(4, (8,), use_batch_norm=True),
            )
            model.build((None, 2, 8, 8, 3))
        norms = model.projection_head.norms
        for norm in (model.encoder.stack.convs[0].bn, *norms):
            assert norm.synchronized == (strategy is mirrored_strategy)


class _Encoder(keras.Model):
    """One convolution with BN: an encoder that is traced in no time."""

    representation_dim = 6

    def __init__(self, **parts):
        super().__init__(name="encoder", autocast=False)
        self.convolution = layers.ConvBN(6, strides=2, **parts)

    def call(self, images, training=None):
        features = self.convolution(tf.cast(images, tf.float32) / 255, training)
        return tf.reduce_mean(
            tf.nn.relu(tf.cast(features, tf.float32)), axis=[1, 2]
        )


LABELS = np.array([0, 2, 1, 1, 0, 2, 1, 0])


def _trained(
    classifier_weight=None,
    chunks=1,
    *,
    classifier=True,
    synchronized_bn=False,
    dtype="float32",
    **options,
):
    """A compiled model; its BN in inference mode, where chunks are exact."""
    keras.utils.set_random_seed(0)
    parts = {"synchronized_bn": synchronized_bn, "dtype": dtype}
    model = models.SupConModel(
        _Encoder(**parts),
        models.ProjectionHead(4, (8,), use_batch_norm=True, **parts),
        _dense() if classifier else None,
        classifier_weight,
        chunks,
        dtype=dtype,
        **options,
    )
    model.build((None, 2, 16, 16, 3))
    for layer in model.submodules:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    model.compile(optimizer, losses.SupConLoss(), [_agreement])
    return model


def _dense():
    return keras.layers.Dense(3, dtype="float32", name="classifier")


def _fit(model):
    """The log of two steps."""
    data = tf.data.Dataset.from_tensors((_views(8), LABELS))
    return model.fit(data, epochs=2, verbose=0).history


def _assert_same(model, log, plain, other):
    assert log.keys() == other.keys()
    for name, values in log.items():
        np.testing.assert_allclose(values, other[name], atol=1e-5)
    for a, b in zip(model.variables, plain.variables, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=a.name)


@pytest.fixture(scope="module")
def joint():
    model = _trained(0.3)
    return model, _fit(model)


@pytest.fixture(scope="module")
def alone():
    model = _trained(classifier=False)
    return model, _fit(model)


def test_chunks_train_as_the_whole_batch(alone, joint):
    model = _trained(chunks=2, classifier=False)
    _assert_same(model, _fit(model), *alone)
    model = _trained(0.3, chunks=4)
    _assert_same(model, _fit(model), *joint)


def test_replicas_share_the_objective(mirrored_strategy):
    """The gradients of a batch on both are summed up to those of one."""
    batch = tf.constant(_views(8)), tf.constant(LABELS)

    def joint_model():
        keras.utils.set_random_seed(0)
        parts = [keras.layers.Flatten(), keras.layers.Dense(4)]
        model = models.SupConModel(
            models.as_encoder(keras.Sequential(parts)),
            models.ProjectionHead(4, ()),
            layers.classifier(3),
            classifier_weight=0.5,
        )
        model.build(batch[0].shape)
        # Of the cross-entropy alone.
        model.compile("sgd", lambda _, z: tf.zeros(tf.shape(z)[:1]))
        return model

    alone, _ = joint_model()._joint_loss(batch, training=False)
    with mirrored_strategy.scope():
        model = joint_model()
    shares = mirrored_strategy.run(
        lambda: model._joint_loss(batch, training=False)[0]
    )
    total = mirrored_strategy.reduce("SUM", shares, axis=None)
    assert float(alone) > 0.1
    assert float(total) == pytest.approx(float(alone), rel=1e-4)


@pytest.mark.slow
def test_chunks_and_classifier_on_two_replicas(mirrored_strategy, joint):
    with mirrored_strategy.scope():
        model = _trained(0.3, 2)
    _assert_same(model, _fit(model), *joint)
    message = "`synchronized_bn` must be False with `gradient_cache_chunks`"
    with mirrored_strategy.scope(), pytest.raises(ValueError, match=message):
        _trained(0.3, 2, synchronized_bn=True)


def test_an_online_classifier_leaves_the_encoder_as_it_is(alone):
    model = _trained()
    initial = model.classifier.kernel.numpy()
    log = _fit(model)
    for part in ("encoder", "projection_head"):
        pair = (getattr(m, part).variables for m in (model, alone[0]))
        for a, b in zip(*pair, strict=True):
            # Another graph, whose kernels may round otherwise.
            np.testing.assert_allclose(a, b, atol=1e-5, err_msg=a.name)
    assert log.pop("classifier_loss")[1] != log.pop("classifier_accuracy")[1]
    assert log.keys() == alone[1].keys()
    for name, values in log.items():
        assert values == pytest.approx(alone[1][name], abs=1e-4), name
    assert np.abs(model.classifier.kernel - initial).max() > 1e-3


def test_a_joint_step_descends_the_weighted_sum():
    weights = np.arange(8) / 4
    model = _trained(0.3)
    by_hand = _trained(0.3)
    views = _views(8)
    model.train_on_batch(views, LABELS, weights)
    loss = losses.SupConLoss()
    rows = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        images = views.reshape(16, 16, 16, 3)
        representations = by_hand.encoder(images, training=True)
        z = tf.reshape(by_hand.projection_head(representations), [8, 2, 4])
        logits = by_hand.classifier(representations)
        total = 0.7 * loss(LABELS, z, weights) + 0.3 * rows(
            np.repeat(LABELS, 2), logits, np.repeat(weights, 2)
        )
    trained = by_hand.trainable_variables
    gradients = tape.gradient(total, trained)
    for ours, initial, gradient in zip(
        model.trainable_variables, trained, gradients, strict=True
    ):
        np.testing.assert_allclose(
            ours, initial - 0.5 * gradient, atol=1e-6, err_msg=ours.name
        )


def test_evaluation_reports_both_losses(joint):
    model, log = joint
    assert {"loss", "classifier_loss", "classifier_accuracy"} < log.keys()
    data = tf.data.Dataset.from_tensor_slices((_views(8), LABELS[:, None]))
    figures = model.evaluate(data.batch(8), verbose=0, return_dict=True)
    rows = model.encoder(_views(8).reshape(16, 16, 16, 3))
    logits = model.classifier(rows).numpy().astype(np.float64)
    labels = np.repeat(LABELS, 2)
    log_sums = np.log(np.exp(logits).sum(axis=1))
    expected = np.mean(log_sums - logits[np.arange(16), labels])
    np.testing.assert_allclose(figures["classifier_loss"], expected, rtol=1e-5)
    # Of long tails; the decisions stay.
    adjusted = _trained(0.3, logit_offsets=[2.0, 0.0, -3.0])
    adjusted.set_weights(model.get_weights())
    shifted = logits + [2.0, 0.0, -3.0]
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    expected = np.mean(log_sums - shifted[np.arange(16), labels])
    again = adjusted.evaluate(data.batch(8), verbose=0, return_dict=True)
    np.testing.assert_allclose(again["classifier_loss"], expected, rtol=1e-5)
    assert again["classifier_accuracy"] == figures["classifier_accuracy"]
    accuracy = np.mean(logits.argmax(axis=1) == labels)
    np.testing.assert_allclose(figures["classifier_accuracy"], accuracy)
    loss = losses.SupConLoss()(LABELS, model(_views(8)))
    np.testing.assert_allclose(figures["loss"], loss, rtol=1e-5)


SOFT = np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0.75, 0, 0.25], [0, 0.5, 0.5]])
SOFT = np.tile(SOFT, [2, 1]).astype(np.float32)


@pytest.mark.slow(but=["offsets1"])
@pytest.mark.parametrize("offsets", [[], [2.0, 0.0, -3.0]])
def test_a_classifier_learns_soft_labels(offsets):
    """As the mean over labels that are drawn from them."""
    model = _trained(0.3, logit_offsets=offsets)
    hard_model = _trained(0.3, logit_offsets=offsets)
    model.compile("sgd", losses.SupConLoss(positives="soft"))
    logits = model._outputs(_views(8), training=False)[1].numpy()
    figures = model.test_on_batch(_views(8), SOFT, return_dict=True)
    shifted = logits.astype(np.float64) + (offsets or 0.0)
    log_sums = np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    losses_of_labels = log_sums - shifted  # [B, V, classes]
    expected = np.mean((SOFT[:, None] * losses_of_labels).sum(axis=2))
    np.testing.assert_allclose(figures["classifier_loss"], expected, rtol=1e-5)
    predicted = logits.argmax(axis=2)
    shares = np.take_along_axis(SOFT, predicted, axis=1)
    accuracy = pytest.approx(shares.mean(), rel=1e-6)
    assert figures["classifier_accuracy"] == accuracy
    # Labels without doubt are those of integers.
    by_class = hard_model.test_on_batch(_views(8), LABELS, return_dict=True)
    sure = np.eye(3, dtype=np.float32)[LABELS]
    by_share = hard_model.test_on_batch(_views(8), sure, return_dict=True)
    assert by_share == pytest.approx(by_class, rel=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must sum to 1"):
        model.test_on_batch(_views(8), sure * 1.01)


@pytest.mark.slow
def test_chunks_train_soft_labels_as_the_whole_batch():
    logs = []
    for chunks in (1, 4):
        model = _trained(0.3, chunks)
        model.compile("sgd", losses.SupConLoss(positives="soft"))
        data = tf.data.Dataset.from_tensors((_views(8), SOFT))
        logs.append((model, model.fit(data, epochs=2, verbose=0).history))
    _assert_same(*logs[0], *logs[1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_chunks_and_classifier_in_mixed_precision(dtype, joint):
    model = _trained(0.3, 2, dtype=dtype)
    initial = model.get_weights()
    if dtype == "mixed_float16":
        assert model.optimizer.dynamic  # loss scale
    log = _fit(model)
    for name in ("loss", "classifier_loss"):
        np.testing.assert_allclose(log[name], joint[1][name], rtol=0.01)
    for weight in model.trainable_variables:
        assert np.isfinite(weight).all()
        assert weight.dtype == tf.float32
    # The way of float32, so that no step was skipped or scaled.
    ours, theirs = (
        m.encoder.convolution.conv.kernel.numpy().ravel() - initial[0].ravel()
        for m in (model, joint[0])
    )
    norms = np.linalg.norm(ours), np.linalg.norm(theirs)
    assert norms[1] > 1e-3
    np.testing.assert_allclose(norms[0], norms[1], rtol=0.2)
    assert np.dot(ours, theirs) > 0.95 * norms[0] * norms[1]


def test_options_are_checked():
    parts = models.Encoder("vgg8"), models.ProjectionHead(4)
    for arguments, message in (
        ((None, 0.5), "must be None without a `classifier`, got 0.5"),
        ((_dense(), 1.0), "must be between 0 and 1, got 1.0"),
        ((None, None, 0), "`gradient_cache_chunks` must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            models.SupConModel(*parts, *arguments)
    model = _trained(chunks=3)
    with pytest.raises(ValueError, match="divide the batch .* got 3 and 8"):
        model.train_on_batch(_views(8), LABELS)
    with pytest.raises(ValueError, match=r"`labels` must be \[batch\] int"):
        model.test_on_batch(_views(8), np.eye(3, dtype=np.int32)[LABELS])
    with pytest.raises(ValueError, match=r"or soft \[batch, classes\] flo"):
        model.test_on_batch(_views(8), np.eye(4)[LABELS])


class Sequence(keras.utils.Sequence):
    """Batches as Keras' own loaders give them."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return _views(4 + index), np.arange(4 + index) % 2


class Images(Sequence):
    """The first views alone."""

    def __getitem__(self, index):
        views, labels = super().__getitem__(index)
        return views[:, 0], labels


def generated():
    for index in range(3):
        yield Sequence()[index]


@pytest.mark.slow(but=["views-Sequence", "images-generated"])
@pytest.mark.parametrize("make_batches", [Sequence, generated])
@pytest.mark.parametrize("kind", ["views", "images"])
def test_keras_sequences_and_generators_train(make_batches, kind):
    """Whose shapes Keras hides, with a model that nobody has built."""
    keras.utils.set_random_seed(0)
    model, loss = _model(), losses.SupConLoss()
    batches = make_batches()
    if kind == "images":
        model = models.LinearClassifier(model.encoder, 2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        if make_batches is Sequence:
            batches = Images()
        else:
            batches = ((views[:, 0], labels) for views, labels in batches)
    model.compile("sgd", loss)
    history = model.fit(batches, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
