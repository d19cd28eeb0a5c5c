"""Weights of a file into an encoder, all of them or an error."""

from __future__ import annotations

import os

import h5py
import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, files
from supcon_tf.models import base

_DEVIATION = (0.229, 0.224, 0.225)  # of ImageNet's pixels in 0..1


def load_weights(encoder: tf.keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads weights into a built encoder, or into its backbone.

    Args:
      encoder: an `Encoder` or a `BackboneEncoder`.
      path: a file .h5, .weights.h5 or .keras, or the directory of a SavedModel;
        of the encoder, of its backbone, or of a model that has one of them as
        `encoder`, as the models of stage 1 and our exports have.

    Example:
      >>> import numpy as np
      >>> import supcon_tf
      >>> from supcon_tf import models
      >>> trained, new = (supcon_tf.Encoder("vgg8", width=0.25) for _ in "12")
      >>> trained.build((None, 32, 32, 3))
      >>> trained.save_weights("trained.weights.h5")
      >>> new.build((None, 32, 32, 3))
      >>> models.load_weights(new, "trained.weights.h5")
      >>> np.array_equal(new.get_weights()[0], trained.get_weights()[0])
      True

    Raises:
      ValueError: it cannot be read, or does not have exactly the weights of
        the encoder.
      FileNotFoundError: there is no such file.
    """
    path = files.expanded(path, "weights")
    if not tf.io.gfile.exists(path):
        raise exceptions.NotFound(f"`weights` must exist, got {path}")
    if path.endswith(".keras"):
        load = _load_keras
    elif path.endswith((".h5", ".hdf5")):
        load = _load_h5
    else:
        exceptions.require(
            tf.saved_model.contains_saved_model(path),
            "`weights` must be imagenet, a file .h5, .weights.h5 or .keras, or "
            "the directory of a SavedModel",
            path,
        )
        load = _load_saved_model
    targets = [encoder]
    if hasattr(encoder, "backbone"):
        targets.append(encoder.backbone)
    reasons = []
    for target in targets:
        try:
            load(target, path)
        # What Keras, h5py and zipfile raise for a file that is another's.
        except Exception as error:
            reasons.append(exceptions.one_line(error))
        else:
            _complete(encoder)
            return
    raise exceptions.InvalidValue(
        f"`weights` must be a file of all weights of {targets[-1].name}, and "
        f"of no others, got {path}: {reasons[-1]}"
    )


def set_weights(encoder: tf.keras.Model, values: list[np.ndarray]) -> None:
    """Sets the weights of a `BackboneEncoder`, in the order of its backbone.

    Example:
      >>> import numpy as np
      >>> import tensorflow as tf
      >>> from supcon_tf import models
      >>> dense = tf.keras.layers.Dense(2, use_bias=False)
      >>> encoder = models.as_encoder(tf.keras.Sequential([dense]))
      >>> encoder.build((None, 8, 8, 3))
      >>> models.set_weights(encoder, [np.ones([3, 2])])
      >>> dense.kernel.numpy().tolist()
      [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    encoder.backbone.set_weights(values)
    _complete(encoder)


def finalize(module: object) -> None:
    """Makes new values of variables count, after any other way to set them.

    Keras' Normalization computes with a copy of its statistics.

    Example:
      >>> import tensorflow as tf
      >>> from supcon_tf import models
      >>> norm = tf.keras.layers.Normalization()
      >>> model = tf.keras.Sequential([norm])
      >>> model.build((None, 1))
      >>> _ = norm.adapt_mean.assign([5.0])
      >>> models.finalize(model)
      >>> model(tf.constant([[7.0]])).numpy().tolist()
      [[2.0]]
    """
    for layer in getattr(module, "submodules", ()):
        if isinstance(layer, tf.keras.layers.Normalization) and layer.built:
            layer.finalize_state()


def _complete(encoder: tf.keras.Model) -> None:
    """Makes ImageNet's weights of EfficientNet right, and all values count.

    With weights="imagenet" Keras adds a second division by the root of the
    deviation to its graph, as the weights have the deviation for a variance.
    A graph without it, one for all weights, has the variance here.
    """
    kinds = [type(layer) for layer in encoder.submodules]
    for layer in encoder.submodules:
        variance = getattr(layer, "adapt_variance", None)
        if (
            isinstance(layer, tf.keras.layers.Normalization)
            and variance is not None
            and kinds.count(tf.keras.layers.Rescaling) == 1
            and variance.shape == (3,)
            and np.allclose(variance, _DEVIATION, 1e-3)
        ):
            variance.assign(tf.square(variance))
    finalize(encoder)


def _load_keras(target: tf.keras.Model, path: str) -> None:
    loaded = tf.keras.models.load_model(path, compile=False)
    sources = [loaded, getattr(loaded, "encoder", loaded)]
    sources += [x.backbone for x in sources if hasattr(x, "backbone")]
    wanted = _signature(target)
    for source in sources:
        if _signature(source) == wanted:
            target.set_weights(source.get_weights())
            return
    counts = ", ".join(str(len(source.weights)) for source in sources)
    raise exceptions.InvalidValue(
        f"{len(wanted)} tensors in the shapes of the architecture are wanted, "
        f"and {loaded.name} has {counts}"
    )


def _signature(model: tf.keras.Model) -> list[tuple[str, tuple[int, ...]]]:
    """What each weight is in its layer, and its shape."""
    return [(w.name.rpartition("/")[2], tuple(w.shape)) for w in model.weights]


def _load_h5(target: tf.keras.Model, path: str) -> None:
    with h5py.File(path) as file:
        saved = base.count_weights(file)
    if path.endswith(".weights.h5") and saved != len(target.weights):
        raise exceptions.InvalidValue(
            f"{len(target.weights)} weights are wanted, {saved} are there"
        )
    target.load_weights(path)


def _load_saved_model(target: tf.keras.Model, path: str) -> None:
    variables = os.path.join(files.literal(path), "variables", "variables")
    names = [name for name, _ in tf.train.list_variables(variables)]
    own = [name for name in names if name.startswith("weights/")]
    parts = {"root": target}
    if own:  # an export of ours: the encoder's, then those of its classifier
        count = len(target.variables)
        exceptions.require(
            len(own) in (count, count + 1, count + 2),
            f"`weights` must be {count}, and of a classifier",
            len(own),
        )
        parts = {"weights": list(target.variables)}
    elif any(name.startswith("encoder/") for name in names):
        parts = {"encoder": target}
    checkpoint = tf.train.Checkpoint(**parts)
    checkpoint.read(variables).assert_existing_objects_matched()
