"""The SavedModels of the serving benchmark: ours, and a plain one of Keras.

  python -m supcon_tf.benchmarks.serving_models '{"folder": "...", ...}'

Started once by `benchmarks.serving` through `benchmarks.processes`. Weights
are random: they cost as much as trained ones.
"""

from __future__ import annotations

import dataclasses
import pathlib

from supcon_tf.benchmarks import libraries, processes

ARCHITECTURE = "resnet50"
IMAGE_SIZE = 224
CLASSES = 1000
# Of the logits: with less, all probabilities are alike and none tells whether
# two images were the same.
_LOGIT_SCALE = 5.0


@dataclasses.dataclass(frozen=True)
class Served:
    """Where an implementation is and what it is asked with.

    Attributes:
      model: name of its SavedModel in the folder of the benchmark.
      signature: of that SavedModel.
      input: "files": JPEG bytes; "views": [N, size, size, 3] uint8;
        "normalised": those as float32 in -1..1.
    """

    model: str
    signature: str
    input: str


SERVED = {
    "ours_bytes": Served("ours", "serving_default", "files"),
    "ours_images": Served("ours", "predict_images", "views"),
    "keras_resnet50": Served("keras", "serving_default", "normalised"),
}


def make(job: processes.Point) -> processes.Point:
    """Writes the SavedModels that these implementations are measured with.

    Args:
      job: `folder`; `implementations`; `seed` of the weights; `threads`.

    Returns:
      `models`, their names in the folder.
    """
    tf = libraries.import_tensorflow(job["threads"])
    tf.keras.utils.set_random_seed(job["seed"])
    makers = {"ours": make_ours, "keras": make_keras}
    names = {SERVED[name].model for name in job["implementations"]}
    for name in sorted(names):
        makers[name](pathlib.Path(job["folder"]) / name)
    return {"models": sorted(names)}


def make_ours(directory: pathlib.Path) -> None:
    """Writes our export of an encoder and a linear classifier."""
    import tensorflow as tf

    from supcon_tf import models, serving

    encoder = models.Encoder(ARCHITECTURE)
    encoder.build((None, IMAGE_SIZE, IMAGE_SIZE, 3))
    classifier = tf.keras.layers.Dense(
        CLASSES,
        kernel_initializer=tf.random_normal_initializer(0, _LOGIT_SCALE),
    )
    classifier.build((None, encoder.representation_dim))
    serving.export_saved_model(
        encoder,
        directory,
        image_size=IMAGE_SIZE,
        class_names=[f"class {number}" for number in range(CLASSES)],
        classifier=classifier,
    )


def make_keras(directory: pathlib.Path) -> None:
    """Writes Keras' ResNet-50, which takes views that are normalised."""
    import tensorflow as tf

    network = tf.keras.applications.ResNet50(weights=None, classes=CLASSES)
    tf.saved_model.save(network, str(directory))


if __name__ == "__main__":
    processes.answer(make)
