"""SupConModel: views, gradients, classifier, chunks, data of Keras."""

import copy

import h5py
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


class _Encoder(keras.Model):
    """A convolution with BN: an encoder of the user's that traces fast."""

    representation_dim = 6

    def __init__(self, **options):
        super().__init__(name="encoder", autocast=False)
        self.convolution = layers.ConvBN(6, strides=2, **options)

    def call(self, images, training=None):
        features = self.convolution(tf.cast(images, tf.float32) / 255, training)
        return tf.reduce_mean(
            tf.nn.relu(tf.cast(features, tf.float32)), axis=[1, 2]
        )


def _model():
    return models.SupConModel(_Encoder(), models.ProjectionHead(8, (16,)))


def test_views_share_one_batch_norm_pass():
    model = _model()
    views = _views()
    model.build(views.shape)
    weights = model.get_weights()
    z = model(views, training=True)
    moved_weights = model.get_weights()

    model.set_weights(weights)
    stacked = np.concatenate([views[:, 0], views[:, 1]])
    representations = model.encoder(stacked, training=True)
    projections = model.projection_head(representations, training=True)
    np.testing.assert_allclose(z[:, 0], projections[:3], atol=1e-4)
    np.testing.assert_allclose(z[:, 1], projections[3:], atol=1e-4)
    for weight, expected in zip(
        moved_weights, model.get_weights(), strict=True
    ):
        np.testing.assert_allclose(weight, expected, atol=1e-5)

    first_view = model.encoder(views[:, 0], training=True)
    assert np.abs(first_view - representations[:3]).max() > 1e-3


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


def test_rank_is_checked():
    message = (
        r"`views` must be \[batch, views, height, width, channels\], as .* got"
    )
    encoder = models.Encoder("vgg8", width=0.125)
    model = models.SupConModel(encoder, models.ProjectionHead(8))
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    model(_views())
    with pytest.raises(ValueError, match=message):
        model(_views()[:, 0])
    with pytest.raises(ValueError, match=r"`images` must be"):
        model(_views()[..., :1])


def test_a_replica_may_have_no_samples(mirrored_strategy):
    """The second of two, in the last step of five samples by four.

    Without convolutions: those of oneDNN fail on no images.
    """
    with mirrored_strategy.scope():
        mean, dense = keras.layers.GlobalAveragePooling2D(), _dense()
        model = models.SupConModel(
            models.as_encoder(keras.Sequential([mean, dense])),
            models.ProjectionHead(8),
            layers.classifier(2),
            0.5,
        )
        model.compile("sgd", losses.SupConLoss(), losses.diagnostics())
    samples = _views(5), np.array([0, 0, 1, 1, 0])
    data = tf.data.Dataset.from_tensor_slices(samples).batch(4)
    history = model.fit(data, verbose=0).history
    assert all(map(np.isfinite, sum(history.values(), [])))
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_batch_norm_is_synchronized_on_replicas_alone(mirrored_strategy):
    """What synchronization is worth, losses/test_replicas.py shows."""
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


LABELS = np.array([0, 2, 1, 1, 0, 2, 1, 0])


def _dense():
    return keras.layers.Dense(3, dtype="float32", name="classifier")


def _agreement(labels, projections):
    return -tf.reduce_sum(projections[:, 0] * projections[:, 1], axis=-1)


