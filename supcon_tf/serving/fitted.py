"""Encoder and classifier of a model that `fit` trained, for serving."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from supcon_tf import exceptions, keras_2, losses, models
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
    model = models.backbone.to_keras_2(model)
    keras_2.refuse_keras_3(encoder=model, classifier=classifier)
    if isinstance(classifier, models.LinearClassifier | models.ClassifierModel):
        classifier = parts(classifier, None)[1]
    if not hasattr(model, "classifier") or not hasattr(model, "encoder"):
        return model, classifier
    if classifier is None:
        classifier = model.classifier
        if getattr(model, "cosine", False):
            classifier = _scaled_classifier(model)
    return model.encoder, classifier


def _scaled_classifier(model: models.ClassifierModel) -> keras.layers.Layer:
    """The classifier whose logits are scale * cosine, without the margin."""
    scale = getattr(getattr(model, "loss", None), "scale", None)
    exceptions.require(
        scale is not None,
        "`encoder` of cosines must be compiled with losses.MaxMarginLoss, "
        "whose scale makes probabilities of them",
        getattr(model, "loss", None),
    )
    classifier = models.layers.classifier(model.num_classes, True, scale)
    classifier.build(model.classifier.kernel.shape[:1])
    classifier.set_weights(model.classifier.get_weights())
    return classifier


def has_several_labels(model: object) -> bool:
    """Whether a model, or a classifier, was trained on images of several."""
    kinds = losses.BinaryCrossEntropyLoss | keras.losses.BinaryCrossentropy
    is_compiled_so = isinstance(getattr(model, "loss", None), kinds)
    return is_compiled_so or getattr(model, "multi_label", False)


def image_size(model: keras.Model) -> int | None:
    """The side of the square images that a model was built for, or None."""
    shape = getattr(model, "_build_input_shape", None)
    shape = tf.TensorShape(shape)
    if shape.rank not in (4, 5):
        return None
    height, width = shape[-3:-1]
    return height if height == width else None
