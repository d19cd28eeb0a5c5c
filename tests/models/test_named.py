"""Encoders by name: every family of Keras' networks, and a user's own."""

import sys
import urllib.error

import numpy as np
import pytest

from supcon_tf import losses, models, training
from supcon_tf.keras_2 import keras

# A small member of each family, and the least side of its images.
MEMBERS = {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "RegNetX002": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "ResNetRS50": 32,
    "VGG16": 32,
    "VGG19": 32,
    "Xception": 71,
}


def module(name):
    return sys.modules[getattr(keras.applications, name).__module__]


def test_no_family_is_missing():
    networks = [name for name in dir(keras.applications) if name[0].isupper()]
    assert len(networks) == 71
    assert {*map(module, networks)} == {*map(module, MEMBERS)}


@pytest.mark.slow(but=["MobileNet-32"])
@pytest.mark.parametrize(("name", "side"), MEMBERS.items())
def test_a_member_of_each_family_trains(name, side):
    architecture = f"keras:{name}"
    smaller = side - 1
    with pytest.raises(
        ValueError, match=f"`image_size` must be at least {side}"
    ):
        models.check_named(architecture, smaller)
    with pytest.raises(ValueError, match=f"must be at least {side}x{side}"):
        getattr(keras.applications, name)(
            include_top=False, weights=None, input_shape=(smaller, smaller, 3)
        )
    encoder = models.named_encoder(architecture, side)
    pixels = np.random.default_rng(0).integers(0, 256, [2, 2, side, side, 3])
    views = pixels.astype(np.uint8)
    expected = module(name).preprocess_input(views[0].astype(np.float32))
    np.testing.assert_allclose(
        encoder.preprocess(views[0]), expected, atol=1e-4, rtol=1e-6
    )
    model = models.SupConModel(encoder, models.ProjectionHead(4, ()))
    model.build((None, 2, side, side, 3))
    before = [weight.numpy() for weight in encoder.trainable_weights]
    # Eagerly: tracing takes as long again.
    model.compile(training.SGD(1.0), losses.SupConLoss(), run_eagerly=True)
    model.train_on_batch(views, np.array([0, 1]))
    # Of Keras' EfficientNets some biases have no gradient at first.
    moved = [
        not np.array_equal(old, new)
        for old, new in zip(before, encoder.trainable_weights, strict=True)
    ]
    assert np.mean(moved) > 0.5 and moved[0]
    assert all(np.isfinite(weight.numpy()).all() for weight in encoder.weights)


def test_functions_of_a_module_make_networks(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(
        "from supcon_tf import models\n"
        "from supcon_tf.keras_2 import keras\n"
        "def network():\n"
        "    inputs = keras.Input((None, None, 3))\n"
        "    return keras.Model(\n"
        "        inputs, keras.layers.Conv2D(5, 3)(inputs))\n"
        "def encoder():\n"
        "    return models.BackboneEncoder(network(), 'torch')\n"
        "def number():\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the import adds a folder
    encoder = models.named_encoder("own_net:network", 16, normalize=False)
    assert encoder.preprocessing == "auto" and not encoder.normalize
    assert encoder(np.zeros([1, 16, 16, 3], np.uint8)).shape == (1, 5)
    torch_encoder = models.named_encoder("own_net:encoder", 16)
    assert torch_encoder.preprocessing == "torch"
    for name, message in (
        ("own_net:nothing", "package.module:function that can be imported,"),
        ("none.such:f", "can be imported, got none.such:f: No module named"),
        ("own_net:number", "own_net:number must return a keras.Model, got"),
        ("keras:AlexNet", "keras: and one of ConvNeXtBase, .*got keras:AlexN"),
    ):
        with pytest.raises(ValueError, match=message):
            models.named_encoder(name, 32)


def test_weights_that_cannot_be_downloaded_name_the_file(
    monkeypatch, tmp_path, capfd
):
    monkeypatch.setenv("HOME", str(tmp_path))

    def unreachable(*_, **__):
        raise urllib.error.URLError("no network")

    # Keras imports `urlopen` under another name.
    monkeypatch.setattr("urllib.request.OpenerDirector.open", unreachable)
    message = (
        r"must find mobilenet_.*_no_top.h5 in .*keras/models, .* download it "
        r"\(no network\): put what is at https:.*_no_top.h5 there"
    )
    with pytest.raises(ValueError, match=message):
        models.imagenet_weights("keras:MobileNet", 160)
    assert "input_shape" not in capfd.readouterr().err  # a warning of Keras
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy.example:3128")
    message = "through the proxy proxy.example:3128 of https_proxy"
    with pytest.raises(ValueError, match=message):
        models.imagenet_weights("keras:MobileNet", 32)
    with pytest.raises(
        ValueError, match="that is not keras:NAME, got imagenet"
    ):
        models.imagenet_weights("own_net:network", 32)