def _compiled(
    classifier_weight=None,
    chunks=1,
    *,
    classifier=True,
    synchronized_bn=False,
    dtype="float32",
    positives=None,
    run_eagerly=True,
    **options,
):
    """A compiled model; its BN in inference mode, where chunks are exact."""
    keras.utils.set_random_seed(0)
    layer_options = {"synchronized_bn": synchronized_bn, "dtype": dtype}
    model = models.SupConModel(
        _Encoder(**layer_options),
        models.ProjectionHead(4, (8,), use_batch_norm=True, **layer_options),
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
    loss = losses.SupConLoss(positives=positives)
    # Eagerly: tracing takes far longer than the steps.
    model.compile(optimizer, loss, [_agreement], run_eagerly=run_eagerly)
    return model


def _fit(model, labels=LABELS):
    """The log of two steps."""
    batches = tf.data.Dataset.from_tensors((_views(8), labels))
    return model.fit(batches, epochs=2, verbose=0).history


def _assert_same(model, log, reference, reference_log):
    assert log.keys() == reference_log.keys()
    for name, values in log.items():
        np.testing.assert_allclose(values, reference_log[name], atol=1e-5)
    pairs = zip(model.variables, reference.variables, strict=True)
    for variable, expected in pairs:
        np.testing.assert_allclose(
            variable, expected, atol=1e-5, err_msg=variable.name
        )


@pytest.fixture(scope="module")
def joint():
    model = _compiled(0.3)
    return model, _fit(model)


@pytest.fixture(scope="module")
def alone():
    model = _compiled(classifier=False)
    return model, _fit(model)


def test_chunks_train_as_the_whole_batch(alone, joint):
    model = _compiled(chunks=2, classifier=False)
    _assert_same(model, _fit(model), *alone)
    model = _compiled(0.3, chunks=4, run_eagerly=False)
    _assert_same(model, _fit(model), *joint)


def test_replicas_share_the_objective(mirrored_strategy):
    """The gradients of a batch on two replicas sum up to those of one."""
    batch = tf.constant(_views(8)), tf.constant(LABELS)

    def joint_model():
        keras.utils.set_random_seed(0)
        network = [keras.layers.Flatten(), keras.layers.Dense(4)]
        model = models.SupConModel(
            models.as_encoder(keras.Sequential(network)),
            models.ProjectionHead(4, ()),
            layers.classifier(3),
            classifier_weight=0.5,
        )
        model.build(batch[0].shape)
        # Of the cross-entropy alone.
        model.compile("sgd", lambda _, z: tf.zeros(tf.shape(z)[:1]))
        return model

    expected, _ = joint_model()._joint_loss(batch, training=False)
    with mirrored_strategy.scope():
        model = joint_model()
    shares = mirrored_strategy.run(
        lambda: model._joint_loss(batch, training=False)[0]
    )
    total = mirrored_strategy.reduce("SUM", shares, axis=None)
    assert float(expected) > 0.1
    assert float(total) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.slow
def test_chunks_and_classifier_on_two_replicas(mirrored_strategy, joint):
    with mirrored_strategy.scope():
        model = _compiled(0.3, 2, run_eagerly=False)
    _assert_same(model, _fit(model), *joint)
    message = "`synchronized_bn` must be False with `gradient_cache_chunks`"
    with mirrored_strategy.scope(), pytest.raises(ValueError, match=message):
        _compiled(0.3, 2, synchronized_bn=True)


def test_an_online_classifier_leaves_the_encoder_alone(alone):
    model = _compiled()
    initial_kernel = model.classifier.kernel.numpy()
    log = _fit(model)
    assert log.pop("classifier_loss")[1] != log.pop("classifier_accuracy")[1]
    assert np.abs(model.classifier.kernel - initial_kernel).max() > 1e-3
    _assert_same(model.encoder, log, alone[0].encoder, alone[1])
    _assert_same(model.projection_head, {}, alone[0].projection_head, {})


def test_a_joint_step_descends_the_weighted_sum():
    weights = np.arange(8) / 4
    model, reference = _compiled(0.3), _compiled(0.3)
    views = _views(8)
    model.train_on_batch(views, LABELS, weights)
    loss = losses.SupConLoss()
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        images = views.reshape(16, 16, 16, 3)
        representations = reference.encoder(images, training=True)
        z = tf.reshape(reference.projection_head(representations), [8, 2, 4])
        logits = reference.classifier(representations)
        objective = 0.7 * loss(LABELS, z, weights) + 0.3 * cross_entropy(
            np.repeat(LABELS, 2), logits, np.repeat(weights, 2)
        )
    gradients = tape.gradient(objective, reference.trainable_variables)
    for weight, initial, gradient in zip(
        model.trainable_variables,
        reference.trainable_variables,
        gradients,
        strict=True,
    ):
        np.testing.assert_allclose(
            weight, initial - 0.5 * gradient, atol=1e-6, err_msg=weight.name
        )


def _cross_entropies(logits, offsets=0.0):
    """-log softmax of every class, [B, V, classes] float64."""
    shifted = logits.astype(np.float64) + offsets
    return np.log(np.exp(shifted).sum(axis=2, keepdims=True)) - shifted


def test_evaluation_reports_both_losses(joint):
    model, log = joint
    assert {"loss", "classifier_loss", "classifier_accuracy"} < log.keys()
    batch = _views(8), LABELS[:, None]
    scores = model.test_on_batch(*batch, return_dict=True)
    rows = model.encoder(_views(8).reshape(16, 16, 16, 3))
    logits = model.classifier(rows).numpy().reshape(8, 2, 3)
    expected = _cross_entropies(logits)[np.arange(8), :, LABELS].mean()
    assert scores["classifier_loss"] == pytest.approx(expected, rel=1e-5)
    accuracy = np.mean(logits.argmax(axis=2) == LABELS[:, None])
    assert scores["classifier_accuracy"] == pytest.approx(accuracy)
    loss = losses.SupConLoss()(LABELS, model(_views(8)))
    assert scores["loss"] == pytest.approx(float(loss), rel=1e-5)
    # Offsets, as for long tails, change the loss and no decision.
    offsets = [2.0, 0.0, -3.0]
    adjusted = _compiled(0.3, logit_offsets=offsets)
    adjusted.set_weights(model.get_weights())
    expected = _cross_entropies(logits, offsets)[np.arange(8), :, LABELS].mean()
    scores = adjusted.test_on_batch(*batch, return_dict=True)
    assert scores["classifier_loss"] == pytest.approx(expected, rel=1e-5)
    assert scores["classifier_accuracy"] == pytest.approx(accuracy)


SOFT = np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0.75, 0, 0.25], [0, 0.5, 0.5]])
SOFT = np.tile(SOFT, [2, 1]).astype(np.float32)


