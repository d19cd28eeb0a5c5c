"""Models from configurations and files: every weight, or one error."""

import inspect
import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import exceptions, losses, models
from supcon_tf.keras_2 import keras

SUFFIXES = (".h5", ".weights.h5", ".keras", "")


def _encoder(architecture="vgg8"):
    return models.Encoder(architecture, width=0.125)


def _head(*hidden_dims):
    return models.ProjectionHead(8, hidden_dims)


def _dense():
    return keras.layers.Dense(3, dtype="float32", name="classifier")


UNBUILT = {
    "Encoder": lambda: models.Encoder(
        "resnet18", "cifar", 0.05, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), False,
        False, name="mine",
    ),
    "ProjectionHead": lambda: models.ProjectionHead(
        4, (6, 5), True, False, dtype="mixed_bfloat16"
    ),
    "SupConModel": lambda: models.SupConModel(
        models.Encoder("resnet18", width=0.05), _head(16), _dense(), 0.3, 2
    ),
    "MomentumSupConModel": lambda: models.MomentumSupConModel(
        _encoder(), _head(16), losses.ProjectionQueue(8, 8), 0.5,
        gradient_cache_chunks=2,
    ),
    "ClassifierModel": lambda: models.ClassifierModel(_encoder(), 3, True),
    "LinearClassifier": lambda: models.LinearClassifier(_encoder(), 3),
}  # fmt: skip
DIMS = {
    "Encoder": (16, 16, 3),
    "ProjectionHead": (8,),
    "LinearClassifier": (16, 16, 3),
}


def _built(model, *dims):
    model.build((None, *(dims or (16, 16, 3))))
    return model


def _save(model, path):
    """All of `model` to a .keras file, else its weights."""
    save = model.save if path.suffix == ".keras" else model.save_weights
    save(str(path))
    return str(path)


@pytest.mark.parametrize("name", UNBUILT)
def test_a_model_is_rebuilt_from_its_config_and_its_files(name, tmp_path):
    model, dims = UNBUILT[name](), DIMS.get(name, (2, 16, 16, 3))
    copy = type(model).from_config(model.get_config())
    assert copy.get_config() == model.get_config()
    arguments = inspect.signature(type(model)).parameters
    assert {*arguments} - {"kwargs"} <= {*model.get_config()}
    for instance in (model, copy):
        _built(instance, *dims)
    assert [w.name for w in copy.weights] == [w.name for w in model.weights]
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if "queue" not in weight.name:  # whose rows no .keras file has
            weight.assign(rng.normal(size=weight.shape))
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "c"))
    tf.train.Checkpoint(model=copy).read(path).assert_consumed()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    # As text, in which a shape is a list whether it was read or made.
    texts = [json.dumps(instance.get_config()) for instance in (loaded, model)]
    assert texts[0] == texts[1]
    again = _built(type(model).from_config(model.get_config()), *dims)
    again.load_weights(tmp_path / "model.keras")
    others = [copy, loaded, again]
    if name in ("Encoder", "ProjectionHead"):  # read, and then built
        others.append(type(model).from_config(model.get_config()))
        status = tf.train.Checkpoint(model=others[-1]).read(path)
        _built(others[-1], *dims)
        status.assert_consumed()
    for other in others:
        by_name = {read.name: read for read in other.weights}
        assert len(by_name) == len(model.weights)
        for weight in model.weights:
            read = by_name[weight.name]
            np.testing.assert_array_equal(weight, read, err_msg=weight.name)


@pytest.fixture(scope="module")
def encoder_files(tmp_path_factory):
    """Files of an encoder by their suffix."""
    encoder, root = _built(_encoder()), tmp_path_factory.mktemp("encoder")
    return {suffix: _save(encoder, root / f"w{suffix}") for suffix in SUFFIXES}


@pytest.mark.parametrize("name", UNBUILT)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_before_build_there_is_nothing_to_load_into(
    name, suffix, encoder_files
):
    message = rf"`{name}` must be built before .*: call it once, or build it"
    with pytest.raises(exceptions.InvalidValue, match=message):
        UNBUILT[name]().load_weights(encoder_files[suffix])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_architecture_is_refused(suffix, encoder_files):
    encoder = _built(_encoder("resnet18"))
    with pytest.raises(ValueError) as caught:
        encoder.load_weights(encoder_files[suffix])
    if suffix != ".h5":  # Keras' own error
        assert isinstance(caught.value, exceptions.InvalidValue)
        assert "weights of `Encoder`" in str(caught.value)
    if not suffix:
        assert "100 such as encoder/resnet18/stem/conv" in str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("saved", "loaded"), [(2, 1), (1, 2), (0, 1)])
def test_a_deeper_or_flatter_head_is_refused(suffix, saved, loaded, tmp_path):
    # Each layer of the one fits the layer of its name in the other.
    file = _save(_built(_head(*[8] * saved), 8), tmp_path / f"w{suffix}")
    head = _built(_head(*[8] * loaded), 8)
    if not suffix and saved > loaded:
        head.load_weights(file)  # TensorFlow logs what is left over.
        return
    with pytest.raises(ValueError):
        head.load_weights(file)


def _with_classifier(compiled):
    model = models.SupConModel(_built(_encoder()), _head(16), _dense())
    if compiled:
        metrics = [losses.ContrastiveAccuracy()]
        model.compile(
            "adam", losses.SupConLoss(), metrics=metrics, run_eagerly=True
        )
    return _built(model, 2, 16, 16, 3)


@pytest.fixture(scope="module")
def trained():
    """A model with all that a compiled one has: metrics, optimizer's slots."""
    model = _with_classifier(compiled=True)
    views = np.zeros([2, 2, 16, 16, 3], np.uint8)
    model.fit(views, np.array([0, 1]), verbose=0)
    return model


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("compiled", ["saved", "loaded"])
def test_what_compile_adds_does_not_matter(suffix, compiled, trained, tmp_path):
    plain = _with_classifier(compiled=False)
    saved = trained if compiled == "saved" else plain
    loaded = _with_classifier(compiled=True) if saved is plain else plain
    loaded.load_weights(_save(saved, tmp_path / f"w{suffix}"))
    for old, new in zip(saved.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_saved_model_is_a_file_of_weights_too(tmp_path):
    encoder = _encoder()
    encoder(np.zeros([1, 16, 16, 3], np.uint8))
    encoder.save(tmp_path / "saved", save_format="tf")
    copy = _built(_encoder())
    copy.load_weights(tmp_path / "saved")
    for old, new in zip(encoder.weights, copy.weights, strict=True):
        np.testing.assert_array_equal(old, new)
