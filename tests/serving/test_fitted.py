"""Exports of models that `fit` trained: each answers as the model itself."""

import json
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
    network = models.Encoder("vgg8", width=0.1)
    network.build((None, SIDE, SIDE, 3))
    return network


def fitted(model, loss, images=PICTURES[:, None]):
    """The model after an epoch."""
    model.compile(keras.optimizers.SGD(1.0), loss, run_eagerly=True)
    model.fit(images, LABELS, verbose=0)
    return model


def linear_classifier():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return fitted(models.LinearClassifier(encoder(), 3), loss, PICTURES)


def classifier_model():
    model = models.ClassifierModel(encoder(), 3)
    return fitted(model, losses.CrossEntropyLoss())


def cosine_model():
    model = models.ClassifierModel(encoder(), 3, cosine=True)
    return fitted(model, losses.MaxMarginLoss())


def joint_model():
    dense = models.layers.classifier(3)
    model = models.SupConModel(encoder(), models.ProjectionHead(8), dense, 0.5)
    return fitted(model, losses.SupConLoss())


@pytest.mark.slow(but=["cosine_model"])
@pytest.mark.parametrize(
    "make", [linear_classifier, classifier_model, cosine_model, joint_model]
)
def test_an_export_answers_as_the_model(make, tmp_path):
    """The size of the images is the one that the model was built for."""
    model, path = make(), str(tmp_path / "1")
    serving.export_saved_model(model, path, class_names=NAMES)
    signatures = tf.saved_model.load(path).signatures
    answer = signatures["predict_images"](images=tf.constant(PICTURES))
    scale = model.loss.scale if make is cosine_model else 1
    representations = model.encoder(PICTURES)
    np.testing.assert_allclose(
        answer["probabilities"],
        tf.nn.softmax(scale * model.classifier(representations)),
        atol=1e-5,
    )
    answer = signatures["represent_images"](images=tf.constant(PICTURES))
    np.testing.assert_allclose(
        answer["representation"], representations, atol=1e-5
    )


def test_a_whole_classifier_beside_its_encoder():
    model = linear_classifier()
    parts = serving.fitted.parts(model.encoder, model)
    assert parts == (model.encoder, model.classifier)


def test_an_encoder_alone_represents(tmp_path, monkeypatch, capsys):
    """Also without the extra `serving`, which writes requests."""
    name = "tensorflow_serving.apis.prediction_log_pb2"
    monkeypatch.setitem(sys.modules, name, None)
    model = models.SupConModel(encoder(), models.ProjectionHead(8))
    model.build((None, 2, SIDE, SIDE, 3))
    serving.export_saved_model(model, tmp_path / "1")
    assert set(tf.saved_model.load(str(tmp_path / "1")).signatures) == {
        f"represent{suffix}" for suffix in ("", "_images", "_images_float")
    }
    assert not (tmp_path / "1" / "assets" / "class_names.txt").exists()
    (request,) = (tmp_path / "1" / "assets.extra").iterdir()
    assert json.loads(request.read_text())["signature_name"] == "represent"
    printed = capsys.readouterr().out
    assert "no requests for TF Serving: this must have" in printed


@pytest.mark.slow
def test_the_room_is_imported_without_the_extra():
    program = (
        "import sys; sys.modules['tensorflow_serving'] = None; "
        "import supcon_tf.serving"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_arguments_that_do_not_fit_are_named(tmp_path):
    path = str(tmp_path / "1")
    model = models.LinearClassifier(encoder(), 3)
    model.build((None, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="`class_names` must be 3 names"):
        serving.export_saved_model(model, path)
    cosines = models.ClassifierModel(encoder(), 3, cosine=True)
    cosines.build((None, 1, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="compiled with losses.MaxMarginLoss"):
        serving.export_saved_model(cosines, path, class_names=NAMES)
    unbuilt = models.Encoder("vgg8", width=0.1)  # of no size
    for options in ({}, {"image_size": -3}):
        with pytest.raises(ValueError, match="`image_size` must be a positive"):
            serving.export_saved_model(unbuilt, path, **options)


def test_logits_are_never_taken_for_representations():
    model = models.LinearClassifier(encoder(), 3)
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


def test_the_command_for_an_extra_keeps_the_installed_tensorflow():
    with pytest.raises(ImportError) as error:
        exceptions.import_extra("serving", "no_such_module")
    requirement = f"'supcon_tf[serving]' tensorflow=={tf.__version__}"
    assert f"pip install {requirement}, got: " in str(error.value)


def test_a_classifier_of_several_labels_needs_a_threshold(tmp_path):
    joint = models.SupConModel(
        encoder(),
        models.ProjectionHead(8),
        models.layers.classifier(3),
        0.5,
        multi_label=True,
    )
    model, path = models.LinearClassifier(encoder(), 3), tmp_path / "1"
    model.compile(loss=losses.BinaryCrossEntropyLoss())
    options = {"class_names": NAMES, "image_size": SIDE}
    for refused in (joint, model):
        refused.build((None, 1, SIDE, SIDE, 3))
        with pytest.raises(ValueError, match="`threshold` must be a probabil"):
            serving.export_saved_model(refused, path, **options)
    assert not path.exists()
    serving.export_saved_model(model, path, threshold=0.5, **options)
    signatures = tf.saved_model.load(str(path)).signatures
    answer = signatures["predict_images"](images=tf.constant(PICTURES))
    representations = model.encoder(PICTURES)
    np.testing.assert_allclose(
        answer["probabilities"],
        tf.sigmoid(model.classifier(representations)),
        atol=1e-5,
    )
