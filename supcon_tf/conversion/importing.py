"""Import of a checkpoint of another project as a run directory."""

from __future__ import annotations

import numpy as np

from supcon_tf import config, exceptions, run_files
from supcon_tf.conversion import checkpoint_files, convolutions, foreign
from supcon_tf.keras_2 import keras
from supcon_tf.settings import shared_fields
from supcon_tf.training import stages

# Mean and deviation of the pixels that the networks of a format take.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_PIXELS = {
    "google_supcon": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "simclr_tf2": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "torchvision": _IMAGENET,
}
_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_CIFAR100 = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def import_weights(settings: config.ImportSettings) -> run_files.RunDirectory:
    """Makes a run directory, of no epochs, from a checkpoint.

    The encoder of the run answers as that of the checkpoint did; later tools
    take the run as any other, and read the data that `settings` name.

    Example:
      >>> from supcon_tf import config, conversion
      >>> settings = config.ImportSettings(
      ...     "runs/imported", format="simclr_tf2", dataset="digits",
      ...     checkpoint="simclr/model.ckpt",
      ... )
      >>> try:
      ...     conversion.import_weights(settings)
      ... except ValueError as error:  # there is no such file
      ...     print(str(error).partition(":")[0])
      `checkpoint` must be a checkpoint of TensorFlow, got simclr/model.ckpt

    Raises:
      ImportError: torch is needed and not installed.
      ValueError: the checkpoint cannot be read or is of something else, the
        directory is taken, or the data cannot be read.
    """
    run = run_files.RunDirectory(settings.run_dir)
    run.check_free(settings.overwrite, can_resume=False)
    arrays = checkpoint_files.read(settings.checkpoint, settings.format)
    weights = foreign.identify(arrays, settings.format, settings.drop)

    def load(_: config.PretrainSettings, model: keras.Model) -> None:
        assign(weights, model)

    return stages.pretrain(_pretraining(settings, weights), load)


def _pretraining(
    settings: config.ImportSettings, weights: foreign.ForeignWeights
) -> config.PretrainSettings:
    """The settings of stage 1, of no epochs, whose model has such weights.

    Raises:
      ValueError: the mean and the deviation of the pixels are not known.
    """
    mean, std = _mean_and_std(settings, weights.stem)
    is_torch = settings.format in checkpoint_files.TORCH_FORMATS
    pads_both_sides = is_torch and weights.stem == "imagenet"
    head = {}
    if weights.head:
        dims = [weights.arrays[kernel].shape[-1] for kernel, _ in weights.head]
        head = {
            "hidden_dims": tuple(dims[:-1]),
            "projection_dim": dims[-1],
            "projection_batch_norm": False,
            "projection_bias": bool(weights.head[-1][1]),
        }
    return config.PretrainSettings(
        **shared_fields(settings, config.DataSettings),
        overwrite=settings.overwrite,
        epochs=0,
        objective="supcon" if weights.head or not weights.classifier else "ce",
        online_classifier=bool(weights.head and weights.classifier),
        architecture=weights.architecture,
        stem=weights.stem,
        width=weights.width,
        stem_padding="symmetric" if pads_both_sides else "same",
        image_mean=mean,
        image_std=std,
        # Heads and classifiers of the other formats take what was pooled.
        normalize_representation=settings.format == "google_supcon",
        **head,
    )


def _mean_and_std(
    settings: config.ImportSettings, stem: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the mean and the deviation of the pixels of the checkpoint.

    Raises:
      ValueError: the checkpoint is of other images, whose mean nobody knows.
    """
    mean, std = settings.image_mean, settings.image_std
    if mean and std:
        return mean, std
    usual = _PIXELS.get(settings.format)
    if usual is None:  # SupContrast
        data_set = checkpoint_files.data_set(settings.checkpoint)
        exceptions.require(
            data_set != "path",
            "`image_mean` and `image_std` must be given for a checkpoint of "
            "SupContrast that was trained on a folder",
            f"none for {settings.checkpoint} of --dataset=path",
        )
        usual = _IMAGENET if stem == "imagenet" else _CIFAR10
        if data_set == "cifar100":
            usual = _CIFAR100
    return mean or usual[0], std or usual[1]


def assign(checkpoint: foreign.ForeignWeights, model: keras.Model) -> None:
    """Assigns the weights of a checkpoint to a built model of stage 1.

    Raises:
      ValueError: a weight is missing or left over, its shape is not that of the
        model, or it is not finite.
    """
    layers = convolutions.by_position(model.encoder)
    different = layers.keys() ^ checkpoint.layer_names.keys()
    exceptions.require(
        not different,
        f"`checkpoint` must have the convolutions of {checkpoint.architecture}"
        ", by group, block and part",
        f"another set: {sorted(different)[:5]}",
    )
    pairs = []  # the name of an array, and its variable
    for position, layer in layers.items():
        variables = (*layer.conv.weights, *layer.bn.weights)
        pairs += zip(checkpoint.layer_names[position], variables, strict=True)
    head = getattr(model, "projection_head", None)
    if head is not None and checkpoint.head:
        dense = (*head.hidden, head.projection)
        for names, layer in zip(checkpoint.head, dense, strict=True):
            pairs += zip(filter(None, names), layer.weights, strict=True)
    if checkpoint.classifier:
        pairs += zip(
            checkpoint.classifier, model.classifier.weights, strict=True
        )
    for name, variable in pairs:
        array = checkpoint.arrays[name]
        if name in checkpoint.classifier[:1] and array.shape != variable.shape:
            raise exceptions.InvalidValue(
                f"`drop` must name the classifier {name} of {array.shape[-1]} "
                f"classes, as the data have {variable.shape[-1]}"
            )
        exceptions.require(
            array.shape == tuple(variable.shape),
            f"`checkpoint` must have {name} of shape {tuple(variable.shape)}",
            array.shape,
        )
        exceptions.require(
            np.isfinite(array).all(),
            "`checkpoint` must have finite numbers",
            f"others in {name}, as of a training that diverged",
        )
        variable.assign(array)
