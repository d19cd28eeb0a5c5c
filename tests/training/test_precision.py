"""Training under each of Keras' precision policies."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses, models, training
from supcon_tf.keras_2 import keras

RNG = np.random.default_rng(0)
LABELS = np.arange(16, dtype=np.int32) % 4
# A class is a grey level: what a tiny encoder can learn in a few steps.
VIEWS = np.clip(
    60 * LABELS[:, None, None, None, None]
    + RNG.normal(30, 20, [16, 2, 16, 16, 3]),
    0,
    255,
).astype(np.uint8)


class Dtypes(losses.SupConLoss):
    """The loss, which notes the dtypes of its inputs and outputs."""

    seen = ()

    def call(self, y_true, y_pred):
        loss = super().call(y_true, y_pred)
        self.seen = (y_pred.dtype, loss.dtype)
        return loss


@pytest.mark.slow(but=["mixed_bfloat16"])
@pytest.mark.parametrize(
    "policy", ["float32", "mixed_bfloat16", "mixed_float16"]
)
def test_a_few_steps(policy, float32_policy):
    keras.mixed_precision.set_global_policy(policy)
    keras.utils.set_random_seed(0)
    model = models.SupConModel(
        models.Encoder("vgg8", width=0.05),
        models.ProjectionHead(8, (16,), use_batch_norm=True),
    )
    model.build((None, 2, 16, 16, 3))
    loss = Dtypes()
    model.compile(training.SGD(0.05, momentum=0.9, l2=1e-4), loss)
    data = tf.data.Dataset.from_tensors((VIEWS, LABELS)).repeat()
    history = model.fit(data, epochs=4, steps_per_epoch=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert history["loss"][-1] < 0.95 * history["loss"][0]
    # A step with non-finite gradients would be skipped, and halve the scale.
    assert model.optimizer.iterations == 16
    assert loss.seen == (tf.float32, tf.float32)
    assert {v.dtype for v in model.variables} == {tf.float32}
    representations = model.encoder(VIEWS[:, 0], training=False)
    assert representations.dtype == tf.float32
    np.testing.assert_allclose(
        np.linalg.norm(representations, axis=-1), 1, rtol=1e-5
    )
    compute = policy.removeprefix("mixed_")
    layers = model.encoder.submodules
    convolutions = [
        layer for layer in layers if isinstance(layer, keras.layers.Conv2D)
    ]
    assert {layer.compute_dtype for layer in convolutions} == {compute}
    assert model.projection_head.hidden[0].compute_dtype == compute
    scaled = isinstance(
        model.optimizer, keras.mixed_precision.LossScaleOptimizer
    )
    assert scaled == (policy == "mixed_float16")
    if scaled:
        assert model.optimizer.dynamic
        assert model.optimizer.loss_scale == 2.0**15
