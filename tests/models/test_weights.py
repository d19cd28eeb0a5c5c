"""Weights of files: every format, and what is refused."""

import json
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models, serving
from supcon_tf.keras_2 import PACKAGE, keras

SIDE = 32


def images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, [4, SIDE, SIDE, 3], np.uint8)


def network(filters=4):
    """Small, with statistics in a Normalization as EfficientNet has them."""
    inputs = keras.Input((None, None, 3))
    x = keras.layers.Rescaling(1 / 255)(inputs)
    x = keras.layers.Normalization()(x)
    x = keras.layers.Conv2D(filters, 3, 2, activation="relu")(x)
    x = keras.layers.BatchNormalization()(x)
    return keras.Model(inputs, keras.layers.Conv2D(6, 3)(x))


def backbone_encoder(seed, filters=4):
    keras.utils.set_random_seed(seed)
    return with_statistics(models.BackboneEncoder(network(filters)), seed)


def vgg_encoder(seed):
    keras.utils.set_random_seed(seed)
    return with_statistics(models.Encoder("vgg8", width=0.05), seed)


def with_statistics(encoder, seed):
    """Builds an encoder, and moves its statistics from their start."""
    encoder.build((None, SIDE, SIDE, 3))
    rng = np.random.default_rng(seed)
    for weight in encoder.weights:
        if weight.dtype == "float32":
            weight.assign_add(rng.uniform(0.1, 0.3, weight.shape))
    models.finalize(encoder)
    encoder(images())  # Keras asks for a call before a SavedModel
    return encoder


def stage_1(encoder):
    model = models.SupConModel(encoder, models.ProjectionHead(4, ()))
    model.build((None, 2, SIDE, SIDE, 3))
    return model


def export_frozen(encoder, path):
    models.freeze(encoder, batch_norm=True)
    serving.export_saved_model(encoder, path, image_size=SIDE)


WRITERS = {
    "encoder.keras": lambda e, path: e.save(path),
    "model.keras": lambda e, path: stage_1(e).save(path),
    "encoder.weights.h5": lambda e, path: e.save_weights(path),
    "encoder.h5": lambda e, path: e.save_weights(path),
    "saved_model": lambda e, path: e.save(path, save_format="tf"),
    "export": export_frozen,
    "backbone.keras": lambda e, path: e.backbone.save(path),
    "backbone.weights.h5": lambda e, path: e.backbone.save_weights(path),
    "backbone.h5": lambda e, path: e.backbone.save_weights(path),
    "backbone_model.h5": lambda e, path: e.backbone.save(path),
    "backbone": lambda e, path: e.backbone.save(path, save_format="tf"),
}


@pytest.mark.slow(
    but=[
        "backbone_encoder-saved_model",
        "vgg_encoder-export",
        "backbone_encoder-backbone.h5",
        "vgg_encoder-model.keras",
        "vgg_encoder-encoder.weights.h5",
    ]
)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("make", [backbone_encoder, vgg_encoder])
def test_all_weights_come_from_every_format(make, name, tmp_path):
    if make is vgg_encoder and name.startswith("backbone"):
        pytest.skip("no backbone")
    source, target = make(1), make(2)
    path = str(tmp_path / name)
    WRITERS[name](source, path)
    models.load_weights(target, path)
    np.testing.assert_allclose(target(images()), source(images()), atol=1e-6)


@pytest.mark.slow(but=["encoder.keras", "saved_model", "backbone.h5"])
@pytest.mark.parametrize("name", WRITERS)
def test_weights_of_another_network_are_refused(name, tmp_path):
    path = str(tmp_path / name)
    WRITERS[name](backbone_encoder(1, filters=5), path)
    rule = "`weights` must be a file of all weights of .*, and of no others, g"
    with pytest.raises(ValueError, match=rule):
        models.load_weights(backbone_encoder(2), path)
    with pytest.raises(ValueError, match=rule):
        models.load_weights(vgg_encoder(2), path)


@pytest.mark.parametrize("write", ["save_weights", "save"])
def test_frozen_layers_do_not_change_the_order_of_weights(write, tmp_path):
    def nested(seed):
        parts = [keras.layers.BatchNormalization() for _ in range(3)]
        inputs = keras.Input((SIDE, SIDE, 3))
        model = keras.Sequential([inputs, keras.Sequential([inputs, *parts])])
        for number, weight in enumerate(model.weights):
            weight.assign_add(tf.fill(weight.shape, number + seed))
        return model

    def load(name):
        encoder = models.as_encoder(nested(0.0))
        encoder.build((None, SIDE, SIDE, 3))
        models.load_weights(encoder, str(tmp_path / name))
        return encoder.get_weights()

    source = nested(0.5)
    expected = source.get_weights()
    getattr(source, write)(tmp_path / "trains.h5")
    np.testing.assert_equal(load("trains.h5"), expected)
    source.layers[0].layers[0].trainable = False
    getattr(source, write)(tmp_path / "frozen.h5")
    with pytest.raises(
        ValueError, match="no layer frozen, got another order in"
    ):
        load("frozen.h5")
    source.save_weights(tmp_path / "frozen.weights.h5")
    np.testing.assert_equal(load("frozen.weights.h5"), expected)


