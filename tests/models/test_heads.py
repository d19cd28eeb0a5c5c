"""The projection head."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models
from supcon_tf.keras_2 import keras


def _unit(*shape):
    rows = tf.random.stateless_normal(shape, (1, 2))
    return tf.math.l2_normalize(rows, axis=-1)


@pytest.mark.parametrize(
    ("hidden_dims", "use_batch_norm"),
    [((), False), ((32,), True), ((32, 16, 16), False), ((32, 16), True)],
)
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


def test_head_in_numpy():
    head = models.ProjectionHead(4, (6,))
    r = _unit(5, 8)
    projections = head(r)
    kernel, bias, last_kernel = head.get_weights()
    z = np.maximum(r @ kernel + bias, 0) @ last_kernel
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    np.testing.assert_allclose(projections, z, atol=1e-6)


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
    kernel, bias, last_kernel = head.get_weights()
    assert kernel.shape == (512, 2048) and last_kernel.shape == (2048, 128)
    assert not bias.any()
    assert kernel.std() == pytest.approx(np.sqrt(2 / 512), rel=0.01)
    assert last_kernel.std() == pytest.approx(np.sqrt(2 / 2048), rel=0.01)


@pytest.mark.parametrize("hidden_dims", [(), (6, 6)])
def test_projections_of_zeros_have_finite_gradients(policy, hidden_dims):
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
    with pytest.raises(ValueError, match="`output_dim` must be positive, got"):
        models.ProjectionHead(0)
    with pytest.raises(ValueError, match="`hidden_dims` must be positive"):
        models.ProjectionHead(4, (8, 0))
    with pytest.raises(
        ValueError, match=r"must be a tuple, as \(512,\), got 5"
    ):
        models.ProjectionHead(128, 512)
