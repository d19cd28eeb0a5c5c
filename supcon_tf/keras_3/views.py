"""Views of images in a network of Keras 3 that takes images."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_3.installed import keras
from supcon_tf.models import keras_data


@keras.saving.register_keras_serializable("supcon_tf")
class Views(keras_data.EpochSteps, keras.Model):
    """A model that calls a network on every view: `compile` and `fit` it.

    Views [batch, views, ...], as `data.make_views` makes them, become rows
    [batch * views, ...] of the network, and its outputs [batch, views, ...], as
    losses take them: batch normalisation sees all views together, as in
    `SupConModel`. uint8 becomes floats in 0..255, which the network scales as
    it wants. The attribute `network` is the network itself, for images, after
    the training. A `Views` is a layer too, of any model.

    Args:
      network: a model or a layer of Keras 3, from images to projections.
      **kwargs: of Keras' Model.

    Example:
      >>> import keras
      >>> from supcon_tf import data, keras_3
      >>> layers = keras.layers
      >>> network = keras.Sequential(
      ...     [layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(16)]
      ... )
      >>> model = keras_3.Views(network)
      >>> model.compile("adam", keras_3.SupConLoss())
      >>> views = data.make_views(data.load("digits", "train"), 256)
      >>> history = model.fit(views, epochs=2, verbose=0)
      >>> tuple(model(next(iter(views))[0]).shape)
      (256, 2, 16)

    Raises:
      ValueError: the model is called with uint8 that are no views of images,
        such as the images themselves.
    """

    def __init__(self, network: keras.layers.Layer, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.network = network

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if not self.network.built:
            self.network.build((None, *input_shape[2:]))
        self.built = True

    def __call__(
        self, views: tf.Tensor, *args: object, **kwargs: object
    ) -> tf.Tensor:
        """Checks the shape of views before Keras calls the model."""
        shape = tuple(getattr(views, "shape", ()))
        exceptions.require(
            getattr(views, "dtype", None) != "uint8" or len(shape) == 5,
            "`views` must be [batch, views, height, width, channels], as "
            "data.views_of makes them of a dataset of images",
            f"shape {shape}",
        )
        return super().__call__(views, *args, **kwargs)

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        shape = keras.ops.shape(views)
        if views.dtype == "uint8":
            views = keras.ops.cast(views, self.compute_dtype)
        rows = keras.ops.reshape(views, (-1, *shape[2:]))  # [B * V, ...]
        outputs = self.network(rows, training=training)
        shape = (-1, shape[1], *outputs.shape[1:])
        return keras.ops.reshape(outputs, shape)  # [B, V, ...]

    def get_config(self) -> dict[str, object]:
        network = keras.saving.serialize_keras_object(self.network)
        return super().get_config() | {"network": network}

    @classmethod
    def from_config(
        cls, config: dict[str, object], custom_objects: dict | None = None
    ) -> Views:
        """Rebuilds the model, and a network for it."""
        network = keras.saving.deserialize_keras_object(
            config["network"], custom_objects
        )
        return cls(**(config | {"network": network}))

    def fit(
        self, x: object = None, *args: object, **kwargs: object
    ) -> keras.callbacks.History:
        """Keras' fit; endless views that tell their epochs need no steps.

        Views of `data.make_views` do, for training or validation. Where this
        model was fitted to the same dataset before, or begins at a later epoch,
        the views go on.
        """
        if isinstance(x, tf.data.Dataset):
            # With its own default, Keras 3 warns that it does not shuffle.
            kwargs.setdefault("shuffle", False)
        return super().fit(x, *args, **kwargs)
