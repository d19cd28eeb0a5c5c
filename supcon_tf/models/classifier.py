"""The classifiers: of the one-stage baselines, and of stage 2."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.models import base
from supcon_tf.models import views as view_axis


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class ClassifierModel(base.Model):
    """Encoder and linear classifier, trained together on every view.

    The cross-entropy baseline of the paper and its max-margin variant. Views
    are folded as in `SupConModel`. The classifier of stage 2, on a frozen
    encoder, is `LinearClassifier`.

    Args:
      encoder: images to representations; see `Encoder`.
      num_classes: number of classes, at least 2.
      cosine: logits are cosines between representation and the weights of a
        class, without bias, as `MaxMarginLoss` takes them; both sides are
        normalised here.
      name: first part of the variables' names; `**kwargs` are Keras' too.

    Raises:
      ValueError: `num_classes` is below 2, or the views are not rank 5.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 4.1 and Table 2.
    """

    def __init__(
        self,
        encoder: tf.keras.Model,
        num_classes: int,
        cosine: bool = False,
        *,
        name: str = "classifier_model",
        **kwargs: object,
    ) -> None:
        super().__init__(name=name, autocast=False, **kwargs)
        self.encoder = encoder
        self.num_classes = num_classes
        self.cosine = cosine
        self.classifier = _classifier(num_classes, use_bias=not cosine)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        shape = view_axis.check_views(input_shape)
        self.encoder.build((None, *shape[2:]))
        self._build_part(
            self.classifier, (None, self.encoder.representation_dim)
        )

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """[B, V, H, W, 3] uint8, or float in 0..255, to [B, V, classes]."""
        images = view_axis.fold_views(views)  # [B*V, H, W, 3]
        representations = self.encoder(images, training=training)
        if self.cosine:
            logits = tf.matmul(
                tf.math.l2_normalize(representations, axis=1),
                tf.math.l2_normalize(self.classifier.kernel, axis=0),
            )
        else:
            logits = self.classifier(representations)
        return view_axis.unfold_views(logits, views)  # [B, V, classes]


@tf.keras.utils.register_keras_serializable(package="supcon_tf")
class LinearClassifier(base.Model):
    """The linear classifier of stage 2 on a frozen encoder.

    Freezes `encoder` (sets its `trainable` to False) and always calls it in
    inference mode under a stop-gradient: none of its weights or BN statistics
    changes in `fit`.

    Args:
      encoder: images to representations; see `Encoder`.
      num_classes: number of classes, at least 2.
      name: first part of the variables' names; `**kwargs` are Keras' too.

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
        self.encoder = encoder
        self.encoder.trainable = False
        self.num_classes = num_classes
        self.classifier = _classifier(num_classes)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        self.encoder.build(input_shape)
        self._build_part(
            self.classifier, (None, self.encoder.representation_dim)
        )

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """What `encoder` takes, [B, H, W, 3], to [B, classes] float32."""
        representations = self.encoder(images, training=False)
        return self.classifier(tf.stop_gradient(representations))


def _classifier(
    num_classes: int, use_bias: bool = True
) -> tf.keras.layers.Dense:
    exceptions.require(
        num_classes >= 2, "`num_classes` must be at least 2", num_classes
    )
    return tf.keras.layers.Dense(
        num_classes, use_bias=use_bias, dtype="float32", name="classifier"
    )