def hostile(path):
    """Models whose making runs a command that leaves a file."""
    command = f"touch {path / 'ran'}"
    body = f"(lambda x: (__import__('os').system({command!r}), x)[1])"
    run = keras.layers.Lambda(eval(body))
    image = keras.Input((8, 8, 3))
    dense = keras.layers.Dense(2)
    model = keras.Model(image, dense(run(image)))
    (path / "ran").unlink()  # of the model that was made here
    return model


def weight_array(file):
    """The name of a kernel or of a first array in a file of weights."""
    names = []
    file.visit(names.append)
    return next(name for name in names if name.endswith(("vars/0", "kernel:0")))


def rewrite_weights(path, change):
    """Changes the HDF5 file of weights, also inside of a .keras archive."""
    file = path
    if path.suffix == ".keras":
        file = path.with_name("model.weights.h5")
        with zipfile.ZipFile(path) as archive:
            archive.extract(file.name, path.parent)
    with h5py.File(file, "r+") as content:
        change(content)
    if path.suffix == ".keras":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(file, file.name)


def archive(path):
    hostile(path).save(path / "evil.keras")


def h5(path):
    hostile(path).save(path / "evil.h5")


def saved_model(path):
    hostile(path).save(path / "evil", save_format="tf")


def renamed_h5(path):
    h5(path)
    (path / "evil.h5").rename(path / "evil.keras")


def renamed_saved_model(path):
    saved_model(path)
    (path / "evil").rename(path / "evil.keras")


def archive_that_names_a_module(path):
    """What passes Keras' safe mode: a function of a module, by its name."""
    backbone_encoder(1).backbone.save(path / "evil.keras")
    with zipfile.ZipFile(path / "evil.keras") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(contents["config.json"])
    call = {
        "module": "keras.layers",
        "class_name": "Lambda",
        "config": {
            "name": "run",
            "function": {
                "module": "os",
                "class_name": "function",
                "config": "system",
                "registered_name": "function",
            },
            "arguments": {},
        },
        "registered_name": None,
        "name": "run",
        "inbound_nodes": [
            [["_CONSTANT_VALUE", -1, f"touch {path / 'ran'}", {}]]
        ],
    }
    config["config"]["layers"].append(call)
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path / "evil.keras", "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "write",
    [
        archive,
        h5,
        saved_model,
        renamed_h5,
        renamed_saved_model,
        archive_that_names_a_module,
    ],
)
def test_a_file_of_weights_runs_no_code(write, tmp_path):
    """The weights of the last file are read; those of the others do not fit."""
    write(tmp_path)
    (tmp_path / "ran").unlink(missing_ok=True)
    (path,) = tmp_path.glob("evil*")
    encoder = backbone_encoder(2)
    if write is archive_that_names_a_module:
        models.load_weights(encoder, path)
        expected = backbone_encoder(1)(images())
        np.testing.assert_allclose(encoder(images()), expected, atol=1e-6)
    else:
        with pytest.raises(ValueError, match="`weights` must be a file of all"):
            models.load_weights(encoder, path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["encoder.keras", "encoder.weights.h5", "backbone.h5"]
)
def test_a_file_asks_for_no_more_memory_than_the_model(name, tmp_path):
    """A bomb: few bytes of the file, and arrays of 400 GB."""
    encoder, path = backbone_encoder(1), tmp_path / name
    WRITERS[name](encoder, str(path))

    def enlarge(file):
        name = weight_array(file)
        del file[name]
        file.create_dataset(name, (10**11,), "f4", compression="gzip")

    rewrite_weights(path, enlarge)
    with pytest.raises(ValueError, match="an array must have at most 216 numb"):
        models.load_weights(encoder, path)


def move_kernel(file, way, folder):
    """Moves a kernel of a file of weights to another file, or behind a link."""
    name = weight_array(file)
    secret = np.full(file[name].shape, 7, np.float32)
    secret.tofile(folder / "secret")
    with h5py.File(folder / "secret.h5", "w") as other:
        other["secret"] = secret
    del file[name]
    if way == "external link":
        file[name] = h5py.ExternalLink("secret.h5", "secret")
    elif way == "soft link":
        file["secret"] = secret
        file[name] = h5py.SoftLink("/secret")
    elif way == "external bytes":
        outside = [(str(folder / "secret"), 0, secret.nbytes)]
        file.create_dataset(name, secret.shape, "f4", external=outside)
    else:
        layout = h5py.VirtualLayout(secret.shape, "f4")
        layout[:] = h5py.VirtualSource(
            folder / "secret.h5", "secret", secret.shape
        )
        file.create_virtual_dataset(name, layout)


