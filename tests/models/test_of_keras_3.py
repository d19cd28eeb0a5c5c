"""Networks of Keras 3 as encoders; see tests/networks_3.py."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import keras_2

if keras_2.PACKAGE == "keras":
    pytest.skip("there is no Keras 3", allow_module_level=True)

import keras as keras_3  # noqa: E402

from supcon_tf import losses, models, serving, training  # noqa: E402
from supcon_tf.conversion import formats  # noqa: E402
from supcon_tf.keras_2 import keras  # noqa: E402
from supcon_tf.models import of_keras_3  # noqa: E402
from tests import networks_3  # noqa: E402

SIDE = 32
RNG = np.random.default_rng(0)
LABELS = np.arange(8, dtype=np.int32) % 4
VIEWS = RNG.integers(0, 256, [8, 2, SIDE, SIDE, 3], np.uint8)
IMAGES = VIEWS[:, 0]
NETWORKS = networks_3.available()


def supcon_model(network, dim=4, **options):
    head = models.ProjectionHead(dim, ())
    return models.SupConModel(network, head, **options)


def trained(model, epochs=1, **options):
    """A model after an epoch or more of a batch each, built inside of `fit`."""
    model.compile(training.SGD(0.05, l2=1e-3, **options), losses.SupConLoss())
    model.fit(
        VIEWS, LABELS, batch_size=8, epochs=epochs, verbose=0, shuffle=False
    )
    return model


def values(variables):
    return [variable.numpy() for variable in variables]


def assert_equal(arrays, expected):
    for array, reference in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, reference)


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


@pytest.mark.parametrize("mode", ["tf", "torch", "caffe"])
def test_pixels_are_not_scaled_twice(mode):
    inputs = keras_3.Input((SIDE, SIDE, 3))
    scaled = keras_3.applications.imagenet_utils.preprocess_input(
        inputs, mode=mode
    )
    network = keras_3.Model(inputs, keras_3.layers.Conv2D(2, 3)(scaled))
    with pytest.raises(ValueError, match="`preprocessing` must be given for"):
        models.as_encoder(network)


@pytest.mark.parametrize("name", NETWORKS)
def test_checkpoints_hold_weights_and_random_states(name, tmp_path):
    network = NETWORKS[name]()
    model = trained(supcon_model(network))
    encoder = model.encoder
    assert len(encoder.weights) == len(network.weights) > 4
    count = len(network.trainable_weights)
    assert len(encoder.trainable_weights) == count
    prefix = tf.train.Checkpoint(encoder=encoder).write(str(tmp_path / "c"))
    stored = [
        name
        for name, _ in tf.train.list_variables(prefix)
        if name.endswith("VARIABLE_VALUE")
    ]
    assert len(stored) == len(network.variables)
    before = values(encoder.trainable_weights)
    trained(model)
    moved = [
        not np.array_equal(old, new)
        for old, new in zip(before, encoder.trainable_weights, strict=True)
    ]
    assert np.mean(moved) > 0.9
    # A restored network draws as this one would.
    restored = models.as_encoder(NETWORKS[name]())
    restored.build((None, SIDE, SIDE, 3))
    for instance in (restored, encoder):
        status = tf.train.Checkpoint(encoder=instance).read(prefix)
        status.assert_existing_objects_matched()
    assert_equal(
        values(v.value for v in network.variables),
        values(v.value for v in restored.backbone.network.variables),
    )
    np.testing.assert_array_equal(
        encoder(IMAGES, training=True), restored(IMAGES, training=True)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_representations_are_those_of_keras_3(name):
    network = NETWORKS[name]()
    encoder = models.BackboneEncoder(network, "tf", normalize=False)
    representations = encoder(IMAGES).numpy()
    features = network(IMAGES / np.float32(127.5) - 1, training=False).numpy()
    if features.ndim == 4:
        features = features.mean(axis=(1, 2))
    if features.ndim == 3:
        features = features[:, 0]  # the class token
    np.testing.assert_allclose(representations, features, rtol=1e-4, atol=1e-5)
    assert encoder.representation_dim == features.shape[1]


def test_dropout_draws_anew_in_every_step():
    encoder = models.as_encoder(NETWORKS["sequential"]())
    first, second = (encoder(IMAGES, training=True) for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert_equal([encoder(IMAGES)], [encoder(IMAGES)])


@pytest.mark.parametrize(
    "name", [name for name in NETWORKS if name != "sequential"]
)
def test_two_replicas_are_as_one(name, mirrored_strategy):
    """Built inside of `fit`, with clipping, and with batch norm over both."""

    def weights(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = supcon_model(NETWORKS[name]())
            trained(model, epochs=3, global_clipnorm=0.1)
        return values(model.encoder.weights)

    expected = weights(tf.distribute.get_strategy())
    mirrored = weights(mirrored_strategy)
    # Steps multiply the last bits of batch norm, which processors round
    # differently: up to 1.3e-5 on one with AMX.
    for a, b in zip(expected, mirrored, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_statistics_of_one_replica_are_refused(mirrored_strategy):
    with mirrored_strategy.scope():
        network = NETWORKS["sequential"]()
        model = supcon_model(
            models.BackboneEncoder(network, synchronized_bn=False)
        )
        with pytest.raises(ValueError, match="`synchronized_bn` must be True"):
            trained(model)
        models.freeze(model.encoder, batch_norm=True)
        trained(model)


def plain():
    """Without batch norm, and without draws."""
    layers = keras_3.layers
    return keras_3.Sequential(
        [
            keras_3.Input((SIDE, SIDE, 3)),
            layers.Conv2D(6, 3, 2, activation="tanh", name="first"),
            layers.LayerNormalization(name="norm"),
            layers.Conv2D(5, 3, 2, name="second"),
        ]
    )


def test_gradient_caching_is_the_whole_batch():
    def weights(chunks):
        keras.utils.set_random_seed(0)
        model = supcon_model(plain(), gradient_cache_chunks=chunks)
        return values(trained(model).weights)

    expected, cached = weights(1), weights(4)
    for weight, cached_weight in zip(expected, cached, strict=True):
        np.testing.assert_allclose(weight, cached_weight, rtol=1e-4, atol=1e-6)


def test_statistics_move_once_per_chunk():
    def build_model(chunks):
        keras.utils.set_random_seed(0)
        network = NETWORKS["application"]()
        return network, supcon_model(network, gradient_cache_chunks=chunks)

    network, cached_model = build_model(4)
    trained(cached_model)
    reference, model = build_model(1)
    model.build((None, 2, SIDE, SIDE, 3))
    for start in range(0, 8, 2):
        model(VIEWS[start : start + 2], training=True)
    norms = [
        [layer for layer in backbone.layers if hasattr(layer, "moving_mean")]
        for backbone in (network, reference)
    ]
    assert len(norms[0]) > 5
    for norm, expected in zip(*norms, strict=True):
        np.testing.assert_allclose(
            norm.moving_mean.numpy(), expected.moving_mean.numpy(), atol=1e-5
        )


def test_gradient_caching_refuses_random_layers():
    model = supcon_model(NETWORKS["sequential"](), gradient_cache_chunks=2)
    with pytest.raises(ValueError, match="draws at random in training, got dr"):
        trained(model)


def test_freezing():
    network = plain()
    model = supcon_model(network)
    model.build((None, 2, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="of first, norm, second, got third"):
        models.freeze(model.encoder, ["third"])
    models.freeze(model.encoder, ["first"])
    before = values(model.encoder.weights)
    assert len(model.encoder.trainable_weights) == 4
    trained(model, epochs=2)
    after = values(model.encoder.weights)
    matches = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
    assert sorted(matches) == [False] * 4 + [True] * 2


def test_freezing_batch_norm():
    network = NETWORKS["application"]()
    model = supcon_model(network)
    model.build((None, 2, SIDE, SIDE, 3))
    models.freeze(model.encoder, batch_norm=True)
    kind = keras_3.layers.BatchNormalization
    norms = [layer for layer in network.layers if isinstance(layer, kind)]

    def norm_values():
        return values(v.value for norm in norms for v in norm.variables)

    before = norm_values()
    trained(model, epochs=2)
    assert_equal(before, norm_values())


def test_batch_norm_behind_a_frozen_layer_is_named():
    layers = keras_3.layers.Conv2D(3, 3), keras_3.layers.BatchNormalization()
    network = keras_3.Sequential([keras_3.Input((SIDE, SIDE, 3)), *layers])
    encoder = models.as_encoder(network)
    encoder.build((None, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="must name the batch norm behind a f"):
        models.freeze(encoder, ["conv"])


def test_a_frozen_encoder_is_in_inference_mode():
    encoder = models.as_encoder(NETWORKS["application"]())
    encoder.build((None, SIDE, SIDE, 3))
    encoder.trainable = False
    assert not encoder.trainable_weights
    assert_equal([encoder(IMAGES, training=True)], [encoder(IMAGES)])
    encoder.trainable = True
    assert len(encoder.trainable_weights) == 81


@pytest.mark.skipif("transformer" not in NETWORKS, reason="no KerasHub")
def test_rates_decay_by_block():
    encoder = models.as_encoder(NETWORKS["transformer"]())
    encoder.build((None, SIDE, SIDE, 3))
    names = [layer.name for layer in models.ordered_layers(encoder)]
    blocks = [f"transformer_block_{n}" for n in (1, 2, 3)]
    assert names == ["vit_patching_and_embedding", *blocks, "ln"]
    shares = models.learning_rate_shares(encoder, 0.5)
    assert len(shares) == len(encoder.trainable_weights)
    block_weights = encoder.backbone.network.layers[2].encoder_layers[1].weights
    ids = {id(weight.value) for weight in block_weights}
    assert {share for w, share in shares if id(w) in ids} == {0.5**3}


def test_a_momentum_model_copies_the_network():
    queue = losses.ProjectionQueue(16, 4)
    network = NETWORKS["application"]()
    model = models.MomentumSupConModel(
        network, models.ProjectionHead(4, ()), queue, encoder_momentum=0.5
    )
    model.build((None, 2, SIDE, SIDE, 3))
    copy = model.momentum_encoder
    assert copy.backbone.network is not network
    start = values(copy.trainable_weights)
    assert_equal(start, values(model.encoder.trainable_weights))
    model.compile(training.SGD(0.1), losses.SupConLoss(queue=queue))
    model.fit(VIEWS, LABELS, batch_size=8, verbose=0)
    end = values(model.encoder.trainable_weights)
    means = values(copy.trainable_weights)
    for before, after, mean in zip(start, end, means, strict=True):
        np.testing.assert_allclose(mean, (before + after) / 2, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_precision_reaches_the_network(policy, float32_policy):
    keras.mixed_precision.set_global_policy(policy)
    encoder = models.named_encoder("tests.networks_3:application", SIDE)
    network = encoder.backbone.network
    compute = policy.removeprefix("mixed_")
    assert {layer.compute_dtype for layer in network.layers} == {compute}
    assert keras_3.config.dtype_policy().name == "float32"
    model = trained(supcon_model(encoder))
    assert encoder(IMAGES).dtype == tf.float32
    assert {weight.dtype for weight in encoder.weights} == {tf.float32}
    assert all(np.isfinite(array).all() for array in values(model.weights))


def test_files_restore_the_model(tmp_path):
    model = trained(supcon_model(NETWORKS["sequential"]()))
    expected = model.encoder(IMAGES)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded.encoder(IMAGES), expected, rtol=1e-5)
    model.save_weights(str(tmp_path / "m.weights.h5"))
    reader = supcon_model(NETWORKS["sequential"]())
    reader.build((None, 2, SIDE, SIDE, 3))
    reader.load_weights(str(tmp_path / "m.weights.h5"))
    np.testing.assert_allclose(reader.encoder(IMAGES), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["sequential", "application"])
@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_weights_of_files_of_keras_3(name, suffix, tmp_path):
    network = NETWORKS[name]()
    network.build((None, SIDE, SIDE, 3))
    path = str(tmp_path / f"network{suffix}")
    save = network.save if suffix == ".keras" else network.save_weights
    save(path)
    encoder = models.as_encoder(NETWORKS[name]())
    encoder.build((None, SIDE, SIDE, 3))
    models.load_weights(encoder, path)
    assert_equal(network.get_weights(), encoder.backbone.get_weights())
    plain_encoder = models.as_encoder(plain())
    plain_encoder.build((None, SIDE, SIDE, 3))
    with pytest.raises(ValueError, match="must be a file of all weights of"):
        models.load_weights(plain_encoder, path)


@pytest.mark.parametrize("name", NETWORKS)
def test_exports_represent_images_alike(name, tmp_path):
    encoder = models.as_encoder(NETWORKS[name]())
    expected = encoder(IMAGES)
    serving.export_saved_model(encoder, tmp_path / "1", image_size=SIDE)
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    files = [tf.io.encode_png(image).numpy() for image in IMAGES]
    image_model = formats.ImageModel(encoder, SIDE)
    tflite = formats.tflite_function(formats.to_tflite(image_model))
    onnx = formats.onnx_function(formats.to_onnx(image_model))
    for representations in (
        signatures["represent_images"](tf.constant(IMAGES))["representation"],
        signatures["represent"](tf.constant(files))["representation"],
        tflite(IMAGES),
        onnx(IMAGES),
    ):
        np.testing.assert_allclose(
            representations, expected, rtol=1e-5, atol=1e-5
        )


class Adds(keras_3.layers.Layer):
    """Adds to the loss as it is called."""

    def call(self, inputs):
        self.add_loss(keras_3.ops.mean(inputs))
        return inputs


@pytest.mark.parametrize(
    "layer",
    [
        lambda: keras_3.layers.Dense(2, kernel_regularizer="l2"),
        lambda: keras_3.layers.Dense(2, activity_regularizer="l2"),
        lambda: Adds(name="dense_adds"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_regularizers_are_refused(layer):
    network = keras_3.Sequential(
        [keras_3.Input((SIDE, SIDE, 3)), layer(), keras_3.layers.Flatten()]
    )
    model = supcon_model(network)
    message = "must add nothing to the loss, .* got dense.* with a regularizer"
    with pytest.raises(ValueError, match=message):
        trained(model)
    assert not model.optimizer.iterations


def test_another_library_is_refused(monkeypatch):
    monkeypatch.setattr(keras_3.backend, "backend", lambda: "jax")
    message = "KERAS_BACKEND=tensorflow before keras is imported, got jax"
    with pytest.raises(ValueError, match=message):
        models.as_encoder(plain())


def test_variables_after_the_build_are_refused():
    network = plain()
    encoder = models.as_encoder(network)
    encoder.build((None, SIDE, SIDE, 3))
    network.layers[0].enable_lora(2)
    with pytest.raises(ValueError, match="must have all its variables when"):
        encoder(IMAGES)


def tokens(count, patch_size=8):
    """So many tokens for the 16 patches of an image."""
    inputs = keras_3.Input((SIDE, SIDE, 3))
    outputs = keras_3.layers.Reshape((count, -1))(inputs)
    network = keras_3.Model(inputs, outputs)
    network.patch_size = patch_size
    return network


def test_pooling_of_tokens():
    images = RNG.normal(size=[2, SIDE, SIDE, 3]).astype(np.float32)
    rows = images.reshape(2, 24, 128)
    first, mean = rows[:, 0], rows[:, 8:].mean(axis=1)
    for pooling, expected in (
        ("auto", first),
        ("class_token", first),
        ("mean", mean),
        ("both", np.concatenate([first, mean], axis=1)),
    ):
        backbone = of_keras_3.Backbone(tokens(24), pooling)
        backbone.build(images.shape)
        shape = backbone.compute_output_shape((None, SIDE, SIDE, 3))
        assert shape == [None, expected.shape[1]]
        np.testing.assert_allclose(backbone(images), expected, atol=1e-6)
    backbone = of_keras_3.Backbone(tokens(16))
    np.testing.assert_allclose(
        backbone(images), images.reshape(2, 16, 192).mean(axis=1), atol=1e-6
    )
    with pytest.raises(ValueError, match="which has no class token, got both"):
        of_keras_3.Backbone(tokens(16), "both").build(images.shape)


@pytest.mark.filterwarnings("error:The structure of `inputs`")
def test_an_input_may_have_a_name():
    """As DINOv2's of KerasHub has."""
    inputs = keras_3.Input((SIDE, SIDE, 3), name="images")
    network = keras_3.Model(
        {"images": inputs}, keras_3.layers.Flatten()(inputs)
    )
    encoder = models.BackboneEncoder(network, "none", normalize=False)
    np.testing.assert_array_equal(encoder(IMAGES), IMAGES.reshape(8, -1))


def test_what_is_no_backbone_is_named():
    inputs = keras_3.Input((SIDE, SIDE, 3))
    listing = keras_3.Model(inputs, [inputs, inputs])
    flat = keras_3.Model(inputs, keras_3.ops.mean(inputs, axis=(1, 2, 3)))
    layers = keras_3.layers.Flatten(), keras_3.layers.Dense(2)
    dense = keras_3.Sequential([keras_3.Input((16, 16, 3)), *layers])
    for network, message in (
        (listing, "`backbone` must put out one tensor, got list"),
        (flat, "`backbone` must put out .batch, dim. or"),
        (dense, "`backbone` must take images .None, 32, 32"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            models.as_encoder(network).build((None, SIDE, SIDE, 3))
        assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="`pooling` must be one of auto"):
        of_keras_3.Backbone(flat, "first")
    with pytest.raises(ValueError, match="`network` must be a keras.Model of"):
        of_keras_3.Backbone(keras.Sequential())
