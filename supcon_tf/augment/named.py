"""Policies by their names on the command line, or from Keras layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.augment import dispatch, policies
from supcon_tf.defaults import SIM_AUGMENT

if TYPE_CHECKING:
    from supcon_tf.keras_2 import keras

_NUM_PROBES = 8  # images, by which a layer is checked
_LARGEST_SCALED = 8.0  # of images in 0..1, or normalised by their deviation

Policy = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

_NAMED: dict[str, Callable[[], Policy | None]] = {
    "identity": lambda: None,
    "autoaugment": policies.AutoAugment,
    "randaugment": policies.RandAugment,
    "simaugment": lambda: policies.SimAugment(**SIM_AUGMENT),
    "stacked_randaugment": lambda: policies.StackedRandAugment(**SIM_AUGMENT),
}


def policy(
    augmentation: str | keras.layers.Layer | Policy | None,
) -> Policy | None:
    """The policy of a name or of a Keras layer; None for none.

    Args:
      augmentation: a name of `--augmentation`, with the defaults of the tools;
        a layer or a Sequential of layers for the augmentation of images in
        0..255, of Keras 2 or 3, which ignores the seeds; or a policy, which is
        returned.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import augment
      >>> from supcon_tf.keras_2 import keras
      >>> augment.policy("simaugment").strength
      0.25
      >>> turn = augment.policy(keras.layers.RandomRotation(0.1))
      >>> tuple(turn(tf.zeros([2, 8, 8, 3], tf.uint8), [[0, 1], [0, 2]]).shape)
      (2, 8, 8, 3)

    Raises:
      ValueError: there is no such policy; once it is called, a layer changes
        the shape of images, or scales them to another range than 0..255.
    """
    if augmentation is None:
        return None
    if isinstance(augmentation, str):
        exceptions.require_one_of(_NAMED, "augmentation", augmentation)
        return _NAMED[augmentation]()
    # Imported here, so that `data` need not import Keras.
    from supcon_tf import keras_2

    is_layer = isinstance(augmentation, keras_2.keras.layers.Layer)
    if is_layer or keras_2.is_keras_3(augmentation):
        return _LayerPolicy(augmentation)
    exceptions.require(
        callable(augmentation) and not isinstance(augmentation, type),
        "`augmentation` must be a name, a layer of Keras or a policy(images, "
        "seeds), not the class of one",
        augmentation,
    )
    return augmentation


class _LayerPolicy:
    """A Keras layer as a policy: it ignores the seeds, and returns floats."""

    def __init__(self, layer: keras.layers.Layer) -> None:
        self.layer = layer
        self._is_checked = False

    def __call__(self, images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
        images = dispatch.check_images(images)
        if not self._is_checked:
            with tf.init_scope():  # makes its variables outside of any graph
                self._check_range(images.shape[1:])
            self._is_checked = True
        outputs = self.layer(tf.cast(images, tf.float32), training=True)
        exceptions.require(
            outputs.shape.is_compatible_with(images.shape),
            "`augmentation` must leave images of the same shape",
            f"{outputs.shape} of {images.shape}",
        )
        if images.dtype == tf.uint8:
            outputs = tf.saturate_cast(tf.round(outputs), tf.uint8)
        return tf.cast(outputs, images.dtype)

    def _check_range(self, image_shape: tf.TensorShape) -> None:
        """Raises ValueError for a layer that scales images to 0..1, say.

        Rounded, all of them would be black.
        """
        # Not images of the data, which may be nearly black, and several, as a
        # random brightness may blacken one.
        ramp = tf.linspace(0.0, 255.0, image_shape.num_elements())
        ramps = tf.tile(
            tf.reshape(ramp, [1, *image_shape]), [_NUM_PROBES, 1, 1, 1]
        )
        outputs = tf.cast(self.layer(ramps, training=True), tf.float32)
        low, high = tf.reduce_min(outputs), tf.reduce_max(outputs)
        exceptions.require(
            not high <= _LARGEST_SCALED,  # NaN is another error
            "`augmentation` must keep images in 0..255: leave Rescaling layers "
            "out, as the encoder scales, and give value_range=(0, 255)",
            f"{float(low):g} to {float(high):g}",
        )