@pytest.mark.slow(
    but=[
        "encoder.keras-external link",
        "encoder.weights.h5-virtual",
        "backbone.h5-soft link",
        "backbone.h5-external bytes",
    ]
)
@pytest.mark.parametrize(
    "way", ["external link", "soft link", "external bytes", "virtual"]
)
@pytest.mark.parametrize(
    "name", ["encoder.keras", "encoder.weights.h5", "backbone.h5"]
)
def test_no_weights_come_from_another_file(name, way, tmp_path):
    encoder = backbone_encoder(1)
    before = encoder.get_weights()
    WRITERS[name](encoder, str(tmp_path / name))
    rewrite_weights(
        tmp_path / name, lambda file: move_kernel(file, way, tmp_path)
    )
    with pytest.raises(ValueError, match="`weights` must be a file of all wei"):
        models.load_weights(encoder, tmp_path / name)
    np.testing.assert_equal(encoder.get_weights(), before)


def test_an_archive_that_unpacks_to_more_than_it_is_is_refused(tmp_path):
    with zipfile.ZipFile(
        tmp_path / "bomb.keras", "w", zipfile.ZIP_DEFLATED
    ) as archive:
        archive.writestr("model.weights.h5", bytes(10**7))
    with pytest.raises(ValueError, match="no larger than its archive, got 1"):
        models.load_weights(backbone_encoder(1), tmp_path / "bomb.keras")


def test_weights_of_nan_are_refused(tmp_path):
    """As those of a training that failed."""
    encoder, path = vgg_encoder(0), str(tmp_path / "a.weights.h5")
    kernel = encoder.trainable_weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    encoder.save_weights(path)
    with pytest.raises(ValueError, match="NaN or infinity in .*kernel:0$"):
        models.load_weights(vgg_encoder(1), path)


def test_a_broken_file_is_one_line(tmp_path):
    encoder = backbone_encoder(1)
    for name in ("e.weights.h5", "e.keras"):
        path = tmp_path / name
        WRITERS["encoder." + name.partition(".")[2]](encoder, str(path))
        path.write_bytes(path.read_bytes()[:-1000])
        with pytest.raises(ValueError, match="`weights` must be a") as caught:
            models.load_weights(encoder, path)
        assert len(str(caught.value).splitlines()) == 1
    (tmp_path / "e.bin").write_bytes(b"x")
    with pytest.raises(ValueError, match="`weights` must be imagenet, a file"):
        models.load_weights(encoder, tmp_path / "e.bin")
    with pytest.raises(FileNotFoundError, match="`weights` must exist, got"):
        models.load_weights(encoder, tmp_path / "none.h5")


def test_a_deviation_in_the_place_of_the_variance_is_squared():
    """As Keras' weights of EfficientNet for ImageNet have it."""
    deviation = np.array([0.229, 0.224, 0.225], np.float32)
    norm = keras.layers.Normalization()
    parts = [keras.layers.Rescaling(1 / 255), norm]
    encoder = models.as_encoder(keras.Sequential(parts))
    encoder.build((None, SIDE, SIDE, 3))
    mean, _, count = encoder.backbone.get_weights()
    models.set_weights(encoder, [mean, deviation, count])
    np.testing.assert_allclose(norm.adapt_variance, deviation**2, rtol=1e-6)


@pytest.mark.slow
def test_efficientnet_divides_by_the_deviation_as_keras_does(
    tmp_path, monkeypatch
):
    """Keras' own graph for weights="imagenet", with weights of ours."""
    name = "keras:EfficientNetB0"
    encoder = models.named_encoder(name, SIDE, normalize=False)
    encoder.build((None, SIDE, SIDE, 3))
    values = encoder.backbone.get_weights()
    values[0] = np.array([0.485, 0.456, 0.406])
    values[1] = np.array([0.229, 0.224, 0.225])
    encoder.backbone.set_weights(values)
    path = str(tmp_path / "efficientnetb0_notop.h5")
    encoder.backbone.save_weights(path)
    make = keras.applications.EfficientNetB0
    fetch = vars(make.__globals__["data_utils"])
    monkeypatch.setitem(fetch, "get_file", lambda *_, **__: path)
    original = make(include_top=False, weights="imagenet", pooling="avg")
    pixels = images().astype(np.float32)
    expected = original(pixels)
    published = models.imagenet_weights(name, SIDE)
    for load in (
        lambda: models.load_weights(encoder, path),
        lambda: models.set_weights(encoder, published),
    ):
        encoder.backbone.set_weights([0 * value for value in values])
        load()
        np.testing.assert_allclose(
            encoder(pixels), expected, rtol=1e-4, atol=1e-5
        )


