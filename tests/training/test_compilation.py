"""The whole training step compiles by XLA, and its shapes are static.

XLA for the CPU is the nearest that there is to the compiler of a TPU.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, models, training
from supcon_tf.keras_2 import keras


def batches():
    pixels = np.random.default_rng(0).integers(0, 256, [32, 16, 16, 3])
    return data.make_views(
        data.from_arrays(pixels.astype(np.uint8), np.arange(32) % 5), 16
    )


def compiled_model(jit_compile):
    keras.utils.set_random_seed(0)
    model = models.SupConModel(
        models.Encoder("vgg8", width=0.05), models.ProjectionHead(8, (16,))
    )
    model.build((None, 2, 16, 16, 3))
    model.compile(
        training.SGD(0.1, momentum=0.9, l2=1e-4),
        losses.SupConLoss(),
        losses.diagnostics(),
        jit_compile=jit_compile,
    )
    return model


def operations(graph: tf.Graph) -> Iterator[tf.Operation]:
    """Those of a graph and of all functions that it calls."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from operations(function.graph)


@pytest.mark.slow
def test_xla_trains_as_tensorflow_does():
    """Loss, every metric and every weight, after a step.

    After more of them, a maximum or a ReLU that rounding tips the other way
    makes differences that say nothing about the compiler.
    """
    views = batches().take(1).cache()
    results = []
    for jit_compile in (False, True):
        model = compiled_model(jit_compile)
        history = model.fit(views, epochs=1, verbose=0).history
        assert len(history) == 7
        results.append(
            {name: values[0] for name, values in history.items()}
            | {v.name: v.numpy() for v in model.variables}
        )
    plain, xla = results
    for name, expected in plain.items():
        np.testing.assert_allclose(
            xla[name], expected, rtol=1e-5, atol=1e-5, err_msg=name
        )


def test_every_shape_of_the_step_is_static():
    """From `make_views`, whose batches are full, to the last update."""
    model = compiled_model(False)
    step = tf.function(lambda *batch: model.train_step(batch))
    spec = batches().element_spec
    assert spec[0].shape == [16, 2, 16, 16, 3] and spec[1].shape == [16]
    step_operations = list(operations(step.get_concrete_function(*spec).graph))
    assert len(step_operations) > 500
    # Private scratch space of the kernel, and its gradient.
    scratch = ("FusedBatchNormV3", "ZerosLike")
    dynamic = [
        operation.name
        for operation in step_operations
        for output in operation.outputs
        if not output.shape.is_fully_defined()
        and output.dtype not in (tf.resource, tf.variant)
        and operation.type not in scratch
    ]
    assert dynamic == []
