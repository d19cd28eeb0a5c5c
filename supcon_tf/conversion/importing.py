"""From a checkpoint of another project to a run directory."""

from __future__ import annotations

import tensorflow as tf

from supcon_tf import config, run_files
from supcon_tf.conversion import foreign
from supcon_tf.training import stages

# Of the pixels that the formats' own input has, mean and deviation.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_PIXELS = {
    "google_supcon": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "simclr_tf2": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "torchvision": _IMAGENET,
}
_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def import_weights(settings: config.ImportSettings) -> run_files.RunDirectory:
    """Makes a run directory, of no epochs, from a checkpoint.

    Its encoder answers as that of the checkpoint did; later tools take it as
    any other. The data are those that they will read.

    Raises:
      ImportError: torch is needed and not installed.
      ValueError: the checkpoint cannot be read or is of something else, the
        directory is taken, or the data cannot be read.
    """
    run = run_files.RunDirectory(settings.run_dir)
    run.check_free(settings.overwrite)
    arrays = foreign.read(settings.checkpoint, settings.format)
    found = foreign.understand(arrays, settings.format, settings.drop)
    is_torch = settings.format in ("supcontrast", "torchvision")
    usual = _PIXELS.get(settings.format)
    if usual is None:
        usual = _IMAGENET if found.stem == "imagenet" else _CIFAR10
    objective = "supcon" if found.head or not found.classifier else "ce"
    head = {}
    if found.head:
        dims = [found.arrays[kernel].shape[-1] for kernel, _ in found.head]
        head = {
            "hidden_dims": tuple(dims[:-1]),
            "projection_dim": dims[-1],
            "projection_batch_norm": False,
            "projection_bias": bool(found.head[-1][1]),
        }
    made = config.PretrainSettings(
        settings.run_dir,
        dataset=settings.dataset,
        data_dir=settings.data_dir,
        image_size=settings.image_size,
        test_fraction=settings.test_fraction,
        split_seed=settings.split_seed,
        check_images=settings.check_images,
        skip_bad_images=settings.skip_bad_images,
        overwrite=settings.overwrite,
        epochs=0,
        objective=objective,
        online_classifier=bool(found.head and found.classifier),
        architecture=found.architecture,
        stem=found.stem,
        width=found.width,
        stem_padding="symmetric"
        if is_torch and found.stem == "imagenet"
        else "same",
        image_mean=settings.image_mean or usual[0],
        image_std=settings.image_std or usual[1],
        # The others' heads and classifiers take what was pooled.
        normalize_representation=settings.format == "google_supcon",
        **head,
    )

    def load(_: config.PretrainSettings, model: tf.keras.Model) -> None:
        foreign.assign(found, model)

    return stages.pretrain(made, load)
