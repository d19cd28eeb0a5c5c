"""What stands on the representation: projection head, linear classifier."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.models import base, layers


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class ProjectionHead(base.Model):
    """Proj of Sec. 3.1: z = Proj(r), normalised to the unit sphere.

    Dense layers with ReLU between; the last has no bias, BN or activation and
    is float32 under every precision policy, as is the norm. The head is dropped
    after stage 1.

    Args:
      output_dim: length of a projection.
      hidden_dims: units of the hidden layers; () is the paper's linear head.
      use_batch_norm: BN instead of a bias on the hidden layers (SimCLR).
      synchronized_bn: BN statistics over all replicas of the strategy. Without
        effect on one replica.
      name: name of the model and first part of its variables' names.
      **kwargs: of `tf.keras.Model`.

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
            min(hidden_dims, default=1) > 0,
            "`hidden_dims` must be positive",
            tuple(hidden_dims),
        )
        self.output_dim = output_dim
        self.hidden_dims = tuple(hidden_dims)
        self.use_batch_norm = use_batch_norm
        self.synchronized_bn = synchronized_bn
        self.hidden = [
            _dense(
                units, f"hidden{index}", self.dtype_policy, not use_batch_norm
            )
            for index, units in enumerate(self.hidden_dims)
        ]
        self.projection = _dense(output_dim, "projection", "float32", False)
        self.norms: list[tf.keras.layers.Layer] = []

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the variables of all layers."""
        if self.built:
            return
        synchronized = self.synchronized_bn and layers.spans_replicas(self)
        dims = (input_shape[-1], *self.hidden_dims)
        for index, dense in enumerate([*self.hidden, self.projection]):
            # Absolute scopes, as in Encoder.build.
            with tf.name_scope(f"{self.name}/{dense.name}/"):
                dense.build((None, dims[index]))
        for dense in self.hidden if self.use_batch_norm else ():
            norm = layers.batch_norm(
                self.dtype_policy,
                synchronized=synchronized,
                name=f"{dense.name}_bn",
            )
            with tf.name_scope(f"{self.name}/{norm.name}/"):
                norm.build((None, dense.units))
            # Appended: a new list would miss a checkpoint read before `build`.
            self.norms.append(norm)
        tf.keras.layers.Layer.build(self, input_shape)

    def call(
        self, representations: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        """Projects representations.

        Args:
          representations: [..., representation_dim] float.
          training: whether BN uses the statistics of the batch.

        Returns:
          [..., output_dim] float32, unit length along the last axis.
        """
        # D representation_dim; BN takes one fixed rank, so rows are folded.
        shape = representations.shape
        x = tf.reshape(representations, [-1, shape[-1]])  # [rows, D]
        for index, dense in enumerate(self.hidden):
            x = dense(x)
            if self.use_batch_norm:
                x = self.norms[index](x, training=training)
            x = tf.nn.relu(x)
        x = self.projection(x)  # [rows, output_dim] float32
        squared = tf.reduce_sum(tf.square(x), axis=-1, keepdims=True)
        # Where all hidden units are off, a small clamp would multiply the
        # gradient by its inverse root, which overflows float16 on its way
        # down: 1 does not. A row of zeros stays zero.
        x *= tf.math.rsqrt(tf.where(squared > 1e-12, squared, 1.0))
        leading = tf.shape(representations)[:-1]
        x = tf.reshape(x, tf.concat([leading, [self.output_dim]], axis=0))
        return tf.ensure_shape(x, shape[:-1] + [self.output_dim])


def _dense(
    units: int,
    name: str,
    dtype: str | tf.keras.mixed_precision.Policy,
    use_bias: bool,
) -> tf.keras.layers.Dense:
    """Makes a dense layer with He's initial kernel.

    The official code draws N(0, 0.01): with inputs of unit length, projections
    then have length 0.04, and the norm multiplies their gradients by 25. LARS
    rescales that; plain SGD collapsed.
    """
    return tf.keras.layers.Dense(
        units,
        use_bias=use_bias,
        kernel_initializer="he_normal",
        dtype=dtype,
        name=name,
    )


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class LinearClassifier(base.Model):
    """The linear classifier of stage 2 on a frozen encoder.

    Freezes `encoder` (sets its `trainable` to False) and always calls it in
    inference mode under a stop-gradient: none of its weights or BN statistics
    changes in `fit`.

    Args:
      encoder: images to representations; see `Encoder`.
      num_classes: number of classes, at least 2.
      name: name of the model and first part of its variables' names.
      **kwargs: of `tf.keras.Model`.

    Raises:
      ValueError: `num_classes` is below 2.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3 and Sec. 4.
    """

    def __init__(
        self,
        encoder: tf.keras.Model,
        num_classes: int,
        *,
        name: str = "linear_classifier",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        exceptions.require(
            num_classes >= 2, "`num_classes` must be at least 2", num_classes
        )
        self.encoder = encoder
        self.encoder.trainable = False
        self.num_classes = num_classes
        self.classifier = tf.keras.layers.Dense(
            num_classes, dtype="float32", name="classifier"
        )

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the variables of all layers."""
        if self.built:
            return
        self.encoder.build(input_shape)
        with tf.name_scope(f"{self.name}/{self.classifier.name}/"):
            self.classifier.build((None, self.encoder.representation_dim))
        tf.keras.layers.Layer.build(self, input_shape)

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """Classifies images.

        Args:
          images: what `encoder` takes, [batch, height, width, 3] uint8.

        Returns:
          [batch, num_classes] float32 logits, under every precision policy.
        """
        representations = self.encoder(images, training=False)
        return self.classifier(tf.stop_gradient(representations))