def test_a_classifier_learns_soft_labels():
    """As the mean over labels that are drawn from the shares."""
    offsets = [2.0, 0.0, -3.0]
    model = _compiled(0.3, logit_offsets=offsets, positives="soft")
    integer_model = _compiled(0.3, logit_offsets=offsets)
    logits = model._outputs(_views(8), training=False)[1].numpy()
    scores = model.test_on_batch(_views(8), SOFT, return_dict=True)
    cross_entropies = _cross_entropies(logits, offsets)  # [B, V, classes]
    expected = (SOFT[:, None] * cross_entropies).sum(axis=2).mean()
    assert scores["classifier_loss"] == pytest.approx(expected, rel=1e-5)
    predicted = logits.argmax(axis=2)
    shares = np.take_along_axis(SOFT, predicted, axis=1)
    accuracy = pytest.approx(shares.mean(), rel=1e-6)
    assert scores["classifier_accuracy"] == accuracy
    # Shares of 0 and 1 are integer labels.
    by_class = integer_model.test_on_batch(_views(8), LABELS, return_dict=True)
    one_hot = np.eye(3, dtype=np.float32)[LABELS]
    by_share = integer_model.test_on_batch(_views(8), one_hot, return_dict=True)
    assert by_share == pytest.approx(by_class, rel=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must sum to 1"):
        model.test_on_batch(_views(8), one_hot * 1.01)
    one_hot[:, :2] += [0.5, -0.5]
    with pytest.raises(tf.errors.InvalidArgumentError, match="be at least 0"):
        model.test_on_batch(_views(8), one_hot)


@pytest.mark.slow
def test_chunks_train_soft_labels_as_the_whole_batch():
    pairs = []
    for chunks in (1, 4):
        model = _compiled(0.3, chunks, positives="soft", run_eagerly=False)
        pairs += [model, _fit(model, SOFT)]
    _assert_same(*pairs)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_chunks_and_classifier_in_mixed_precision(dtype, joint):
    model = _compiled(0.3, 2, dtype=dtype, run_eagerly=False)
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
    step, expected = (
        m.encoder.convolution.conv.kernel.numpy().ravel() - initial[0].ravel()
        for m in (model, joint[0])
    )
    norms = np.linalg.norm(step), np.linalg.norm(expected)
    assert norms[1] > 1e-3
    np.testing.assert_allclose(norms[0], norms[1], rtol=0.2)
    assert np.dot(step, expected) > 0.95 * norms[0] * norms[1]


def test_options_are_checked():
    network = models.Encoder("vgg8"), models.ProjectionHead(4)
    for arguments, message in (
        ((None, 0.5), "must be None without a `classifier`, got 0.5"),
        ((_dense(), 1.0), "must be between 0 and 1, got 1.0"),
        ((None, None, 0), "`gradient_cache_chunks` must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            models.SupConModel(*network, *arguments)
    assert _compiled(logit_offsets=np.zeros(3)).logit_offsets == (0.0,) * 3
    for count in (1, 2):
        with pytest.raises(ValueError, match="the 3 classes of the .*, got "):
            _compiled(logit_offsets=np.zeros(count))
    model = _compiled(chunks=3)
    with pytest.raises(ValueError, match="divide the batch .* got 3 and 8"):
        model.train_on_batch(_views(8), LABELS)
    with pytest.raises(ValueError, match=r"`labels` must be \[batch\] int"):
        model.test_on_batch(_views(8), np.eye(3, dtype=np.int32)[LABELS])
    with pytest.raises(ValueError, match=r"or soft \[batch, classes\] flo"):
        model.test_on_batch(_views(8), np.eye(4)[LABELS])


LOSSES_OF_CENTRES = losses.PaCoLoss, losses.BalancedSupConLoss


def _with_centres(loss=None):
    centres = models.ClassCentres(3, 8)
    head = models.ProjectionHead(8, ())
    encoder = models.Encoder("vgg8", width=0.1)
    model = models.SupConModel(encoder, head, centres=centres)
    if loss is not None:
        model.compile(keras.optimizers.SGD(0.5, 0.9), loss(centres))
    model.build(_views(6).shape)
    return model


@pytest.mark.parametrize("loss", LOSSES_OF_CENTRES)
def test_a_loaded_model_trains_on_with_its_centres(loss, tmp_path):
    model, data = _with_centres(loss), (_views(6), np.arange(6) % 3)
    model.train_on_batch(*data)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.loss.centres is loaded.centres
    for instance in (loaded, copy.deepcopy(model)):
        np.testing.assert_equal(instance.get_weights(), model.get_weights())
    for _ in range(2):
        values = [each.train_on_batch(*data) for each in (model, loaded)]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-5)
    for weights in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(*weights, atol=1e-5)
    uncompiled = keras.models.load_model(tmp_path / "m.keras", compile=False)
    assert uncompiled.centres.built


@pytest.mark.parametrize("earlier", [None, "centres", "loss/centres"])
def test_files_of_weights_have_the_centres_compiled_or_not(earlier, tmp_path):
    path = tmp_path / "m.weights.h5"
    for writer in (_with_centres(), _with_centres(losses.PaCoLoss)):
        writer.save_weights(path)
        if earlier is not None:  # of earlier versions
            with h5py.File(path, "a") as file:
                file.move("shared_centres", earlier)
        for reader in (_with_centres(), _with_centres(losses.PaCoLoss)):
            reader.load_weights(path)
            np.testing.assert_equal(reader.get_weights(), writer.get_weights())


@pytest.mark.parametrize("loss", LOSSES_OF_CENTRES)
def test_centres_of_a_loss_alone_would_not_train(loss):
    for model in (_model(), _with_centres()):
        with pytest.raises(ValueError, match="must have the centres of the mo"):
            model.compile("sgd", loss(models.ClassCentres(3, 8)))


def test_centres_have_the_size_of_projections():
    centres = models.ClassCentres(3, 8)
    network = _Encoder(), models.ProjectionHead(4)
    model = models.SupConModel(*network, centres=centres)
    with pytest.raises(ValueError, match="must be that of the proj.* 4, got 8"):
        model.build(_views().shape)


def test_a_queue_that_nobody_fills_is_refused():
    queue = losses.ProjectionQueue(4, 8)
    loss = losses.SupConLoss(queue=queue)
    for argument in (loss, [loss], {"output_1": loss}):
        with pytest.raises(ValueError, match="as only MomentumSupConModel"):
            _model().compile("sgd", argument)
    queue.enqueue(np.eye(4, 8), np.arange(4))
    _model().compile("sgd", loss)  # a fixed set of contrasts


def test_a_model_with_a_filled_queue_is_loaded_to_be_compiled(tmp_path):
    queue = losses.ProjectionQueue(4, 8)
    queue.enqueue(np.eye(4, 8), np.arange(4))
    model = models.SupConModel(
        models.Encoder("vgg8", width=0.1), models.ProjectionHead(8)
    )
    model.compile("sgd", losses.SupConLoss(queue=queue))
    model.build(_views().shape)
    model.save(tmp_path / "m.keras")
    with pytest.warns(UserWarning, match="must be compiled anew: `loss` must"):
        loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_equal(loaded.get_weights(), model.get_weights())


class _Sequence(keras.utils.Sequence):
    """Batches of views, or of their first views, as Keras' loaders give."""

    def __init__(self, kind):
        self.kind = kind

    def __len__(self):
        return 2

    def __getitem__(self, index):
        views, labels = _views(4 + index), np.arange(4 + index) % 2
        return (views if self.kind == "views" else views[:, 0]), labels


@pytest.mark.slow(but=["views-sequence", "images-generator"])
@pytest.mark.parametrize("loader", ["sequence", "generator"])
@pytest.mark.parametrize("kind", ["views", "images"])
def test_sequences_and_generators_train_an_unbuilt_model(loader, kind):
    """Keras hides the shapes of their batches."""
    encoder, loss = _Encoder(), losses.SupConLoss()
    if kind == "views":
        model = models.SupConModel(encoder, models.ProjectionHead(8, ()))
    else:
        model = models.LinearClassifier(encoder, 2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    batches = _Sequence(kind)
    if loader == "generator":
        batches = (_Sequence(kind)[index] for index in range(2))
    model.compile("sgd", loss)
    history = model.fit(batches, shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
