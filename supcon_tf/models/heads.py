"""The projection head, and the identity for models without a head.

Letters in the shapes: N rows, which are all views of all samples.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers


@keras.utils.register_keras_serializable(package="supcon_tf")
class ProjectionHead(base.Model):
    """Proj of Sec. 3.1: z = Proj(r), normalised to the unit sphere.

    The head is dense layers with ReLU between them; the last has no BN or
    activation and is float32 under every precision policy, as is the norm.
    After stage 1 the head is dropped.

    Args:
      output_dim: length of a projection.
      hidden_dims: units of the hidden layers; () is the paper's linear head.
      use_batch_norm: BN instead of a bias on the hidden layers (SimCLR).
      output_bias: the last layer has a bias, as in the PyTorch reference.
      synchronized_bn: BN statistics over all replicas of the strategy. Without
        effect on one replica.
      name: first part of the variables' names; `**kwargs` are Keras' too.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> supcon_tf.ProjectionHead(64)(np.ones([2, 512], np.float32)).shape
      TensorShape([2, 64])

    Raises:
      ValueError: `output_dim` or one of `hidden_dims` is not positive.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.1.
    """

    def __init__(
        self,
        output_dim: int = 128,
        hidden_dims: tuple[int, ...] = (2048,),
        use_batch_norm: bool = False,
        synchronized_bn: bool = True,
        output_bias: bool = False,
        *,
        name: str = "projection_head",
        **kwargs: object,
    ) -> None:
        # Each layer casts for itself, so that a linear head is all float32.
        super().__init__(name=name, autocast=False, **kwargs)
        exceptions.require(
            output_dim > 0, "`output_dim` must be positive", output_dim
        )
        exceptions.require(
            not isinstance(hidden_dims, int),
            f"`hidden_dims` must be a tuple, as ({hidden_dims},)",
            hidden_dims,
        )
        exceptions.require(
            min(hidden_dims, default=1) > 0,
            "`hidden_dims` must be positive",
            tuple(hidden_dims),
        )
        self.output_dim = output_dim
        self.hidden_dims = tuple(hidden_dims)
        self.use_batch_norm = use_batch_norm
        self.output_bias = output_bias
        self.synchronized_bn = synchronized_bn
        # The official code draws N(0, 0.01): with inputs of unit length,
        # projections then have length 0.04, and the norm multiplies their
        # gradients by 25. LARS rescales that; plain SGD collapsed.
        dense = functools.partial(
            keras.layers.Dense, kernel_initializer="he_normal"
        )
        self.hidden = [
            dense(
                units,
                use_bias=not use_batch_norm,
                dtype=self.dtype_policy,
                name=f"hidden{index}",
            )
            for index, units in enumerate(self.hidden_dims)
        ]
        self.projection = dense(
            output_dim,
            use_bias=output_bias,
            dtype="float32",
            name="projection",
        )
        self.norms = [
            layers.batch_norm(
                self.dtype_policy,
                synchronized=synchronized_bn and layers.spans_replicas(self),
                name=f"{dense.name}_bn",
            )
            for dense in (self.hidden if use_batch_norm else ())
        ]

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        dim = input_shape[-1]
        for dense in (*self.hidden, self.projection):
            self._build_part(dense, (None, dim))
            dim = dense.units
        for norm, units in zip(self.norms, self.hidden_dims, strict=False):
            self._build_part(norm, (None, units))

    def call(
        self, representations: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Projects [..., representation_dim] to [..., output_dim] float32."""
        # BN takes one fixed rank, so the leading axes are folded.
        activations = tf.reshape(  # [N, representation_dim]
            representations, [-1, representations.shape[-1]]
        )
        for index, dense in enumerate(self.hidden):
            activations = dense(activations)  # [N, units]
            if self.use_batch_norm:
                activations = self.norms[index](activations, training=training)
            activations = tf.nn.relu(activations)
        z = self.projection(activations)  # [N, output_dim] float32
        squared_norm = tf.reduce_sum(tf.square(z), axis=-1, keepdims=True)
        # Where all hidden units are off, a small clamp of the norm would
        # multiply the gradient by 1 / sqrt(clamp), which overflows float16 on
        # the way back; 1 does not. A row of zeros stays zero.
        z *= tf.math.rsqrt(tf.where(squared_norm > 1e-12, squared_norm, 1.0))
        leading_axes = tf.shape(representations)[:-1]
        shape = tf.concat([leading_axes, [self.output_dim]], axis=0)
        return tf.reshape(z, shape)  # [..., output_dim]


@keras.utils.register_keras_serializable(package="supcon_tf")
class NoProjectionHead(base.Model):
    """The representation at unit length, as the projection: z = r / ||r||.

    With this head the loss sees the representations, as in the fine-tuning of
    language models. The head has no weights. `name` and `**kwargs` are Keras'.

    Attributes:
      output_dim: length of the representation; None before `build`.

    Example:
      >>> from supcon_tf import models
      >>> projections = models.NoProjectionHead()([[3.0, 4.0]])
      >>> [round(float(value), 3) for value in projections[0]]
      [0.6, 0.8]

    Reference: https://arxiv.org/abs/2011.01403, Sec. 2.
    """

    def __init__(
        self, *, name: str = "no_projection_head", **kwargs: object
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.output_dim: int | None = None

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        self.output_dim = input_shape[-1]

    def call(
        self, representations: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Scales [..., dim] float to unit length, in float32."""
        projections = tf.cast(representations, tf.float32)
        return tf.math.l2_normalize(projections, axis=-1, epsilon=1e-6)
