"""What is served of a model that `fit` made."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import exceptions, keras_2, models
from supcon_tf.keras_2 import keras

Classifier = Callable[[tf.Tensor], tf.Tensor]


def parts(
    model: keras.Model, classifier: Classifier | None
) -> tuple[keras.Model, Classifier | None]:
    """The encoder, and the classifier on it: the one given, or the model's own.

    Raises:
      ValueError: cosines are to become probabilities, and the model has not
        the loss that says at which scale.
      TypeError: the classifier is of Keras 3.
    """
    model = models.backbone.of_keras_2(model)
    keras_2.refuse_keras_3(encoder=model, classifier=classifier)
    if isinstance(classifier, models.LinearClassifier | models.ClassifierModel):
        classifier = parts(classifier, None)[1]
    if not hasattr(model, "classifier") or not hasattr(model, "encoder"):
        return model, classifier
    if classifier is None:
        classifier = model.classifier
        if getattr(model, "cosine", False):
            classifier = _scaled(model)
    return model.encoder, classifier


def _scaled(model: models.ClassifierModel) -> keras.layers.Layer:
    """The classifier of cosines as its loss takes it, without the margin."""
    scale = getattr(getattr(model, "loss", None), "scale", None)
    exceptions.require(
        scale is not None,
        "`encoder` of cosines must be compiled with losses.MaxMarginLoss, "
        "whose scale makes probabilities of them",
        getattr(model, "loss", None),
    )
    scaled = models.layers.classifier(model.num_classes, True, scale)
    scaled.build(model.classifier.kernel.shape[:1])
    scaled.set_weights(model.classifier.get_weights())
    return scaled


def image_size(model: keras.Model) -> int | None:
    """The side of the images that a model was built for, if it is one."""
    shape = getattr(model, "_build_input_shape", None)
    shape = tf.TensorShape(shape)
    if shape.rank not in (4, 5):
        return None
    height, width = shape[-3:-1]
    return height if height == width else None