def save_of_keras_3(network, path):
    """Writes a network, with weights that differ; returns its features."""
    rng = np.random.default_rng(0)
    for weight in network.weights:
        low = 0.9 if weight.name in ("gamma", "moving_variance") else -0.05
        values = rng.uniform(low, low + 0.1, weight.shape)
        fixed_names = "kernel", "depthwise_kernel", "mean", "variance"
        if weight.shape and weight.name not in fixed_names:
            weight.assign(values)
    network.save(path)
    return network.predict(images().astype(np.float32), verbose=0)


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
@pytest.mark.parametrize(
    "name",
    [
        "MobileNet",
        "EfficientNetB0",
        pytest.param("ResNet50", marks=pytest.mark.slow),
        pytest.param("ConvNeXtTiny", marks=pytest.mark.slow),
    ],
)
def test_archives_of_keras_3_are_read(name, tmp_path):
    import keras as keras_3

    network = getattr(keras_3.applications, name)(
        include_top=False, weights=None, input_shape=(SIDE, SIDE, 3)
    )
    expected = save_of_keras_3(network, tmp_path / "network.keras")
    encoder = models.named_encoder(f"keras:{name}", SIDE)
    encoder.build((None, SIDE, SIDE, 3))
    models.load_weights(encoder, tmp_path / "network.keras")
    features = encoder.backbone(images().astype(np.float32), training=False)
    assert np.abs(features - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
def test_a_part_of_an_archive_of_keras_3_is_read(tmp_path):
    """Of a model with a classifier and an optimizer's state."""
    import keras as keras_3

    make = {"include_top": False, "weights": None, "alpha": 0.25}
    part = keras_3.applications.MobileNet(**make, input_shape=(SIDE, SIDE, 3))
    layers = keras_3.layers.Flatten(), keras_3.layers.Dense(2)
    classifier = keras_3.Sequential([part, *layers])
    classifier.compile("adam", "mse")
    classifier.optimizer.build(classifier.trainable_variables)
    classifier.save(tmp_path / "whole.keras")
    expected = part.predict(images().astype(np.float32), verbose=0)
    backbone = keras.applications.MobileNet(**make, input_shape=(SIDE, SIDE, 3))
    encoder = models.BackboneEncoder(backbone)
    encoder.build((None, SIDE, SIDE, 3))
    models.load_weights(encoder, tmp_path / "whole.keras")
    features = backbone(images().astype(np.float32), training=False)
    assert np.abs(features - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.skipif(PACKAGE == "keras", reason="Keras 2 alone is installed")
def test_an_export_of_keras_3_is_refused(tmp_path, capfd):
    import keras as keras_3

    layers = keras_3.layers.Conv2D(4, 3), keras_3.layers.Flatten()
    network_3 = keras_3.Sequential([keras_3.Input([SIDE, SIDE, 3]), *layers])
    network_3.export(tmp_path / "export", verbose=False)
    encoder = backbone_encoder(0)
    capfd.readouterr()
    with pytest.raises(ValueError, match="by `export` of Keras 3") as caught:
        models.load_weights(encoder, tmp_path / "export")
    line = str(caught.value).replace(str(tmp_path), "")
    assert 'save_weights("its.weights.h5")' in line
    assert "\n" not in line and len(line) <= 400
    assert capfd.readouterr() == ("", "")


class Many(keras.layers.Layer):
    """A layer of thirty weights."""

    def build(self, input_shape):
        self.matrices = [
            self.add_weight(f"weight_{i}", [3, 3]) for i in range(30)
        ]
        super().build(input_shape)

    def call(self, inputs):
        return inputs @ self.matrices[0]


def test_what_does_not_fit_is_a_short_line(tmp_path):
    """Keras names all weights of a layer that it cannot load."""

    def encoder(layers):
        encoder = models.as_encoder(keras.Sequential(layers))
        encoder.build((None, SIDE, SIDE, 3))
        return encoder

    layers = [keras.layers.Dense(3, use_bias=False) for _ in range(30)]
    encoder(layers).backbone.save_weights(tmp_path / "dense.weights.h5")
    with pytest.raises(ValueError, match="expected 30 variables") as caught:
        models.load_weights(encoder([Many()]), tmp_path / "dense.weights.h5")
    line = str(caught.value).replace(str(tmp_path), "")
    assert "\n" not in line and len(line) <= 400
