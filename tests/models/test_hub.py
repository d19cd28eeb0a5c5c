"""Networks of KerasHub by the name of a preset: here folders, no network."""

import importlib
import json
import sys

import h5py
import numpy as np
import pytest

from supcon_tf import config, keras_2, models

if keras_2.PACKAGE == "keras":

    def test_a_missing_keras_3_is_named():
        for function in (models.check_named, models.named_encoder):
            with pytest.raises(ImportError, match="must have Keras 3 and Kera"):
                function("keras_hub:vit_base_patch16_224_imagenet", 32)

    pytest.skip("there is no Keras 3", allow_module_level=True)

import keras as keras_3  # noqa: E402

from supcon_tf import losses, training  # noqa: E402
from supcon_tf.keras_2 import keras  # noqa: E402
from supcon_tf.models import hub  # noqa: E402
from supcon_tf.training import runs  # noqa: E402
from tests import networks_3  # noqa: E402

SIDE = 32
IMAGES = np.random.default_rng(0).integers(0, 256, [4, SIDE, SIDE, 3], np.uint8)


def test_a_missing_keras_hub_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match="must have the extra `hub`: pip ins"):
        models.check_named("keras_hub:vit_base_patch16_224_imagenet", 32)


def test_settings_of_presets_are_of_no_other_network():
    for name, value in (("pooling", "mean"), ("lora_rank", 2)):
        with pytest.raises(ValueError, match=f"--{name} must be left out with"):
            config.PretrainSettings("run", architecture="vgg8", **{name: value})
        settings = config.PretrainSettings(
            "run", architecture="keras_hub:vit", **{name: value}
        )
        assert getattr(settings, name) == value


def test_weights_of_a_preset_are_of_one():
    encoder = models.Encoder("vgg8", width=0.1)
    with pytest.raises(ValueError, match="must be preset of keras_hub:PRESET"):
        models.load_preset(encoder, "keras:MobileNet")


def test_positions_are_interpolated():
    class Variable:
        path = "vit/position_embedding/embeddings"
        shape = (1 + 16, 2)

    rows = np.arange(2 * (1 + 4), dtype=np.float32).reshape(5, 2)
    positions = hub._resize_positions(Variable, rows)
    np.testing.assert_array_equal(positions[0], rows[0])  # the class token's
    grid = positions[1:].reshape(4, 4, 2)
    assert (np.diff(grid, axis=0) > 0).all()
    assert (np.diff(grid[..., 0]) > 0).all()
    # Every corner is nearest to its own.
    assert np.abs(grid[0, 0] - rows[1]).max() < 1
    assert np.abs(grid[3, 3] - rows[4]).max() < 1
    for path, shape in (("vit/kernel", (17, 2)), (Variable.path, (18, 2))):
        Variable.path, Variable.shape = path, shape
        with pytest.raises(ValueError, match="`image_size` must be that of t"):
            hub._resize_positions(Variable, rows)


VIT = {
    "module": "keras_hub.src.models.vit.vit_backbone",
    "class_name": "ViTBackbone",
    "registered_name": "keras_hub>ViTBackbone",
}
FLOAT = {"module": "keras", "class_name": "DTypePolicy", "config": {}}


