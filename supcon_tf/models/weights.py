"""Loading a file's weights into an encoder: all of them, or an error."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import shutil
import tempfile
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from supcon_tf import exceptions, keras_2
from supcon_tf.disk import files
from supcon_tf.keras_2 import keras
from supcon_tf.models import base, layers

_DEVIATION = (0.229, 0.224, 0.225)  # of ImageNet's pixels in 0..1
_WEIGHTS_ENTRY = "model.weights.h5"  # of a .keras archive


def load_weights(encoder: keras.Model, path: str | os.PathLike[str]) -> None:
    """Loads weights into a built encoder, or into its backbone.

    Args:
      encoder: an `Encoder` or a `BackboneEncoder`.
      path: a file .h5, .weights.h5 or .keras, or the directory of a SavedModel.
        It holds the encoder, its backbone, or a model with one of these as
        `encoder`, as the models of stage 1 and our exports.

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
      ValueError: the file cannot be read, does not have exactly the weights
        of the encoder, or has NaN or infinity.
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
        # Keras, h5py and zipfile raise errors of many kinds for a file of
        # another model.
        except Exception as error:
            reasons.append(exceptions.one_line(error))
        else:
            _check_finite(target, path)
            _apply_statistics(encoder)
            return
    raise exceptions.InvalidValue(
        f"`weights` must be a file of all weights of {targets[-1].name}, and "
        f"of no others, got {path}: {reasons[-1]}"
    )


