"""Exports of what `fit` made: each answers as the model itself does."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, exceptions, losses, models, serving, training
from supcon_tf.keras_2 import keras

SIDE, NAMES = 16, ("ant", "bee", "cat")
PICTURES = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 3), "u1")
LABELS = np.arange(6) % 3


def encoder():
    return models.Encoder("vgg8", width=0.1)


def linear_classifier():
    model = models.LinearClassifier(encoder(), 3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(2.0), loss)
    model.fit(PICTURES, LABELS, verbose=0)
    return model, lambda images: tf.nn.softmax(model(images))


def classifier_model(cosine=False):
    model = models.ClassifierModel(encoder(), 3, cosine)
    loss = losses.MaxMarginLoss() if cosine else losses.CrossEntropyLoss()
    model.compile(keras.optimizers.SGD(0.1), loss)
    model.fit(PICTURES[:, None], LABELS, verbose=0)
    scale = loss.scale if cosine else 1
    return model, lambda images: tf.nn.softmax(scale * model(images[:, None]))[
        :, 0
    ]


def cosine_model():
    return classifier_model(cosine=True)


def joint_model():
    dense = models.layers.classifier(3)
    model = models.SupConModel(encoder(), models.ProjectionHead(8), dense, 0.5)
    model.compile(keras.optimizers.SGD(0.1), losses.SupConLoss())
    model.fit(PICTURES[:, None], LABELS, verbose=0)
    return model, lambda images: tf.nn.softmax(dense(model.encoder(images)))


@pytest.mark.slow(but=["joint_model"])
@pytest.mark.parametrize(
    "make", [linear_classifier, classifier_model, cosine_model, joint_model]
)
def test_an_export_answers_as_the_model(make, tmp_path):
    """The size of the images is the one that it was built for."""
    model, probabilities = make()
    path = str(tmp_path / "1")
    serving.export_saved_model(model, path, class_names=NAMES)
    signatures = tf.saved_model.load(path).signatures
    answer = signatures["predict_images"](images=tf.constant(PICTURES))
    np.testing.assert_allclose(
        answer["probabilities"], probabilities(PICTURES), atol=1e-5
    )
    encoded = signatures["represent_images"](images=tf.constant(PICTURES))
    np.testing.assert_allclose(
        encoded["representation"], model.encoder(PICTURES), atol=1e-5
    )


@pytest.mark.slow
def test_a_whole_classifier_beside_its_encoder(tmp_path):
    model, probabilities = linear_classifier()
    path = str(tmp_path / "1")
    serving.export_saved_model(
        model.encoder, path, classifier=model, class_names=NAMES
    )
    signatures = tf.saved_model.load(path).signatures
    answer = signatures["predict_images"](images=tf.constant(PICTURES))
    np.testing.assert_allclose(
        answer["probabilities"], probabilities(PICTURES), atol=1e-5
    )


def test_without_a_classifier_there_are_representations(tmp_path):
    model = models.SupConModel(encoder(), models.ProjectionHead(8))
    model.build((None, 2, SIDE, SIDE, 3))
    path = str(tmp_path / "1")
    serving.export_saved_model(model, path)
    assert set(tf.saved_model.load(path).signatures) == {
        f"represent{suffix}" for suffix in ("", "_images", "_images_float")
    }


def test_what_does_not_fit_is_named(tmp_path):
    model, _ = linear_classifier()
    path = str(tmp_path / "1")
    with pytest.raises(ValueError, match="`class_names` must be 3 names"):
        serving.export_saved_model(model, path)
    cosines = models.ClassifierModel(encoder(), 3, cosine=True)
    cosines.build((None, 1, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="compiled with losses.MaxMarginLoss"):
        serving.export_saved_model(cosines, path, class_names=NAMES)
    with pytest.raises(ValueError, match="`image_size` must be given"):
        serving.export_saved_model(encoder(), path)


def test_logits_are_never_taken_for_representations():
    model, _ = linear_classifier()
    source = data.from_arrays(PICTURES, LABELS)
    message = "`encoder` must make representations, got a LinearClassifier; its"
    for call in (
        lambda: models.LinearClassifier(model, 3),
        lambda: models.SupConModel(model, models.ProjectionHead()),
        lambda: training.represent(model, source),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(ValueError, match="got a ProjectionHead$"):
        models.as_encoder(models.ProjectionHead())


_WITHOUT_EXTRA = """
import sys
sys.modules["tensorflow_serving"] = None  # as where it is not installed
from supcon_tf import models, serving
encoder = models.Encoder("vgg8", width=0.1)
encoder.build((None, 16, 16, 3))
serving.export_saved_model(encoder, sys.argv[1])
"""


def test_without_the_extra_there_are_no_requests(tmp_path, monkeypatch, capsys):
    name = "tensorflow_serving.apis.prediction_log_pb2"
    monkeypatch.setitem(sys.modules, name, None)
    network = models.Encoder("vgg8", width=0.1)
    network.build((None, 16, 16, 3))
    serving.export_saved_model(network, tmp_path / "1")
    said = "no requests for TF Serving: this must have"
    assert said in capsys.readouterr().out
    extras = tmp_path / "1" / "assets.extra"
    assert [path.name for path in extras.iterdir()] == ["request.json"]


@pytest.mark.slow
def test_an_export_does_not_need_the_extra(tmp_path):
    # Not a fork: the import is tried too.
    process = subprocess.run(
        [sys.executable, "-c", _WITHOUT_EXTRA, str(tmp_path / "1")],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "no requests for TF Serving: this must have" in process.stdout
    extras = tmp_path / "1" / "assets.extra"
    assert [path.name for path in extras.iterdir()] == ["request.json"]


def test_the_command_for_an_extra_keeps_the_tensorflow_that_there_is():
    with pytest.raises(ImportError) as error:
        exceptions.import_extra("serving", "no_such_module")
    requirement = f"'supcon_tf[serving]' tensorflow=={tf.__version__}"
    assert f"pip install {requirement}, got: " in str(error.value)
