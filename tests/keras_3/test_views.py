"""Views in a network of Keras 3: fitted, saved and loaded by Keras alone."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses
from supcon_tf.keras_2 import PACKAGE

if PACKAGE == "keras":
    pytest.skip("Keras 2 alone is installed", allow_module_level=True)
import keras  # noqa: E402

from supcon_tf import keras_3  # noqa: E402

SIDE = 8
VIEWS = np.random.default_rng(0).integers(0, 256, [6, 2, SIDE, SIDE, 3])
VIEWS = VIEWS.astype(np.uint8)
LABELS = np.array([0, 0, 1, 1, 2, 2])


def make_network(*last_layers):
    layers = keras.layers.Conv2D(4, 3), keras.layers.Flatten(), *last_layers
    return keras.Sequential([keras.layers.Rescaling(1 / 255), *layers])


def compile_model(model, optimizer="sgd"):
    metrics = [keras_3.PositivesPerAnchor()]
    model.compile(optimizer, keras_3.SupConLoss(), metrics=metrics)
    return model


STEPS = 4  # of an epoch


def make_endless_views():
    """Views without end; every epoch has other positives."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [96, SIDE, SIDE, 3]).astype(np.uint8)
    source = data.from_arrays(images, rng.integers(0, 4, 96))
    return data.make_views(
        source, 24, augmentation="identity", image_size=SIDE, seed=0
    )


def count_positives(model, views, **options):
    """Returns the positives per anchor of each epoch, which differ."""
    history = model.fit(views, verbose=0, **options).history
    return history["positives_per_anchor"]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_views_are_those_of_the_network(dtype):
    model = keras_3.Views(make_network(keras.layers.Dense(5)))
    projections = model(VIEWS.astype(dtype))
    assert projections.shape == (6, 2, 5)
    for view in range(2):
        view_projections = model.network(VIEWS[:, view].astype(np.float32))
        np.testing.assert_allclose(
            projections[:, view], view_projections, atol=1e-6
        )


@pytest.mark.parametrize("shape", [(6, SIDE, SIDE, 3), (6, SIDE, SIDE)])
def test_images_without_views_are_refused(shape):
    """Their rows would be taken for views."""
    dense = keras.layers.Flatten(), keras.layers.Dense(4)
    model = compile_model(keras_3.Views(keras.Sequential(dense)))
    with pytest.raises(ValueError, match="`views` must be .*got shape .6, 8, "):
        model(np.zeros(shape, np.uint8))
    with pytest.raises(
        ValueError, match="`views` must be .*data.views_of make"
    ):
        model.fit(np.zeros(shape, np.uint8), LABELS, verbose=0)
    assert model(np.zeros(shape, np.float32)).shape == (6, SIDE, 4)


def test_a_feature_map_keeps_its_axes():
    model = keras_3.Views(keras.layers.Conv2D(4, 3))
    assert model(VIEWS).shape == (6, 2, 6, 6, 4)


def test_batch_normalisation_sees_all_views():
    norm = keras.layers.BatchNormalization(momentum=0.0)
    model = keras_3.Views(norm)
    views = VIEWS.astype(np.float32)
    outputs = model(views, training=True)
    np.testing.assert_allclose(
        norm.moving_mean, views.mean(axis=(0, 1, 2, 3)), rtol=1e-5
    )
    assert np.abs(np.mean(outputs, axis=(0, 1, 2, 3))).max() < 1e-5
    inference_outputs = model(views, training=False)
    np.testing.assert_allclose(outputs, inference_outputs, atol=1e-3)


def test_dropout_is_off_without_training():
    model = keras_3.Views(make_network(keras.layers.Dropout(0.5)))
    np.testing.assert_array_equal(model(VIEWS), model(VIEWS))
    assert (model(VIEWS, training=True) != model(VIEWS)).numpy().any()


