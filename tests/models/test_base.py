"""Models from configurations and files: every weight, or one error."""

import inspect
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import exceptions, keras_2, losses, models
from supcon_tf.keras_2 import keras
from supcon_tf.optimizers import lamb

SUFFIXES = (".h5", ".weights.h5", ".keras", "")


def _encoder(architecture="vgg8"):
    return models.Encoder(architecture, width=0.125)


def _head(*hidden_dims):
    return models.ProjectionHead(8, hidden_dims)


def _backbone():
    layers = keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization()
    return keras.Sequential([keras.Input((16, 16, 3)), *layers])


def _dense():
    return keras.layers.Dense(3, dtype="float32", name="classifier")


UNBUILT = {
    "Encoder": lambda: models.Encoder(
        "resnet18", "cifar", 0.05, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), False,
        False, name="mine",
    ),
    "BackboneEncoder": lambda: models.BackboneEncoder(
        _backbone(), "torch", normalize=False
    ),
    "ProjectionHead": lambda: models.ProjectionHead(
        4, (6, 5), True, False, dtype="mixed_bfloat16"
    ),
    "SupConModel": lambda: models.SupConModel(
        _encoder(), _head(16), _dense(), 0.3, 2
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
    "BackboneEncoder": (16, 16, 3),
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


def _assert_same_weights(model, copy):
    assert len(copy.weights) == len(model.weights)
    for weight, copied in zip(model.weights, copy.weights, strict=True):
        np.testing.assert_array_equal(weight, copied, err_msg=weight.name)


@pytest.mark.parametrize("name", UNBUILT)
def test_a_model_is_rebuilt_from_its_config_and_its_files(name, tmp_path):
    model, dims = UNBUILT[name](), DIMS.get(name, (2, 16, 16, 3))
    copy, reader, late = (
        type(model).from_config(model.get_config()) for _ in range(3)
    )
    assert copy.get_config() == model.get_config()
    arguments = inspect.signature(type(model)).parameters
    assert {*arguments} - {"kwargs"} <= {*model.get_config()}
    for instance in (model, copy, reader):
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
    reader.load_weights(tmp_path / "model.keras")
    copies = [copy, loaded, reader]
    if name in ("Encoder", "ProjectionHead"):  # read, and then built
        status = tf.train.Checkpoint(model=late).read(path)
        copies.append(_built(late, *dims))
        status.assert_consumed()
    expected = {weight.name: weight.numpy() for weight in model.weights}
    assert len(expected) == len(model.weights)
    for instance in copies:
        weights = {weight.name: weight.numpy() for weight in instance.weights}
        np.testing.assert_equal(weights, expected)


def test_a_file_without_the_state_of_the_optimizer_is_told(tmp_path):
    head = _built(models.ProjectionHead(4, ()), 2, 3)
    for optimizer, is_left_out in ((lamb.LAMB(), True), ("adam", False)):
        head.compile(optimizer)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            head.save(tmp_path / "head.keras")
        messages = [str(warning.message) for warning in caught]
        is_told = any("steps and moments of LAMB" in text for text in messages)
        assert is_told == is_left_out, messages


def test_before_build_there_is_nothing_to_load_into():
    for name, make in UNBUILT.items():
        message = rf"`{name}` must be built before .*: call it once, or build"
        with pytest.raises(exceptions.InvalidValue, match=message):
            make().load_weights("any.h5")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_architecture_is_refused(suffix, tmp_path):
    encoder = _built(models.as_encoder(keras.Sequential([_dense()])))
    path = _save(_built(_encoder()), tmp_path / f"w{suffix}")
    with pytest.raises(ValueError) as caught:
        encoder.load_weights(path)
    if suffix != ".h5":  # Keras' error
        assert isinstance(caught.value, exceptions.InvalidValue)
        assert "weights of `BackboneEncoder`" in str(caught.value)
    if not suffix:
        assert str(caught.value).endswith("without any")
        with pytest.raises(ValueError, match="100 such as encoder/resnet18/s"):
            _built(_encoder("resnet18")).load_weights(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_deeper_or_flatter_head_is_refused(suffix, tmp_path):
    # Each layer of one head fits the layer of its name in the other.
    for saved, loaded in ((2, 1), (1, 2), (0, 1)):
        path = tmp_path / f"w{saved}{suffix}"
        file = _save(_built(_head(*[8] * saved), 8), path)
        head = _built(_head(*[8] * loaded), 8)
        if not suffix and saved > loaded:
            head.load_weights(file)  # TensorFlow logs what is left over.
            continue
        with pytest.raises(ValueError):
            head.load_weights(file)


def _with_classifier(compiled):
    network = [keras.layers.Flatten(), keras.layers.Dense(4)]
    model = models.SupConModel(keras.Sequential(network), _head(16), _dense())
    if compiled:
        metrics = [losses.ContrastiveAccuracy()]
        model.compile(
            "adam", losses.SupConLoss(), metrics=metrics, run_eagerly=True
        )
    return _built(model, 2, 16, 16, 3)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_compile_adds_does_not_matter(suffix, tmp_path):
    """Metrics, and the optimizer with its slots: saved, or in the model."""
    trained = _with_classifier(compiled=True)
    views = np.zeros([2, 2, 16, 16, 3], np.uint8)
    trained.fit(views, np.array([0, 1]), verbose=0)
    plain = _with_classifier(compiled=False)
    plain.load_weights(_save(trained, tmp_path / f"trained{suffix}"))
    _assert_same_weights(trained, plain)
    compiled = _with_classifier(compiled=True)
    compiled.load_weights(_save(plain, tmp_path / f"plain{suffix}"))
    _assert_same_weights(plain, compiled)


def test_a_compiled_model_that_scales_its_loss_loads_weights(tmp_path):
    """A file has the state of an optimizer, which Keras leaves out aloud."""
    model = _built(models.ProjectionHead(4, (), dtype="mixed_float16"), 2, 3)
    model.compile("sgd", losses.SupConLoss())
    model.optimizer.build(model.trainable_variables)
    path = _save(model, tmp_path / "head.weights.h5")
    copy = _built(models.ProjectionHead(4, (), dtype="mixed_float16"), 2, 3)
    copy.compile("sgd", losses.SupConLoss())
    copy.load_weights(path)
    _assert_same_weights(model, copy)


def test_a_saved_model_is_a_file_of_weights_too(tmp_path):
    head = _head(4)
    head(np.zeros([1, 8], np.float32))
    head.save(tmp_path / "saved", save_format="tf")
    copy = _built(_head(4), 8)
    copy.load_weights(tmp_path / "saved")
    _assert_same_weights(head, copy)


@keras.utils.register_keras_serializable(package="test_base")
class OwnEncoder(models.SupConModel):
    """A user's model, which makes its encoder by itself."""

    def __init__(self, width, **options):
        super().__init__(
            models.Encoder("vgg8", width=width), _head(), **options
        )
        self.width = width


@keras.utils.register_keras_serializable(package="test_base")
class OwnParts(models.LinearClassifier):
    """The same without arguments of Keras."""

    def __init__(self, width):
        super().__init__(models.Encoder("vgg8", width=width), 3)
        self.width = width


@pytest.mark.parametrize(
    ("kind", "options"), [(OwnEncoder, {"name": "mine"}), (OwnParts, {})]
)
def test_a_subclass_may_make_its_parts(kind, options, tmp_path):
    """It is loaded with the arguments of its own constructor."""
    shape = (16, 16, 3) if kind is OwnParts else (2, 16, 16, 3)
    model = _built(kind(0.05, **options), *shape)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert (type(loaded), loaded.name) == (kind, model.name)
    _assert_same_weights(model, loaded)


def test_files_of_the_other_platform_are_read():
    """Keras writes its package, and 2.15 a function without its own."""

    def rename(config, old, new):
        return json.loads(json.dumps(config).replace(f'"{old}', f'"{new}'))

    images = keras.Input([4, 4, 3])
    backbone = keras.Model(images, keras.layers.Flatten()(images))
    model = models.ClassifierModel(models.as_encoder(backbone), 3)
    _built(model, 2, 4, 4, 3)
    model.compile("sgd", losses.CrossEntropyLoss(), ["accuracy"])
    config, compiled = model.get_config(), model.get_compile_config()
    (metric,) = compiled["metrics"]
    for package in ("keras", "tf_keras"):
        own = f"{keras_2.PACKAGE}.src."
        copy = type(model).from_config(rename(config, own, f"{package}.src."))
        assert copy.get_config() == config
        _built(copy, 2, 4, 4, 3)
        for name in ("accuracy", "supcon_tf>accuracy"):
            function = metric | {"config": name}
            copy.compile_from_config(compiled | {"metrics": [function]})
            assert copy.get_compile_config()["metrics"] == [metric]


def test_an_argument_that_is_no_attribute_is_named():
    class Forgetful(models.SupConModel):
        def __init__(self, width, **kwargs):
            super().__init__(_encoder(), _head(), **kwargs)

    with pytest.raises(ValueError, match="as the attribute `width`.*, got no"):
        Forgetful(0.05).get_config()
