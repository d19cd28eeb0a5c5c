"""Gradient caching: a forward pass in chunks, in the memory of one chunk.

A contrastive loss needs the outputs of the whole batch, not its activations:
the chunks pass the model once without a tape, and a second time, under a tape
each, once the gradient of the loss with respect to the outputs is known.

Values and gradients are those of one pass if a row of the outputs depends on
its own row of the inputs alone. Batch normalisation in training is different:
it takes the statistics of a chunk on its replica and updates its moving
averages once per chunk, in order. The price is one more forward pass. A random
layer would draw other numbers in the second pass, so `check_cacheable` refuses
it; `add_loss` has no effect. Eagerly, outside of a `tf.function`, the caller's
tape keeps the activations all the same.

Letters in the shapes: B batch, C chunks, S samples of a chunk, B = C * S.
Reference: Gao et al. 2021, https://arxiv.org/abs/2101.06983.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import layers

_RANDOM = keras.__internal__.layers.BaseRandomLayer
Forward = Callable[[tf.Tensor], Sequence[tf.Tensor]]


def forward_in_chunks(
    forward: Forward,
    inputs: tf.Tensor,
    chunks: int,
    row_shapes: Sequence[Sequence[int | None]],
    model: keras.Model,
) -> list[tf.Tensor]:
    """Returns `forward(inputs)`, computed chunk by chunk in a loop.

    Args:
      forward: from [S, ...] and the variables of `model` to [S, *row] float32.
      inputs: [B, ...], any dtype.
      chunks: C; ValueError if it does not divide a static B.
      row_shapes: shape of one row of every output.
      model: the model whose trainable variables get gradients, and whose moving
        averages `forward` updates.

    Returns:
      A [B, *row] float32 tensor per output.
    """
    parts = _split(inputs, chunks)  # [C, S, ...]
    weights = model.trainable_variables
    averages = [  # moving averages, which each replica has for itself
        variable
        for variable in model.non_trainable_variables
        if variable.synchronization == tf.VariableSynchronization.ON_READ
    ]
    for part in model.submodules:  # networks of Keras 3 list theirs
        averages += getattr(part, "statistics", [])
    # A loop of TensorFlow: unrolled in Python, the chunks would run at once,
    # each in its own memory.
    outputs = tf.map_fn(
        lambda index: forward(parts[index]),
        tf.range(chunks),
        fn_output_signature=[
            tf.TensorSpec([parts.shape[1], *row]) for row in row_shapes
        ],
        parallel_iterations=1,
    )  # [C, S, *row] each

    # The outputs, then the weights: so the gradient reaches the weights.
    @tf.custom_gradient
    def identity(*tensors: tf.Tensor) -> tuple:
        def backward(*gradients: tf.Tensor) -> list[tf.Tensor]:
            # The second pass must not move the averages again.
            first_pass_values = [average.read_value() for average in averages]
            weight_gradients = _weight_gradients(
                forward,
                parts,
                weights,
                [_split(gradient, chunks) for gradient in gradients],
            )
            for average, value in zip(averages, first_pass_values, strict=True):
                average.assign(value)
            return [*gradients, *weight_gradients]

        values = [tf.identity(output) for output in tensors[: len(outputs)]]
        return values, backward

    return identity(
        *(
            tf.stop_gradient(layers.fold(output)) for output in outputs
        ),  # [B, *row]
        # The stored value, not one cast to the compute dtype of a layer.
        *(
            tf.raw_ops.ReadVariableOp(
                resource=weight.handle, dtype=weight.dtype
            )
            for weight in weights
        ),
    )


def check_cacheable(model: keras.Model) -> None:
    """Raises ValueError for layers that draw at random in training.

    The second pass would draw other numbers than the first.
    """
    for layer in layers.parts(model):
        # ConvNeXt's StochasticDepth is no BaseRandomLayer.
        drops_paths = hasattr(layer, "drop_path_rate")
        seed_generators = getattr(layer, "_seed_generators", [])  # of Keras 3
        is_random = drops_paths or seed_generators or isinstance(layer, _RANDOM)
        if is_random and getattr(layer, "rate", 1):
            raise exceptions.InvalidValue(
                "`gradient_cache_chunks` must be 1 for a network that draws at "
                f"random in training, got {layer.name}"
            )


def _weight_gradients(
    forward: Forward,
    parts: tf.Tensor,
    weights: Sequence[tf.Variable],
    gradients: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Back-propagates `gradients` [C, S, *row] of the outputs of `parts`.

    `parts` are the inputs, [C, S, ...]. Returns the sums over all chunks.
    """

    def add_chunk(sums: list[tf.Tensor], index: tf.Tensor) -> list[tf.Tensor]:
        # A tape for each chunk: its activations are freed before the next one.
        with tf.GradientTape() as tape:
            outputs = forward(parts[index])
        chunk_gradients = tape.gradient(
            outputs,
            weights,
            [gradient[index] for gradient in gradients],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return [
            total + gradient
            for total, gradient in zip(sums, chunk_gradients, strict=True)
        ]

    return tf.foldl(
        add_chunk,
        tf.range(parts.shape[0]),
        [tf.zeros(weight.shape, weight.dtype) for weight in weights],
        parallel_iterations=1,
    )


def _split(tensor: tf.Tensor, chunks: int) -> tf.Tensor:
    """Reshapes [B, ...] to [C, S, ...]."""
    batch = tensor.shape[0]
    exceptions.require(
        batch is None or batch % chunks == 0,
        "`gradient_cache_chunks` must divide the batch of a replica",
        f"{chunks} and {batch}",
    )
    shape = tf.concat([[chunks, -1], tf.shape(tensor)[1:]], axis=0)
    return tf.reshape(tensor, shape)
