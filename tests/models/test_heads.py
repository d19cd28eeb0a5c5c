"""Projection head and linear classifier."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models
from supcon_tf.keras_2 import keras


def _unit(*shape):
    rows = tf.random.stateless_normal(shape, (1, 2))
    return tf.math.l2_normalize(rows, axis=-1)


def _images(count=4):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, 16, 16, 3)).astype(np.uint8)


@pytest.mark.parametrize("hidden_dims", [(), (32,), (32, 16, 16)])
@pytest.mark.parametrize("use_batch_norm", [False, True])
def test_projections_are_float32_and_unit_length(
    policy, hidden_dims, use_batch_norm
):
    keras.utils.set_random_seed(0)  # no row with every hidden unit off
    head = models.ProjectionHead(8, hidden_dims, use_batch_norm)
    z = head(_unit(4, 3, 64), training=use_batch_norm)
    assert z.dtype == tf.float32
    assert z.shape == (4, 3, 8)
    np.testing.assert_allclose(np.linalg.norm(z, axis=-1), 1, atol=1e-5)
    assert head.projection.compute_dtype == "float32"
    for dense in head.hidden:
        assert dense.compute_dtype == policy.removeprefix("mixed_")


def test_head_by_hand():
    head = models.ProjectionHead(4, (6,))
    r = _unit(5, 8)
    output = head(r)
    kernel, bias, last = head.get_weights()
    z = np.maximum(r @ kernel + bias, 0) @ last
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    np.testing.assert_allclose(output, z, atol=1e-6)


@pytest.mark.parametrize(
    ("hidden_dims", "use_batch_norm", "names"),
    [
        ((), False, "projection/kernel"),
        ((6,), False, "hidden0/kernel hidden0/bias projection/kernel"),
        (
            (6,),
            True,
            "hidden0/kernel projection/kernel hidden0_bn/gamma hidden0_bn/beta",
        ),
    ],
)
def test_variables(hidden_dims, use_batch_norm, names):
    built, called = (
        models.ProjectionHead(4, hidden_dims, use_batch_norm) for _ in range(2)
    )
    built.build((None, 8))
    called(_unit(2, 8))
    expected = {f"projection_head/{name}:0" for name in names.split()}
    for head in (built, called):
        assert {v.name for v in head.trainable_variables} == expected


def test_kernels_start_as_he_and_biases_at_zero():
    head = models.ProjectionHead()
    head.build((None, 512))
    kernel, bias, last = head.get_weights()
    assert kernel.shape == (512, 2048) and last.shape == (2048, 128)
    assert not bias.any()
    assert kernel.std() == pytest.approx(np.sqrt(2 / 512), rel=0.01)
    assert last.std() == pytest.approx(np.sqrt(2 / 2048), rel=0.01)


@pytest.mark.parametrize("hidden_dims", [(), (6,), (6, 6)])
def test_zero_output_has_a_finite_gradient(policy, hidden_dims):
    head = models.ProjectionHead(4, hidden_dims)
    r = tf.zeros((2, 8))
    with tf.GradientTape() as tape:
        tape.watch(r)
        z = head(r)
        loss = 1e4 * tf.reduce_sum(z)  # as with a float16 loss scale
    assert not z.numpy().any()
    for gradient in tape.gradient(loss, [r, *head.trainable_variables]):
        assert np.isfinite(gradient).all()


def test_rank_and_empty_batch():
    head = models.ProjectionHead(4, (6,), use_batch_norm=True)
    r = _unit(3, 2, 8)
    folded = head(tf.reshape(r, (6, 8)))
    np.testing.assert_allclose(
        head(r), tf.reshape(folded, (3, 2, 4)), atol=1e-6
    )
    assert head(tf.zeros((0, 2, 8))).shape == (0, 2, 4)
    static = tf.function(head).get_concrete_function(
        tf.TensorSpec((None, 2, 8)), training=False
    )
    assert static.output_shapes.as_list() == [None, 2, 4]


def test_bad_sizes():
    for kind, arguments, message in (
        (models.ProjectionHead, (0,), "`output_dim` must be positive, got 0"),
        (models.ProjectionHead, (4, (8, 0)), "`hidden_dims` must be positive"),
        (
            models.LinearClassifier,
            (models.Encoder("vgg8"), 1),
            "`num_classes` must be at least 2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            kind(*arguments)


def _classifier():
    encoder = models.Encoder("vgg8", width=0.125)
    encoder(_images(), training=True)  # statistics that are not the initial
    return models.LinearClassifier(encoder, 3)


def test_logits_are_float32(policy):
    classifier = _classifier()
    logits = classifier(_images())
    assert logits.dtype == tf.float32
    assert logits.shape == (4, 3)


def test_fit_leaves_the_encoder_bit_identical():
    classifier = _classifier()
    classifier.compile(
        keras.optimizers.SGD(0.5, momentum=0.9, weight_decay=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    classifier(_images())
    encoder_before = classifier.encoder.get_weights()
    dense_before = classifier.classifier.get_weights()
    labels = np.array([0, 1, 2, 0])
    classifier.fit(_images(), labels, batch_size=2, epochs=2, verbose=0)
    for before, after in zip(
        encoder_before, classifier.encoder.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(before, after)
    for before, after in zip(
        dense_before, classifier.classifier.get_weights(), strict=True
    ):
        assert (before != after).any()
    assert len(classifier.trainable_variables) == 2


def test_gradient_stops_before_the_encoder():
    classifier = _classifier()
    classifier(_images())
    assert classifier.encoder.trainable_variables
    before = classifier.encoder.get_weights()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(classifier(_images(), training=True))
    gradients = tape.gradient(loss, classifier.encoder.trainable_variables)
    assert gradients == [None] * len(gradients)
    for old, new in zip(before, classifier.encoder.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_shared_encoder_goes_on_training():
    """With a model that was compiled before the classifier, or after it."""
    keras.utils.set_random_seed(0)
    classifier = _classifier()
    encoder, head = classifier.encoder, models.ProjectionHead(8, (16,))
    model = models.SupConModel(encoder, head)
    views, labels = np.stack([_images()] * 2, axis=1), np.array([0, 1, 0, 1])
    for _ in range(2):
        # Eagerly: tracing takes far longer than the steps.
        optimizer = keras.optimizers.SGD(0.5)
        model.compile(optimizer, losses.SupConLoss(), run_eagerly=True)
        model.fit(views, labels, verbose=0)
        probe = models.LinearClassifier(encoder, 3)
        probe(_images())
        assert encoder.trainable and len(probe.trainable_weights) == 2
        counts = len(probe.weights), len(probe.non_trainable_weights)
        assert counts == (len(encoder.weights) + 2, len(encoder.weights))
        before = [weight.numpy() for weight in encoder.trainable_weights]
        model.fit(views, labels, verbose=0)
        for old, new in zip(before, encoder.trainable_weights, strict=True):
            assert (old != new.numpy()).any(), new.name
    probe.trainable = False
    assert not probe.trainable_weights