def test_it_learns():
    keras.utils.set_random_seed(0)
    model = keras_3.Views(make_network(keras.layers.Dense(8)))
    model.compile(keras.optimizers.Adam(0.01), keras_3.SupConLoss())
    initial_loss = losses.SupConLoss()(LABELS, model(VIEWS))
    history = model.fit(VIEWS, LABELS, epochs=10, verbose=0).history
    np.testing.assert_allclose(history["loss"][0], initial_loss, rtol=1e-6)
    assert losses.SupConLoss()(LABELS, model(VIEWS)) < 0.8 * initial_loss


def test_endless_views_tell_their_epochs():
    """Two epochs at once, or one after the other, or the second alone."""
    datasets = {
        "at once": make_endless_views(),
        "in turn": make_endless_views(),
        "late": make_endless_views(),
    }
    models = {
        name: compile_model(keras_3.Views(make_network())) for name in datasets
    }
    accumulating = keras.optimizers.SGD(gradient_accumulation_steps=3)
    compile_model(models["in turn"], accumulating)
    both_epochs = count_positives(
        models["at once"], datasets["at once"], epochs=2
    )
    assert int(models["at once"].optimizer.iterations) == 2 * STEPS
    first, second = (
        count_positives(models["in turn"], datasets["in turn"])
        for _ in range(2)
    )
    assert both_epochs == first + second and first != second
    late = count_positives(
        models["late"], datasets["late"], initial_epoch=1, epochs=2
    )
    assert late == second


def test_endless_views_validate():
    model = compile_model(keras_3.Views(make_network()))
    views = make_endless_views()
    history = model.fit(views, validation_data=views, verbose=0).history
    evaluated = model.evaluate(views, verbose=0, return_dict=True)
    epoch_value = evaluated["positives_per_anchor"]
    assert history["val_positives_per_anchor"] == [epoch_value]
    assert model.predict(views, verbose=0).shape[:2] == (24 * STEPS, 2)
    step_projections = model.predict(views, steps=1, verbose=0)
    assert step_projections.shape[:2] == (24, 2)


def test_it_is_saved_and_loaded(tmp_path):
    norm = keras.layers.BatchNormalization()
    model = compile_model(
        keras_3.Views(make_network(norm, keras.layers.Dense(5)))
    )
    model.fit(VIEWS, LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, keras_3.Views)
    np.testing.assert_array_equal(loaded(VIEWS), model(VIEWS))
    images = VIEWS[:, 0].astype(np.float32)
    np.testing.assert_array_equal(loaded.network(images), model.network(images))
    for fitted in (model, loaded):
        fitted.fit(VIEWS, LABELS, verbose=0)
    np.testing.assert_allclose(loaded(VIEWS), model(VIEWS), atol=1e-6)


def test_it_is_a_layer_of_any_model(tmp_path):
    inputs = keras.Input([2, SIDE, SIDE, 3])
    outputs = keras_3.Views(make_network(keras.layers.Dense(5)))(inputs)
    assert outputs.shape == (None, 2, 5)
    model = compile_model(keras.Model(inputs, outputs))
    model.fit(VIEWS, LABELS, verbose=0)
    model.fit(make_endless_views(), steps_per_epoch=1, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(VIEWS), model(VIEWS))


def test_pixels_stay_what_they_are_in_half_precision():
    default_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras_3.Views(keras.layers.Flatten())
    finally:
        keras.config.set_dtype_policy(default_policy)
    pixels = model(VIEWS)
    assert pixels.dtype == tf.bfloat16
    np.testing.assert_array_equal(
        tf.cast(pixels, tf.float32), VIEWS.reshape(6, 2, -1)
    )


def test_replicas_train_as_one(mirrored_strategy):
    weights = []
    for strategy in (tf.distribute.get_strategy(), mirrored_strategy):
        with strategy.scope():
            keras.utils.set_random_seed(0)
            model = compile_model(
                keras_3.Views(make_network(keras.layers.Dense(5)))
            )
        history = model.fit(
            make_endless_views(), steps_per_epoch=3, verbose=0
        ).history
        weights.append((history["loss"][0], *model.get_weights()))
    for single_device, replicas in zip(*weights, strict=True):
        np.testing.assert_allclose(replicas, single_device, atol=1e-6)
