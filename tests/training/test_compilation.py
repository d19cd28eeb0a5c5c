"""The shapes of the whole training step are static, as a TPU needs them."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from supcon_tf import data, losses, models, training


def batches():
    pixels = np.random.default_rng(0).integers(0, 256, [32, 16, 16, 3])
    return data.make_views(
        data.from_arrays(pixels.astype(np.uint8), np.arange(32) % 5), 16
    )


def operations(graph: tf.Graph) -> Iterator[tf.Operation]:
    """The operations of a graph and of all functions that it calls."""
    yield from graph.get_operations()
    for function in graph._functions.values():
        yield from operations(function.graph)


def test_every_shape_of_the_step_is_static():
    """From `make_views`, whose batches are full, to the last update."""
    model = models.SupConModel(
        models.Encoder("vgg8", width=0.05), models.ProjectionHead(8, (16,))
    )
    model.build((None, 2, 16, 16, 3))
    optimizer = training.SGD(0.1, momentum=0.9, l2=1e-4)
    model.compile(optimizer, losses.SupConLoss(), losses.diagnostics())
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
