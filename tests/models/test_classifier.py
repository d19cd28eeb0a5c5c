"""ClassifierModel and LinearClassifier: logits, cosines, what `fit` trains."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from supcon_tf.keras_2 import keras


def _views(batch=4, views=2):
    rng = np.random.default_rng(batch)
    shape = (batch, views, 16, 16, 3)
    return rng.integers(0, 256, shape).astype(np.uint8)


def _model(cosine=False, **options):
    encoder = models.Encoder("vgg8", width=0.0625, **options)
    return models.ClassifierModel(encoder, 3, cosine)


def _linear_classifier():
    encoder = models.Encoder("vgg8", width=0.0625)
    encoder(_views()[:, 0], training=True)  # statistics move from their start
    return models.LinearClassifier(encoder, 3)


def test_logits_are_the_classifier_on_every_representation(policy):
    model, views = _model(), _views(4, 3)
    logits = model(views)
    assert logits.dtype == tf.float32 and logits.shape == (4, 3, 3)
    assert _model(cosine=True)(views).dtype == tf.float32
    assert model.classifier.kernel.dtype == tf.float32
    linear_logits = _linear_classifier()(views[:, 0])
    assert linear_logits.dtype == tf.float32 and linear_logits.shape == (4, 3)
    if policy != "float32":  # others round each batch in their own way
        return
    for view in range(3):
        np.testing.assert_allclose(
            logits[:, view],
            model.classifier(model.encoder(views[:, view])),
            atol=1e-5,
        )


@pytest.mark.parametrize("normalize", [True, False])
def test_cosines(normalize):
    model, views = _model(True, normalize=normalize), _views()
    cosines = model(views)
    assert not model.classifier.use_bias
    r = model.encoder(views[:, 0]).numpy()
    w = model.classifier.kernel.numpy()
    expected = (r @ w) / np.linalg.norm(w, axis=0)
    expected /= np.linalg.norm(r, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines[:, 0], expected, atol=1e-5)
    assert np.abs(cosines).max() <= 1 + 1e-6
    model.classifier.kernel.assign(5 * w)
    np.testing.assert_allclose(model(views), cosines, atol=1e-5)


@pytest.mark.slow(but=["True"])
@pytest.mark.parametrize("cosine", [False, True])
def test_fit_trains_encoder_and_classifier(cosine):
    keras.utils.set_random_seed(0)
    model = _model(cosine)
    loss = losses.MaxMarginLoss() if cosine else losses.CrossEntropyLoss()
    rate = 0.01 if cosine else 0.1  # cosines are multiplied by 30
    optimizer = keras.optimizers.SGD(rate)
    model.compile(optimizer, loss, run_eagerly=True)
    dataset = tf.data.Dataset.from_tensors((_views(6), np.arange(6) % 3))
    history = model.fit(dataset, epochs=4, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[-1] < history[0]
    with tf.GradientTape() as tape:
        value = loss(np.arange(4) % 3, model(_views(), training=True))
    for gradient in tape.gradient(value, model.trainable_variables):
        assert gradient is not None and np.isfinite(gradient).all()


def test_stage_2_leaves_the_encoder_bit_identical():
    classifier, images = _linear_classifier(), _views()[:, 0]
    classifier.compile(
        keras.optimizers.SGD(0.5, momentum=0.9, weight_decay=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    classifier(images)
    weights = classifier.encoder.get_weights()
    dense_weights = classifier.classifier.get_weights()
    labels = np.array([0, 1, 2, 0])
    classifier.fit(images, labels, batch_size=2, epochs=2, verbose=0)
    with tf.GradientTape() as tape:  # of a training pass of a user's
        loss = tf.reduce_sum(classifier(images, training=True))
    gradients = tape.gradient(loss, classifier.encoder.trainable_variables)
    assert gradients and set(gradients) == {None}
    np.testing.assert_equal(classifier.encoder.get_weights(), weights)
    for before, after in zip(
        dense_weights, classifier.classifier.get_weights(), strict=True
    ):
        assert (before != after).any()
    assert len(classifier.trainable_variables) == 2


def test_a_shared_encoder_goes_on_training():
    """With a model that was compiled before the classifier, or after it."""
    keras.utils.set_random_seed(0)
    encoder = _linear_classifier().encoder
    model = models.SupConModel(encoder, models.ProjectionHead(8, (16,)))
    views, labels = _views(), np.array([0, 1, 0, 1])
    for _ in range(2):
        # Eagerly: tracing takes far longer than the steps.
        optimizer = keras.optimizers.SGD(0.5)
        model.compile(optimizer, losses.SupConLoss(), run_eagerly=True)
        model.fit(views, labels, verbose=0)
        probe = models.LinearClassifier(encoder, 3)
        probe(views[:, 0])
        assert encoder.trainable and len(probe.trainable_weights) == 2
        counts = len(probe.weights), len(probe.non_trainable_weights)
        assert counts == (len(encoder.weights) + 2, len(encoder.weights))
        before = [weight.numpy() for weight in encoder.trainable_weights]
        model.fit(views, labels, verbose=0)
        for weight, after in zip(
            before, encoder.trainable_weights, strict=True
        ):
            assert (weight != after.numpy()).any(), after.name
    probe.trainable = False
    assert not probe.trainable_weights


def test_bad_arguments_are_named():
    for kind in (models.ClassifierModel, models.LinearClassifier):
        with pytest.raises(ValueError, match="`num_classes` must be at least"):
            kind(models.Encoder("vgg8"), 1)
    with pytest.raises(ValueError, match="`views` must be .batch, views, "):
        _model()(_views()[:, 0])
    for loss in (
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        ["sparse_categorical_crossentropy"],
    ):
        message = r"`loss` must be .*CrossEntropyLoss\(\) is, got .parse"
        with pytest.raises(ValueError, match=message):
            _model().compile("sgd", loss)


CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "categorical_crossentropy",
        CROSS_ENTROPY(),
        keras.losses.sparse_categorical_crossentropy,
        [CROSS_ENTROPY()],
    ],
)
def test_a_loss_of_probabilities_is_refused_for_logits(loss):
    with pytest.raises(ValueError, match=r"`loss` must be of logits, .*, got "):
        _linear_classifier().compile("sgd", loss)


def test_losses_of_logits_agree():
    images, labels = _views()[:, 0], np.arange(4) % 3
    model, values = _linear_classifier(), []
    for loss in (CROSS_ENTROPY(from_logits=True), losses.CrossEntropyLoss()):
        model.compile("sgd", loss, run_eagerly=True)
        values.append(model.evaluate(images, labels, verbose=0))
    assert values[0] == pytest.approx(values[1], rel=1e-5)
    for loss in ("categorical_hinge", "mse", None):
        model.compile("sgd", loss)
