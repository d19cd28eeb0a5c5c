"""The model of stage 1: views to projections."""

from __future__ import annotations

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class SupConModel(tf.keras.Model):
    """z = Proj(Enc(view)) for every view of a multiviewed batch, Sec. 3.1.

    The views are folded into the batch, so that all views of all samples share
    one BN pass, and unfolded after the head. Training is `compile` with a loss
    on the projections, then `fit`.

    Args:
      encoder: images to representations; see `Encoder`.
      projection_head: representations to projections; see `ProjectionHead`.
      name: name of the model.
      **kwargs: of `tf.keras.Model`.

    Raises:
      ValueError: the views are not rank 5.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3.1.
    """

    def __init__(
        self,
        encoder: tf.keras.Model,
        projection_head: tf.keras.Model,
        *,
        name: str = "supcon_model",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.encoder = encoder
        self.projection_head = projection_head

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the variables of all layers."""
        if self.built:
            return
        shape = _check_views(input_shape)
        self.encoder.build((None, *shape[2:]))
        self.projection_head.build((None, self.encoder.representation_dim))
        tf.keras.layers.Layer.build(self, input_shape)

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Projects every view of every sample.

        Args:
          views: [batch, views, height, width, 3] uint8, or float in 0..255.
          training: whether BN uses the statistics of the batch.

        Returns:
          [batch, views, dim] float32, unit length along dim.
        """
        # B batch, V views
        static = _check_views(views.shape)
        shape = tf.shape(views)
        images = tf.reshape(views, tf.concat([[-1], shape[2:]], axis=0))
        images = tf.ensure_shape(images, [None, *static[2:]])  # [B*V, H, W, 3]
        representations = self.encoder(images, training=training)
        projections = self.projection_head(representations, training=training)
        num_views = static[1] or shape[1]
        return tf.reshape(
            projections, [shape[0], num_views, projections.shape[-1]]
        )  # [B, V, dim]

    def get_config(self) -> dict[str, object]:
        """Returns every constructor argument."""
        serialize = tf.keras.saving.serialize_keras_object
        return tf.keras.layers.Layer.get_config(self) | {
            "encoder": serialize(self.encoder),
            "projection_head": serialize(self.projection_head),
        }

    @classmethod
    def from_config(cls, config: dict[str, object]) -> SupConModel:
        """Rebuilds the model, with new weights, from its config."""
        parts = {
            key: tf.keras.saving.deserialize_keras_object(config[key])
            for key in ("encoder", "projection_head")
        }
        return cls(**(config | parts))


def _check_views(shape: tf.TensorShape) -> list[int | None]:
    """Returns the static shape, or raises if it cannot be one of views."""
    shape = tf.TensorShape(shape)
    if shape.rank != 5:
        raise ValueError(
            "`views` must be [batch, views, height, width, 3], "
            f"got shape {shape}"
        )
    return shape.as_list()
