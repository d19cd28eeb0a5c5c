"""Weights of a file into an encoder, all of them or an error."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import tempfile
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, files, keras_2
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers

_DEVIATION = (0.229, 0.224, 0.225)  # of ImageNet's pixels in 0..1
_WEIGHTS_ENTRY = "model.weights.h5"  # of a .keras archive


def load_weights(encoder: keras.Model, path: str | os.PathLike[str]) -> None:
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
      TypeError: the encoder is of Keras 3.
      FileNotFoundError: there is no such file.
    """
    keras_2.refuse_keras_3(encoder=encoder)
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


def set_weights(encoder: keras.Model, values: list[np.ndarray]) -> None:
    """Sets the weights of a `BackboneEncoder`, in the order of its backbone.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import models
      >>> from supcon_tf.keras_2 import keras
      >>> dense = keras.layers.Dense(2, use_bias=False)
      >>> encoder = models.as_encoder(keras.Sequential([dense]))
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
      >>> from supcon_tf.keras_2 import keras
      >>> norm = keras.layers.Normalization()
      >>> model = keras.Sequential([norm])
      >>> model.build((None, 1))
      >>> _ = norm.adapt_mean.assign([5.0])
      >>> models.finalize(model)
      >>> model(tf.constant([[7.0]])).numpy().tolist()
      [[2.0]]
    """
    if not isinstance(module, tf.Module):
        return
    for layer in layers.parts(module):
        if isinstance(layer, layers.kinds("Normalization")) and layer.built:
            layer.finalize_state()


def _complete(encoder: keras.Model) -> None:
    """Makes ImageNet's weights of EfficientNet right, and all values count.

    With weights="imagenet" Keras adds a second division by the root of the
    deviation to its graph, as the weights have the deviation for a variance.
    A graph without it, one for all weights, has the variance here.
    """
    kinds = [type(layer) for layer in encoder.submodules]
    for layer in encoder.submodules:
        variance = getattr(layer, "adapt_variance", None)
        if (
            isinstance(layer, keras.layers.Normalization)
            and variance is not None
            and kinds.count(keras.layers.Rescaling) == 1
            and variance.shape == (3,)
            and np.allclose(variance, _DEVIATION, 1e-3)
        ):
            variance.assign(tf.square(variance))
    finalize(encoder)


def _load_keras(target: keras.Model, path: str) -> None:
    """Loads the part of a .keras archive that has the weights of a model.

    The archive's config, of which Keras makes objects of any module that it
    names, is not read: it would run the code of whoever wrote the file.
    """
    exceptions.require(
        zipfile.is_zipfile(path),
        "a .keras file must be an archive, as `save` writes it",
        "a directory" if tf.io.gfile.isdir(path) else "another file",
    )
    count, reasons = len(target.weights), []
    with tempfile.TemporaryDirectory() as scratch:
        whole = os.path.join(scratch, "whole.h5")
        copy = os.path.join(scratch, "part.weights.h5")
        _extract(path, whole)
        with h5py.File(whole) as file:
            for part in _parts(file, count):
                try:
                    _check_arrays(part, target)
                    with h5py.File(copy, "w") as copied:
                        for name in part:
                            part.copy(name, copied)
                    target.load_weights(copy)
                    return
                except Exception as error:  # of the structure of another model
                    reasons.append(exceptions.one_line(error))
            there = base.count_weights(file)
    reason = f"{count} weights are wanted, {there} are there"
    raise exceptions.InvalidValue((reasons or [reason])[-1])


def _parts(file: h5py.File, count: int) -> list[h5py.Group]:
    """The groups of so many weights: of the model, or of a model inside of it.

    The outer ones first, and of the two encoders of a momentum model the one
    that trains.
    """
    names: list[str] = []
    file.visit(names.append)
    counts = collections.Counter(
        str(group)
        for name in filter(base.is_weight, names)
        for group in pathlib.PurePosixPath("/", name).parents
    )
    parts = [group for group, held in counts.items() if held == count]
    return [file[x] for x in sorted(parts, key=lambda x: (x.count("/"), x))]