def _check_finite(encoder: keras.Model, path: str) -> None:
    """Raises ValueError for weights of a training that ended in NaN."""
    names = [
        weight.name
        for weight in encoder.weights
        if weight.dtype.is_floating
        and not tf.reduce_all(tf.math.is_finite(weight))
    ]
    exceptions.require(
        not names,
        f"`weights` must be a file of finite numbers, as {path} is not",
        f"NaN or infinity in {exceptions.listed(names, 3)}",
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
    _apply_statistics(encoder)


def finalize(module: object) -> None:
    """Updates layers after variables were set in other ways than by Keras.

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


def _apply_statistics(encoder: keras.Model) -> None:
    """Corrects EfficientNet's variance for ImageNet, and calls `finalize`.

    Keras' weights for ImageNet hold the deviation where the variance belongs;
    with weights="imagenet" Keras adds a second division, by the root of the
    deviation, to its graph. The graph here has no such division, so the
    variance is set to the square of the deviation.
    """
    layer_classes = [type(layer) for layer in encoder.submodules]
    for layer in encoder.submodules:
        variance = getattr(layer, "adapt_variance", None)
        if (
            isinstance(layer, keras.layers.Normalization)
            and variance is not None
            and layer_classes.count(keras.layers.Rescaling) == 1
            and variance.shape == (3,)
            and np.allclose(variance, _DEVIATION, 1e-3)
        ):
            variance.assign(tf.square(variance))
    finalize(encoder)


def _load_keras(target: keras.Model, path: str) -> None:
    """Loads the part of a .keras archive that has the weights of a model.

    The archive's config is not read: Keras would make objects of any module
    that the config names, and so run the code of whoever wrote the file.
    """
    exceptions.require(
        zipfile.is_zipfile(path),
        "a .keras file must be an archive, as `save` writes it",
        "a directory" if tf.io.gfile.isdir(path) else "another file",
    )
    count, reasons = len(target.weights), []
    with tempfile.TemporaryDirectory() as scratch:
        archive_path = os.path.join(scratch, "whole.h5")
        group_path = os.path.join(scratch, "part.weights.h5")
        _extract(path, archive_path)
        with h5py.File(archive_path) as file:
            for group in _groups_of_size(file, count):
                try:
                    _check_arrays(group, target)
                    with h5py.File(group_path, "w") as group_file:
                        for name in group:
                            group.copy(name, group_file)
                    target.load_weights(group_path)
                    return
                except Exception as error:  # of the structure of another model
                    reasons.append(exceptions.one_line(error))
            saved_count = base.count_weights(file)
    reason = f"{count} weights are wanted, {saved_count} are there"
    raise exceptions.InvalidValue((reasons or [reason])[-1])


def _groups_of_size(file: h5py.File, count: int) -> list[h5py.Group]:
    """Returns the groups with `count` weights, of a model or its submodels.

    Outer groups come first, and then groups by name: so of the two encoders of
    a momentum model the one that trains is before its copy.
    """
    names: list[str] = []
    file.visit(names.append)
    counts = collections.Counter(
        str(group)
        for name in filter(base.is_weight, names)
        for group in pathlib.PurePosixPath("/", name).parents
    )
    paths = [
        path for path, num_weights in counts.items() if num_weights == count
    ]
    paths.sort(key=lambda path: (path.count("/"), path))
    return [file[path] for path in paths]


def _extract(path: str, file: str) -> None:
    """Writes the weights of a .keras archive to `file`."""
    with tf.io.gfile.GFile(path, "rb") as content:
        with zipfile.ZipFile(content) as archive:
            entry = archive.getinfo(_WEIGHTS_ENTRY)
            # `save` does not compress: a larger entry would fill the disk.
            exceptions.require(
                entry.file_size <= archive.start_dir,
                f"{_WEIGHTS_ENTRY} must be no larger than its archive",
                f"{entry.file_size} bytes of {archive.start_dir}",
            )
            with archive.open(entry) as source, open(file, "wb") as target:
                shutil.copyfileobj(source, target)


def _check_arrays(group: h5py.Group, target: keras.Model) -> None:
    """Raises ValueError for an array that cannot be a weight of the model.

    The shape of an array may promise more numbers than are in the file, or than
    fit in memory; or the array may be in another file.
    """
    largest = max(weight.shape.num_elements() for weight in target.weights)
    for array in check_whole(group):
        name = array.name.removeprefix(group.name).lstrip("/")
        # In a .h5 of a whole model, the optimizer's arrays are beside the
        # weights, under other names than in a .weights.h5.
        is_read = base.is_weight(name) or "/vars/" not in f"/{name}"
        exceptions.require(
            array.size <= largest
            or not is_read
            or name.startswith("optimizer_weights/"),
            f"an array must have at most {largest} numbers",
            f"{array.shape} of {name}",
        )


def check_whole(group: h5py.Group) -> list[h5py.Dataset]:
    """Checks that an HDF5 group holds its arrays itself; returns the arrays.

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
      ValueError: an array is a link, or in another file: the bytes of any file
        that this process may read would become weights.
    """
    arrays, visited, groups = [], set(), [group]
    while groups:
        parent = groups.pop()
        for name in parent:
            path = f"{parent.name}/{name}".lstrip("/")
            link = parent.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                target = getattr(link, "filename", link.path)
                _refuse_outside(path, target)
            item = parent[name]
            address = h5py.h5o.get_info(item.id).addr
            if address in visited:  # hard links may form a cycle
                continue
            visited.add(address)
            if isinstance(item, h5py.Group):
                groups.append(item)
            elif isinstance(item, h5py.Dataset):
                for filename, *_ in item.external or ():
                    _refuse_outside(path, filename)
                if item.is_virtual:
                    _refuse_outside(path, item.virtual_sources()[0][1])
                arrays.append(item)
    return arrays


def _refuse_outside(path: str, target: str) -> None:
    """Raises ValueError for an array `path` that lies in a file `target`."""
    raise exceptions.InvalidValue(
        f"an HDF5 file must hold its arrays itself, got {path} in {target}"
    )


def _load_h5(target: keras.Model, path: str) -> None:
    """Loads an HDF5 file, whose arrays are checked first."""
    with h5py.File(path) as file:
        saved_count = base.count_weights(file)
        _check_arrays(file, target)
        _check_order(file, target)
    if path.endswith(".weights.h5") and saved_count != len(target.weights):
        raise exceptions.InvalidValue(
            f"{len(target.weights)} weights are wanted, {saved_count} are there"
        )
    target.load_weights(path)


def _check_order(file: h5py.File, target: keras.Model) -> None:
    """Raises ValueError for a layer whose weights have another order.

    Keras writes a .h5 file by position: of a layer with layers inside, such as
    a model in a model, first the weights that train. Where some are frozen, the
    order is another, and weights of equal shape would change places.
    """
    root = file.get("model_weights", file)
    groups = [
        root[name]
        for name in _names(root, "layer_names")
        if _names(root[name], "weight_names")
    ]
    weighted = [layer for layer in target.layers if layer.weights]
    for group, layer in zip(groups, weighted, strict=False):
        saved = _without_counters(_names(group, "weight_names"))
        weights = layer.trainable_weights + layer.non_trainable_weights
        expected = _without_counters([weight.name for weight in weights])
        # Other names say nothing about the order.
        exceptions.require(
            saved == expected or sorted(saved) != sorted(expected),
            "a .h5 file must have the order of the model's weights: save it as "
            ".weights.h5, or with no layer frozen",
            f"another order in {layer.name}",
        )


def _names(group: h5py.Group, attribute: str) -> list[str]:
    """Returns names that Keras keeps in an attribute, or in several parts."""
    parts = [attribute] if attribute in group.attrs else []
    while f"{attribute}{len(parts)}" in group.attrs:
        parts.append(f"{attribute}{len(parts)}")
    return [
        name.decode() if isinstance(name, bytes) else str(name)
        for part in parts
        for name in group.attrs[part]
    ]


def _without_counters(names: list[str]) -> list[tuple[str, int, str]]:
    """Replaces the counters of Keras in names, as conv2d_7, by their ranks.

    A counter goes on with each layer that a process makes.
    """
    parts = []
    for name in names:
        layer, _, weight = name.rpartition("/")
        base_name, number = re.fullmatch(r"(.*?)(?:_(\d+))?", layer).groups()
        parts.append((base_name, int(number or 0), weight))
    counters = collections.defaultdict(set)
    for base_name, number, _ in parts:
        counters[base_name].add(number)
    return [
        (base_name, sorted(counters[base_name]).index(number), weight)
        for base_name, number, weight in parts
    ]


def _load_saved_model(target: keras.Model, path: str) -> None:
    """Loads the variables of a SavedModel; its graph is not read."""
    variables = os.path.join(files.literal(path), "variables", "variables")
    names = [name for name, _ in tf.train.list_variables(variables)]
    if any(name.startswith("_all_variables/") for name in names):
        raise exceptions.InvalidValue(
            "a SavedModel by `export` of Keras 3 does not name its weights; "
            'save_weights("its.weights.h5") of the network does'
        )
    export_weights = [name for name in names if name.startswith("weights/")]
    roots = {"root": target}
    if export_weights:  # our export: the encoder's, then the classifier's
        target_variables = layers.variables(target)
        count = len(target_variables)
        exceptions.require(
            len(export_weights) in (count, count + 1, count + 2),
            f"`weights` must be {count}, and of a classifier",
            len(export_weights),
        )
        roots = {"weights": target_variables}
    elif any(name.startswith("encoder/") for name in names):
        roots = {"encoder": target}
    checkpoint = tf.train.Checkpoint(**roots)
    checkpoint.read(variables).assert_existing_objects_matched()
