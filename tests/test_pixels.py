"""Images in 0..1 or normalised, where 0..255 is taken: refused everywhere."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, models, pixels, training
from supcon_tf.keras_2 import keras

SIDE = 8
RULE = "`images` must be uint8, or floats in 0..255"
REFUSED = (ValueError, tf.errors.InvalidArgumentError)
RANGES = {
    "unit": lambda levels: levels / 255,
    "symmetric": lambda levels: levels / 127.5 - 1,
    "normalised": lambda levels: (levels / 255 - [0.485, 0.456, 0.406]) / 0.225,
}


def images(count=8):
    """Floats in 0..255, whole numbers."""
    shape = [count, SIDE, SIDE, 3]
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.float32)


def scaled(form="unit", count=8):
    return RANGES[form](images(count)).astype(np.float32)


def views(floats):
    return np.stack([floats, floats[:, ::-1]], axis=1), np.arange(8) % 2


def encoder(**options):
    return models.Encoder("vgg8", width=0.1, **options)


def dense(*layers):
    """A network that is traced in no time."""
    last = keras.layers.Flatten(), keras.layers.Dense(4)
    return keras.Sequential([*layers, *last])


def supcon_model(jit_compile=False, momentum=False, **options):
    network, head = dense(), models.ProjectionHead(8, (8,))
    if momentum:
        queue = losses.ProjectionQueue(16, 8)
        model = models.MomentumSupConModel(network, head, queue, **options)
        loss = losses.SupConLoss(queue=queue)
    else:
        model = models.SupConModel(network, head, **options)
        loss = losses.SupConLoss()
    model.compile("sgd", loss, jit_compile=jit_compile)
    return model


@pytest.mark.parametrize("form", RANGES)
@pytest.mark.parametrize("precision", ["float32", "mixed_float16"])
def test_a_call_is_refused(float32_policy, precision, form):
    """Of one image too, in double and in half precision too."""
    keras.mixed_precision.set_global_policy(precision)
    network = encoder()
    for dtype in (np.float32, np.float64, tf.bfloat16, tf.float16):
        for count in (1, 8):
            with pytest.raises(ValueError, match=f"{RULE} .*by 255.*, got "):
                network(tf.cast(scaled(form, count), dtype))
    assert network(images()).shape == (8, 26)
    assert network(images().astype(np.uint8)).shape == (8, 26)


@pytest.mark.parametrize("training", [False, True])
def test_a_traced_call_is_refused(training):
    network = models.as_encoder(dense())
    network.build((None, SIDE, SIDE, 3))
    step = tf.function(lambda batch: network(batch, training=training))
    with pytest.raises(tf.errors.InvalidArgumentError, match=RULE):
        step(scaled())
    step(images())
    # A step of few images, as the last of an epoch may be: one black frame.
    step(scaled(count=3))


def test_black_frames_and_what_goes_beyond_pass():
    network = encoder()
    black = np.zeros([1, SIDE, SIDE, 3], np.float32)
    black[:, 2:4] = 1
    beyond = images() * 1.2 - 20.5  # as of a `pixel_range`
    for batch in (black, black * 0, beyond):
        assert len(network(batch)) == len(batch)
    assert len(pixels.check(black[:0])) == 0
    with pytest.raises(ValueError, match="round images that are nearly black"):
        network(black * 0.4)


def test_bytes_cost_nothing():
    network = models.as_encoder(dense())
    for dtype, checks in ((tf.uint8, 0), (tf.int32, 1), (tf.float32, 1)):
        spec = tf.TensorSpec([None, SIDE, SIDE, 3], dtype)
        graph = tf.function(network, input_signature=[spec])
        graph = graph.get_concrete_function().graph
        kinds = [operation.type for operation in graph.get_operations()]
        assert kinds.count("Assert") == checks
        dataset = tf.data.Dataset.from_tensors(tf.zeros([1, 4, 4, 3], dtype))
        assert (pixels.checked(dataset) is dataset) == (checks == 0)


@pytest.mark.slow(but=["kind0-options0"])
@pytest.mark.parametrize("options", [{}, {"jit_compile": True}])
@pytest.mark.parametrize(
    "kind", [{}, {"momentum": True}, {"gradient_cache_chunks": 4}]
)
def test_training_is_refused(kind, options):
    model = supcon_model(**kind, **options)
    inputs, labels = views(scaled())
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(4)
    for wrong in ((inputs, labels), (tf.constant(inputs), labels), (dataset,)):
        with pytest.raises(REFUSED, match=RULE):
            model.fit(*wrong, batch_size=8 if len(wrong) == 2 else None)
    history = model.fit(  # In the same model the right images train.
        dataset.map(lambda inputs, labels: (inputs * 255, labels)), verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint16", "int32", "int64"])
def test_integers_of_another_range_are_refused(dtype):
    """Those of a mask, of 16 bits or centred; in 0..255 they are pixels."""
    network, levels = models.as_encoder(dense()), images()
    wrong = [levels > 9] if dtype == "bool" else [levels * 99, levels - 128]
    for inputs in [values.astype(dtype) for values in wrong]:
        dataset = tf.data.Dataset.from_tensors(inputs)
        for call, values in (
            (network, inputs),
            (network.predict, inputs),
            (network.predict, dataset),
        ):
            with pytest.raises(REFUSED, match=RULE):
                call(values)
    if dtype != "bool":
        np.testing.assert_array_equal(
            network(levels.astype(dtype)), network(levels)
        )


def test_every_entry_of_keras_is_refused():
    network, inputs = models.as_encoder(dense()), scaled()
    dataset = tf.data.Dataset.from_tensor_slices(inputs).batch(1)
    classifier = models.LinearClassifier(network, 2)
    classifier.compile("sgd", losses.CrossEntropyLoss())
    labels = np.arange(8) % 2
    for call in (
        lambda: network.predict(inputs, verbose=0),
        lambda: network.predict(inputs[:1], verbose=0),
        lambda: network.predict(dataset, verbose=0),
        lambda: network.predict_on_batch(inputs),
        lambda: classifier.fit(inputs, labels, verbose=0),
        lambda: classifier.evaluate(inputs, labels, verbose=0),
        lambda: classifier.train_on_batch(inputs, labels),
        lambda: classifier.fit(
            images(), labels, validation_data=(inputs, labels), verbose=0
        ),
    ):
        with pytest.raises(REFUSED, match=RULE):
            call()
    assert network.predict(images(), verbose=0).shape == (8, 4)


@pytest.mark.slow
def test_replicas_are_refused(mirrored_strategy):
    with mirrored_strategy.scope():
        model = supcon_model()
    inputs, labels = views(scaled())
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(8)
    with pytest.raises(REFUSED, match=RULE):
        model.fit(dataset, verbose=0)
    model.fit(
        dataset.map(lambda inputs, labels: (inputs * 255, labels)), verbose=0
    )
    with mirrored_strategy.scope():
        network = models.as_encoder(dense())
        network.build((None, SIDE, SIDE, 3))
    step = tf.function(
        lambda inputs: mirrored_strategy.run(network, args=(inputs,))
    )
    step(images())
    with pytest.raises(REFUSED, match=RULE):
        step(scaled())


def test_a_dataset_may_turn_black():
    """Once a batch was right, a black one ends no training."""
    inputs = images()
    inputs[4:] = scaled()[4:]
    batches = tf.data.Dataset.from_tensor_slices((inputs, inputs)).batch(4)
    checked = pixels.checked(batches)
    for (got, _), (expected, _) in zip(checked, batches, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert checked.element_spec == batches.element_spec
    endless = pixels.checked(batches.repeat())
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY


def test_who_normalises_images_is_left_alone():
    """Encoders that are told so, and networks with another input."""
    inputs = scaled("normalised")
    unit = encoder(image_mean=(0, 0, 0), image_std=(1 / 255,) * 3)
    assert unit.predict(inputs, verbose=0).shape == (8, 26)

    plain = models.BackboneEncoder(dense(), preprocessing="none")
    assert plain.predict(inputs, verbose=0).shape == (8, 4)
    rescales = keras.layers.Rescaling(1 / 255)
    normalises = keras.layers.Normalization(mean=[100] * 3, variance=[9] * 3)
    for options in (
        {"backbone": dense(), "preprocessing": "auto"},
        {"backbone": dense(), "preprocessing": "torch"},
        {"backbone": dense(rescales), "preprocessing": "none"},
        {"backbone": dense(normalises), "preprocessing": "auto"},
    ):
        with pytest.raises(ValueError, match=RULE):
            models.BackboneEncoder(**options)(inputs)


def test_a_source_is_trusted():
    """The last slices of a scan are black, and in 0..255 by their making."""
    slices = scaled(count=12)
    slices[:6] *= 255
    source = data.from_arrays(slices, [0] * 12, pixel_range=(0, 255))
    encoder = models.as_encoder(dense())
    encoded, _ = training.represent(encoder, source, batch_size=6)
    assert encoded.shape == (12, 4)


def test_a_saved_encoder_refuses_too(tmp_path):
    network = models.as_encoder(dense())
    network(images())
    network.save(tmp_path / "encoder.keras")
    loaded = keras.models.load_model(tmp_path / "encoder.keras")
    with pytest.raises(ValueError, match=RULE):
        loaded(scaled())
    spec = tf.TensorSpec([None, SIDE, SIDE, 3])
    call = tf.function(network, input_signature=[spec])
    tf.saved_model.save(network, str(tmp_path / "saved"), call)
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures
    with pytest.raises(tf.errors.InvalidArgumentError, match=RULE):
        serve["serving_default"](tf.constant(scaled()))
