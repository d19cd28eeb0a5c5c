"""The classifiers of the one-stage baselines and of stage 2."""

from __future__ import annotations

import inspect

import tensorflow as tf

from supcon_tf import exceptions
from supcon_tf.keras_2 import keras
from supcon_tf.models import backbone, base, layers

# Losses of Keras that take a label for each row of logits.
_LOSSES_OF_ROWS = (
    str,
    keras.losses.CategoricalCrossentropy,
    keras.losses.SparseCategoricalCrossentropy,
)


def _takes_probabilities(loss: object) -> bool:
    """Whether a loss of Keras, or its name, would take no logits."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        return loss.get_config().get("from_logits") is False
    if not callable(loss):
        return False
    option = inspect.signature(loss).parameters.get("from_logits")
    return option is not None and option.default is False


class _EncoderClassifier(base.Model):
    """An encoder with a linear classifier on top."""

    def __init__(
        self,
        encoder: keras.Model,
        num_classes: int,
        cosine: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        exceptions.require(
            num_classes >= 2, "`num_classes` must be at least 2", num_classes
        )
        self.encoder = backbone.as_encoder(encoder)
        self.num_classes = num_classes
        self.cosine = cosine
        self.classifier = layers.classifier(num_classes, cosine)

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        self.encoder.build(input_shape)
        dim = self.encoder.representation_dim
        self._build_part(self.classifier, (None, dim))


@keras.utils.register_keras_serializable(package="supcon_tf")
def accuracy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Keras' metric: 1 where a view [B, V] is predicted right, else 0.

    Labels are [B] or [B, 1] integers, or [B, classes] shares of classes.
    """
    if labels.shape.rank == 2 and labels.shape[1] != 1:
        labels = tf.argmax(labels, axis=1)
    labels = tf.cast(tf.reshape(labels, [-1, 1]), tf.int64)  # [B, 1]
    return tf.cast(tf.argmax(logits, axis=2) == labels, tf.float32)


@keras.utils.register_keras_serializable(package="supcon_tf")
class ClassifierModel(_EncoderClassifier):
    """Encoder and linear classifier, trained together on every view.

    The cross-entropy baseline of the paper and its max-margin variant. Views
    are folded as in `SupConModel`. The classifier of stage 2, on a frozen
    encoder, is `LinearClassifier`.

    Args:
      encoder: images to representations; see `Encoder`. Any other Keras model
        becomes a `BackboneEncoder`.
      num_classes: number of classes, at least 2.
      cosine: logits are cosines between representation and the weights of a
        class, without bias, as `MaxMarginLoss` takes them; the layer normalises
        both.
      name: first part of the variables' names; `**kwargs` are Keras' too.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> model = models.ClassifierModel(encoder, num_classes=10)
      >>> tuple(model(np.zeros([4, 2, 32, 32, 3], np.uint8)).shape)
      (4, 2, 10)

    Raises:
      ValueError: `num_classes` is below 2, or the views are not rank 5.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 4.1 and Table 2.
    """

    def __init__(
        self,
        encoder: keras.Model,
        num_classes: int,
        cosine: bool = False,
        *,
        name: str = "classifier_model",
        **kwargs: object,
    ) -> None:
        super().__init__(encoder, num_classes, cosine, name=name, **kwargs)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: keras.losses.Loss | None = None,
        metrics: object = None,
        **kwargs: object,
    ) -> None:
        """Keras' compile; "accuracy" is the accuracy of all views.

        Raises:
          ValueError: the loss is one of Keras' of classes, which knows no
            views.
        """
        metrics = tf.nest.map_structure(
            lambda metric: accuracy
            if metric in ("accuracy", "acc")
            else metric,
            metrics,
        )
        super().compile(optimizer, loss, metrics, **kwargs)

    def _check_loss(self, loss: object) -> None:
        exceptions.require(
            not isinstance(loss, _LOSSES_OF_ROWS),
            "`loss` must be of logits of every view, as "
            "losses.CrossEntropyLoss() is",
            loss if isinstance(loss, str) else type(loss).__name__,
        )

    def _build_parts(self, input_shape: tf.TensorShape) -> None:
        shape = layers.folded_shape(input_shape, self.encoder)
        super()._build_parts(shape)

    def _check_shape(self, shape: tf.TensorShape) -> None:
        layers.folded_shape(shape, self.encoder)

    def call(self, views: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Classifies views [B, V, H, W, 3], uint8 or float: [B, V, classes].

        Floats are in 0..255; the logits are float32.
        """

        def classify(images: tf.Tensor) -> list[tf.Tensor]:
            """Computes logits [B * V, classes] of images [B * V, H, W, 3]."""
            return [self.classifier(self.encoder(images, training=training))]

        return layers.each_view(classify, views, self.encoder)[0]


@keras.utils.register_keras_serializable(package="supcon_tf")
class LinearClassifier(_EncoderClassifier):
    """The linear classifier of stage 2 on a frozen encoder, which gives logits.

    The model calls `encoder` in inference mode under a stop-gradient and counts
    the encoder's weights as not trainable: `fit` changes none of them, nor BN
    statistics. The encoder's `trainable` stays as it is, so that another model
    can go on training the encoder.

    Args:
      encoder: images to representations; see `Encoder`. Any other Keras model
        becomes a `BackboneEncoder`.
      num_classes: number of classes, at least 2.
      name: first part of the variables' names; `**kwargs` are Keras' too.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> encoder = supcon_tf.Encoder("vgg8", width=0.25)
      >>> classifier = supcon_tf.LinearClassifier(encoder, num_classes=10)
      >>> classifier(np.zeros([2, 32, 32, 3], np.uint8)).shape
      TensorShape([2, 10])

    Raises:
      ValueError: `num_classes` is below 2; in `compile`, the loss takes
        probabilities.

    Reference: https://arxiv.org/abs/2004.11362, Sec. 3 and Sec. 4.
    """

    def __init__(
        self,
        encoder: keras.Model,
        num_classes: int,
        *,
        name: str = "linear_classifier",
        **kwargs: object,
    ) -> None:
        super().__init__(encoder, num_classes, name=name, **kwargs)

    def _check_loss(self, loss: object) -> None:
        """Raises ValueError for a loss of probabilities, as by Keras' names.

        Of logits it would be another number.
        """
        name = getattr(loss, "__name__", type(loss).__name__)
        exceptions.require(
            not _takes_probabilities(loss),
            "`loss` must be of logits, as losses.CrossEntropyLoss() and Keras' "
            "SparseCategoricalCrossentropy(from_logits=True) are",
            loss if isinstance(loss, str) else f"{name} of probabilities",
        )

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The weights of the classifier, which alone train."""
        return self.classifier.trainable_weights if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """All other weights, those of the encoder."""
        trainable_ids = {id(weight) for weight in self.trainable_weights}
        parts = self.encoder, self.classifier
        weights = [weight for part in parts for weight in part.weights]
        return [weight for weight in weights if id(weight) not in trainable_ids]

    def _check_shape(self, shape: tf.TensorShape) -> None:
        if isinstance(self.encoder, base.Model):  # not a user's own encoder
            self.encoder._check_shape(shape)

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """The encoder's input, as [B, H, W, 3], to logits [B, classes].

        The logits are float32.
        """
        representations = self.encoder(images, training=False)  # [B, dim]
        return self.classifier(tf.stop_gradient(representations))