def _extract(path: str, file: str) -> None:
    """Writes the weights of a .keras archive to a file of their own."""
    with tf.io.gfile.GFile(path, "rb") as content:
        with zipfile.ZipFile(content) as archive:
            entry = archive.getinfo(_WEIGHTS_ENTRY)
            # `save` does not compress: a larger one would only fill the disk.
            exceptions.require(
                entry.file_size <= archive.start_dir,
                f"{_WEIGHTS_ENTRY} must be no larger than its archive",
                f"{entry.file_size} bytes of {archive.start_dir}",
            )
            with archive.open(entry) as source, open(file, "wb") as target:
                shutil.copyfileobj(source, target)


def _check_arrays(group: h5py.Group, target: keras.Model) -> None:
    """Raises ValueError for an array that is none of the model's.

    Its shape may promise more numbers than there are in the file, or than
    there is memory for; or it may be in another file.
    """
    largest = max(weight.shape.num_elements() for weight in target.weights)
    for array in check_whole(group):
        name = array.name.removeprefix(group.name).lstrip("/")
        # A whole model in a .h5 has its optimizer beside its weights, which
        # have other names there than in a .weights.h5.
        is_read = base.is_weight(name) or "/vars/" not in f"/{name}"
        exceptions.require(
            array.size <= largest
            or not is_read
            or name.startswith("optimizer_weights/"),
            f"an array must have at most {largest} numbers",
            f"{array.shape} of {name}",
        )


def check_whole(group: h5py.Group) -> list[h5py.Dataset]:
    """The arrays below a group of an HDF5 file, which has all of them itself.

    Example:
      >>> import h5py
      >>> from supcon_tf.models import weights
      >>> with h5py.File("theirs.h5", "w") as file:
      ...     file["kernel"] = h5py.ExternalLink("/home/me/mine.h5", "kernel")
      ...     try:
      ...         weights.check_whole(file)
      ...     except ValueError as error:
      ...         print(error)
      an HDF5 file must hold its arrays itself, got kernel in /home/me/mine.h5

    Raises:
      ValueError: one is a link, or in another file: any that this process may
        read, whose bytes would become weights.
    """
    arrays, seen, left = [], set(), [group]
    while left:
        parent = left.pop()
        for name in parent:
            place = f"{parent.name}/{name}".lstrip("/")
            link = parent.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                elsewhere = getattr(link, "filename", link.path)
                _refuse_elsewhere(place, elsewhere)
            item = parent[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:  # links may go round
                continue
            seen.add(address)
            if isinstance(item, h5py.Group):
                left.append(item)
            elif isinstance(item, h5py.Dataset):
                for elsewhere, *_ in item.external or ():
                    _refuse_elsewhere(place, elsewhere)
                if item.is_virtual:
                    _refuse_elsewhere(place, item.virtual_sources()[0][1])
                arrays.append(item)
    return arrays


def _refuse_elsewhere(place: str, elsewhere: str) -> None:
    raise exceptions.InvalidValue(
        f"an HDF5 file must hold its arrays itself, got {place} in {elsewhere}"
    )


def _load_h5(target: keras.Model, path: str) -> None:
    with h5py.File(path) as file:
        saved = base.count_weights(file)
        _check_arrays(file, target)
    if path.endswith(".weights.h5") and saved != len(target.weights):
        raise exceptions.InvalidValue(
            f"{len(target.weights)} weights are wanted, {saved} are there"
        )
    target.load_weights(path)


def _load_saved_model(target: keras.Model, path: str) -> None:
    variables = os.path.join(files.literal(path), "variables", "variables")
    names = [name for name, _ in tf.train.list_variables(variables)]
    if any(name.startswith("_all_variables/") for name in names):
        raise exceptions.InvalidValue(
            "a SavedModel by `export` of Keras 3 does not name its weights; "
            'save_weights("its.weights.h5") of the network does'
        )
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