@pytest.mark.parametrize(
    "entry",
    [
        {"module": "os", "class_name": "system"},
        {"module": "builtins", "class_name": "function", "config": "exec"},
        {"module": "keras.utils", "class_name": "function"},
        {"module": "keras.layers", "class_name": "Lambda"},
        {"class_name": "Lambda"},  # as Keras saved before
        {"registered_name": "Functional"},
        VIT | {"registered_name": "supcon_tf>Views"},
        VIT | {"class_name": "function"},
        FLOAT | {"registered_name": "theirs>DTypePolicy"},
    ],
)
def test_a_folder_of_others_makes_no_objects_of_theirs(entry, tmp_path):
    config = VIT | {"config": {"dtype": FLOAT}}
    hostile = VIT | {"config": {"dtype": FLOAT, "parts": [{"inner": entry}]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("image_converter.json", "config.json"):
        hub._check_folder(str(tmp_path))
        (tmp_path / name).write_text(json.dumps(hostile))
        with pytest.raises(ValueError, match="must make classes of KerasHub a"):
            hub._check_folder(str(tmp_path))
        (tmp_path / name).write_text(json.dumps(config))


def test_files_of_a_folder_are_whole(tmp_path):
    with pytest.raises(ValueError, match=r"must have config\.json"):
        hub._check_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON, got"):
        hub._check_folder(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(VIT))
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["kernel"] = h5py.ExternalLink("/etc/passwd", "kernel")
    with pytest.raises(ValueError, match="must hold its arrays itself, got"):
        hub._check_folder(str(tmp_path))


def test_an_address_is_no_preset():
    for address in ("hf://a/b", "kaggle://a/b", "gs://a/b"):
        with pytest.raises(ValueError, match="or a folder: download what anot"):
            models.named_encoder(f"keras_hub:{address}", SIDE)


if "transformer" not in networks_3.available():
    pytest.skip("there is no KerasHub", allow_module_level=True)

import keras_hub  # noqa: E402


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A folder with weights, as `save_to_preset` writes it."""
    folder = str(tmp_path_factory.mktemp("preset") / "vit")
    keras.utils.set_random_seed(1)
    networks_3.transformer().save_to_preset(folder)
    mean, deviation = np.array([0.5, 0.4, 0.3]), 0.25
    keras_hub.layers.ViTImageConverter(
        image_size=(SIDE, SIDE),
        scale=(1 / 255 / np.full(3, deviation)).tolist(),
        offset=(-mean / deviation).tolist(),
    ).save_to_preset(folder)
    return folder


def with_weights(preset, side=SIDE, **options):
    architecture = f"keras_hub:{preset}"
    encoder = models.named_encoder(architecture, side, **options)
    encoder.build((None, side, side, 3))
    models.load_preset(encoder, architecture)
    return encoder


@pytest.mark.parametrize("pooling", ["auto", "class_token", "mean", "both"])
def test_representations_are_those_of_the_preset(preset, pooling):
    encoder = with_weights(preset, pooling=pooling, normalize=False)
    pixels = (IMAGES / 255 - [0.5, 0.4, 0.3]) / 0.25
    network = keras_hub.models.Backbone.from_preset(preset)
    tokens = network(pixels.astype(np.float32), training=False).numpy()
    assert tokens.shape[1] == 17
    first, mean = tokens[:, 0], tokens[:, 1:].mean(axis=1)
    expected = {
        "mean": mean,
        "both": np.concatenate([first, mean], axis=1),
    }.get(pooling, first)
    np.testing.assert_allclose(encoder(IMAGES), expected, rtol=1e-3, atol=1e-4)
    assert encoder.representation_dim == expected.shape[1]


def test_images_of_another_size(preset):
    small, large = with_weights(preset), with_weights(preset, 64)
    small_weights, large_weights = (
        [weight.numpy() for weight in encoder.backbone.network.weights]
        for encoder in (small, large)
    )
    matches = [
        a.shape == b.shape
        for a, b in zip(small_weights, large_weights, strict=True)
    ]
    assert matches.count(False) == 1
    position = matches.index(False)
    assert large_weights[position].shape == (1 + 64, 8)
    np.testing.assert_array_equal(
        large_weights[position][0], small_weights[position][0]
    )
    # The same picture, twice as large, has a mean of patches that is near.
    twice = IMAGES.repeat(2, axis=1).repeat(2, axis=2)
    assert large(twice).shape == small(IMAGES).shape
    with pytest.raises(ValueError, match="`architecture` must be keras_hub: a"):
        models.named_encoder(f"keras_hub:{preset}", 36)  # of 8 pixels a patch


def test_low_rank_updates_alone_train(preset):
    base = with_weights(preset)
    encoder = with_weights(preset, lora_rank=2)
    np.testing.assert_allclose(encoder(IMAGES), base(IMAGES), atol=1e-6)
    names = [
        weight.name for weight in encoder.backbone.network.trainable_weights
    ]
    # Of query and value of three blocks.
    assert {*names} == {"lora_kernel_a", "lora_kernel_b", "bias"}
    assert len(encoder.trainable_weights) == len(names) == 3 * 2 * 3
    before = [weight.numpy() for weight in encoder.weights]
    model = models.SupConModel(encoder, models.ProjectionHead(4, ()))
    model.compile(training.SGD(1.0), losses.SupConLoss())
    views = np.stack([IMAGES, IMAGES[::-1]], axis=1)
    model.fit(views, np.array([0, 0, 1, 1]), epochs=2, verbose=0)
    moved = [
        not np.array_equal(old, new)
        for old, new in zip(before, encoder.weights, strict=True)
    ]
    assert 0 < sum(moved) <= len(names)
    assert np.abs(encoder(IMAGES) - base(IMAGES)).max() > 1e-5


def test_a_run_with_a_preset(preset, tiny_settings, tmp_path):
    settings = tiny_settings(
        tmp_path / "run",
        architecture=f"keras_hub:{preset}",
        weights="preset",
        width=1.0,
        image_size=SIDE,
        pooling="both",
        lora_rank=2,
        layer_decay=0.5,
        learning_rate=0.1,
        epochs=1,
    )
    training.pretrain(settings)
    opened = runs.open_run(tmp_path / "run")
    assert opened.encoder.representation_dim == 16
    other = tiny_settings(
        tmp_path / "other",
        architecture="resnet50",  # the default: not given
        init_from=str(tmp_path / "run"),
        width=1.0,
        image_size=SIDE,
        epochs=0,
    )
    assert training.pretrain(other).recorded(type(other)).lora_rank == 2


def torch_array(weight):
    """The name and array of a weight in PyTorch, by those in TensorFlow."""
    name, value = weight.name.removesuffix(":0"), weight.numpy()
    parts = name.replace("layer_._", "layer/").split("/")[1:]
    if parts[-1] == "kernel":
        value = value.transpose({2: (1, 0), 4: (3, 2, 0, 1)}[value.ndim])
    names = {"kernel": "weight", "gamma": "weight", "beta": "bias"}
    parts[-1] = names.get(parts[-1], parts[-1])
    return ".".join(parts), np.ascontiguousarray(value)


@pytest.mark.parametrize("side", [SIDE, 64])
def test_a_folder_of_hugging_face(side, tmp_path):
    """Random weights, against the forward pass of transformers."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("sentencepiece")  # which KerasHub imports
    network = transformers.TFViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=SIDE,
            patch_size=8,
            layer_norm_eps=1e-6,  # KerasHub's, whatever the config says
        )
    )
    pixels = (IMAGES / 255 - [0.5, 0.4, 0.3]) / 0.25
    pixels = pixels.transpose(0, 3, 1, 2).astype(np.float32)
    answer = network(pixel_values=pixels, output_hidden_states=True)
    tokens = network.vit.layernorm(answer.hidden_states[-1]).numpy()
    network.config.architectures = ["ViTForImageClassification"]
    network.config.save_pretrained(str(tmp_path))
    arrays = dict(map(torch_array, network.weights))
    safetensors = importlib.import_module("safetensors.numpy")
    safetensors.save_file(arrays, tmp_path / "model.safetensors")
    config = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    encoder = with_weights(tmp_path, side, normalize=False, pooling="both")
    if side != SIDE:  # the positions of a larger image
        assert np.isfinite(encoder(np.zeros([1, side, side, 3], "uint8"))).all()
        return
    expected = np.concatenate([tokens[:, 0], tokens[:, 1:].mean(axis=1)], 1)
    np.testing.assert_allclose(encoder(IMAGES), expected, atol=1e-4)


def test_an_unknown_preset_is_named():
    message = "a preset that KerasHub can load, got"
    with pytest.raises(ValueError, match=message) as caught:
        models.named_encoder("keras_hub:no_such_preset", SIDE)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 500


def test_precision(preset, float32_policy):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    encoder = with_weights(preset)
    network = encoder.backbone.network
    assert {layer.compute_dtype for layer in network._flatten_layers()} == {
        "bfloat16"
    }
    assert keras_3.config.dtype_policy().name == "float32"
