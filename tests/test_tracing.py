"""AutoGraph rewrites the functions of users, and none of ours."""

import dataclasses
import inspect
import pathlib

import numpy as np
import tensorflow as tf

from supcon_tf import data, losses, models
from supcon_tf.keras_2 import keras

PIXELS = np.zeros([8, 8, 8, 3], np.uint8)


class Darkened(models.BackboneEncoder):
    """An encoder with an `if` on a tensor."""

    def call(self, images, training=None):
        if tf.reduce_max(images) > 200:
            images = images // 2
        return super().call(images, training=training)


class LossAboveZero(losses.SupConLoss):
    """A loss with a `while` on a tensor."""

    def call(self, y_true, y_pred):
        loss = super().call(y_true, y_pred)
        while tf.reduce_min(loss) < 0:
            loss = loss + 1
        return loss


def test_functions_of_users_may_branch_on_tensors():
    source = data.from_arrays(PIXELS, np.arange(8) % 2)
    callers = {}

    def read(record):
        image, label = source.read(record)
        if label == 1:
            image = image + tf.constant(5, tf.uint8)
        return image, label

    def policy(images, seeds):
        for frame in inspect.stack():
            callers[frame.function] = pathlib.Path(frame.filename).name
        if tf.reduce_max(images) > 4:
            images = images + tf.constant(2, tf.uint8)
        return images

    views = data.make_views(
        dataclasses.replace(source, read=read), 8, 2, policy, crop_area=None
    )
    batch, labels = next(iter(views))
    assert np.array_equal(batch[:, 0, 0, 0, 0], np.where(labels == 1, 7, 2))
    assert callers["augment"] == "pipeline.py"
    assert callers["tf__policy"].startswith("__autograph_generated")

    flatten = keras.Sequential([keras.layers.Flatten()])
    encoder = Darkened(flatten, preprocessing="torch")
    model = models.SupConModel(encoder, models.ProjectionHead(4, ()))
    model.compile("sgd", LossAboveZero())
    model.fit(views, steps_per_epoch=1, verbose=0)
