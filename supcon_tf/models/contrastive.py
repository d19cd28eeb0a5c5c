"""The model of stage 1: views to projections."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf.models import views as view_axis


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
        shape = view_axis.check_views(input_shape)
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
        images = view_axis.fold_views(views)  # [B*V, H, W, 3]
        representations = self.encoder(images, training=training)
        projections = self.projection_head(representations, training=training)
        return view_axis.unfold_views(projections, views)  # [B, V, dim]

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
