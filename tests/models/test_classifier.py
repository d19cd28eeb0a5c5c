"""ClassifierModel: logits of every view, cosines, fit."""

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


@pytest.mark.parametrize("num_views", [1, 3])
def test_logits_are_the_classifier_on_every_representation(policy, num_views):
    model, views = _model(), _views(4, num_views)
    logits = model(views)
    assert logits.dtype == tf.float32 and logits.shape == (4, num_views, 3)
    assert _model(cosine=True)(views).dtype == tf.float32
    assert model.classifier.kernel.dtype == tf.float32
    if policy != "float32":  # others round each batch in their own way
        return
    for view in range(num_views):
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
    model.compile(keras.optimizers.SGD(rate), loss)
    dataset = tf.data.Dataset.from_tensors((_views(6), np.arange(6) % 3))
    history = model.fit(dataset, epochs=4, verbose=0).history["loss"]
    assert np.isfinite(history).all() and history[-1] < history[0]
    with tf.GradientTape() as tape:
        value = loss(np.arange(4) % 3, model(_views(), training=True))
    for gradient in tape.gradient(value, model.trainable_variables):
        assert gradient is not None and np.isfinite(gradient).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="`num_classes` must be at least 2"):
        models.ClassifierModel(models.Encoder("vgg8"), 1)
    with pytest.raises(ValueError, match="`views` must be .batch, views, "):
        _model()(_views()[:, 0])
    for loss in (
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    ):
        message = r"`loss` must be .*CrossEntropyLoss\(\) is, got .parse"
        with pytest.raises(ValueError, match=message):
            _model().compile("sgd", loss)
