"""Losses in a function, of unknown batch or compiled by XLA, are the eager."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.losses import strips
from tests.losses import vectors

# XLA compiles these for a static batch alone.
STATIC_BATCH = {
    "capped windows",
    "windows",
    "negatives",
    "npairs",
    "triplet",
    "hard triplet",
}


@pytest.mark.slow(
    but=[
        "dense-False",
        "dense-True",
        "streamed-True",
        "capped windows-True",
        "simclr-False",
        "npairs-False",
        "triplet-False",
        "rank-True",
        "cross-entropy-False",
    ]
)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", vectors.LOSSES)
def test_in_a_function(name, jit_compile, monkeypatch):
    monkeypatch.setattr(strips, "_WIDTHS", (4,))  # each is compiled
    loss = vectors.make_loss(name)
    labels = vectors.labels_for(name).astype(np.float32)
    if labels.ndim == 1:
        labels = labels.astype(np.int32)
    batch = 6 if jit_compile and name in STATIC_BATCH else None

    def step(z, labels):
        return vectors.value_and_gradient(lambda z: loss(labels, z), z)

    function = tf.function(
        step,
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec([batch, 2, 4]),
            tf.TensorSpec([batch, *labels.shape[1:]], labels.dtype),
        ],
    )
    # The second use of a trace, too.
    for size in (6, 6) if jit_compile else (3, 6):
        z = vectors.unit([size, 2, 4], dtype=np.float32)
        vectors.assert_close(
            function(z, labels[:size]), step(z, labels[:size]), 1e-4, 5e-6
        )
