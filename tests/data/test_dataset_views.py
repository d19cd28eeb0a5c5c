"""Views of anybody's tf.data: every image, fresh views, one clear refusal."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, models
from supcon_tf.keras_2 import keras

SIDE = 16


def images(count=10):
    """Of one colour each, which a crop keeps."""
    colours = np.arange(10, 10 + 20 * count, 20, dtype=np.uint8)
    return np.broadcast_to(
        colours[:, None, None, None], [count, SIDE, SIDE, 3]
    ).copy()


def noise(count=10):
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, [count, SIDE, SIDE, 3]).astype(np.uint8)


def dataset(pixels=None, labels=None):
    pixels = noise() if pixels is None else pixels
    labels = np.arange(len(pixels)) if labels is None else labels
    return tf.data.Dataset.from_tensor_slices((pixels, labels))


def arrays(views):
    """The parts of all batches: views, labels, weights."""
    batches = views.as_numpy_iterator()
    return [*map(np.concatenate, zip(*batches, strict=True))]


@pytest.mark.slow(but=["False-uint8", "True-float32"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("has_batches", [False, True])
def test_every_image_has_its_views_and_its_label(dtype, has_batches):
    photos = dataset(images().astype(dtype))
    options = {"num_views": 3}
    if has_batches:
        photos = photos.batch(4)
    else:
        options["batch_size"] = 4
    batches = data.views_of(photos, 8, **options)
    assert batches.cardinality() == 3  # the last of two
    views, labels = arrays(batches)
    assert views.shape == (10, 3, 8, 8, 3) and views.dtype == np.uint8
    np.testing.assert_array_equal(labels, np.arange(10))
    expected = np.broadcast_to(images()[:, None, :8, :8], views.shape)
    np.testing.assert_array_equal(views, expected)


def test_views_differ_from_one_another_and_every_time():
    # Which other tests may have set: two crops of 8 pixels can be the same.
    tf.random.set_seed(0)

    def view_batches(seed=0):
        options = {"crop_area": (0.3, 1), "horizontal_flip": False}
        return data.views_of(dataset().batch(5), seed=seed, **options)

    batches = view_batches()
    first, second = arrays(batches)[0], arrays(batches)[0]
    assert first.shape == (10, 2, SIDE, SIDE, 3)
    views = np.concatenate([first, second]).reshape(40, -1)
    assert len(np.unique(views, axis=0)) == 40
    again = view_batches()
    for expected in (first, second):  # but the seed says what they are
        np.testing.assert_array_equal(arrays(again)[0], expected)
    assert (arrays(view_batches(seed=1))[0] != first).any()


def test_crop_flip_and_policy_are_those_of_make_views():
    """A flip alone leaves the image or mirrors it, a policy acts after it."""
    pixels = noise(40)
    options = {"crop_area": None, "num_views": 1}
    views = arrays(data.views_of(dataset(pixels).batch(40), **options))[0][:, 0]
    mirrored = pixels[:, :, ::-1]
    flipped = (views == mirrored).all(axis=(1, 2, 3))
    np.testing.assert_array_equal(views[~flipped], pixels[~flipped])
    assert 8 < flipped.sum() < 32
    options |= {"horizontal_flip": False}
    inverted = data.views_of(
        dataset(pixels).batch(40),
        augmentation=lambda images, seeds: 255 - images,
        **options,
    )
    np.testing.assert_array_equal(arrays(inverted)[0][:, 0], 255 - pixels)


def small_model():
    layers = [keras.layers.Flatten(), keras.layers.Dense(4)]
    network = keras.Sequential(layers)
    return models.SupConModel(network, models.ProjectionHead(8, (8,)))


@pytest.mark.slow  # the tutorial of Keras fits such views
def test_a_folder_by_keras_trains_and_validates(image_folder):
    photos = keras.utils.image_dataset_from_directory(
        image_folder / "train", image_size=(SIDE, SIDE), batch_size=20
    )
    views = data.views_of(photos, crop_area=None)
    model = small_model()
    model.compile("sgd", losses.SupConLoss(), run_eagerly=True)
    history = model.fit(views, epochs=2, validation_data=views, verbose=0)
    assert int(model.optimizer.iterations) == 2 * 3
    assert np.isfinite(history.history["val_loss"]).all()


def test_images_of_many_sizes_and_weights_of_samples():
    def photographs():
        for side in range(8, 12):
            image = np.full([side, 2 * side, 3], side, np.uint8)
            yield image, side % 2, side / 10

    photos = tf.data.Dataset.from_generator(
        photographs,
        output_signature=(
            tf.TensorSpec([None, None, 3], tf.uint8),
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec([], tf.float32),
        ),
    )
    views, labels, weights = arrays(data.views_of(photos, 6, batch_size=3))
    np.testing.assert_array_equal(views[:, 0, 0, 0, 0], [8, 9, 10, 11])
    assert labels.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(weights, [0.8, 0.9, 1.0, 1.1])
    with pytest.raises(ValueError, match="`image_size` must be given"):
        data.views_of(photos, batch_size=3)


@pytest.mark.slow(but=["0.00392156862745098"])
@pytest.mark.parametrize("scale", [1 / 255, 100])
def test_floats_of_another_range_are_refused(scale):
    photos = dataset(noise().astype(np.float32) * scale).batch(4)
    rule = "must yield images that are uint8, or floats in 0..255"
    with pytest.raises(tf.errors.InvalidArgumentError, match=rule):
        arrays(data.views_of(photos, crop_area=None))
    black = np.zeros([1, SIDE, SIDE, 3], np.float32)
    views = data.views_of(dataset(black).batch(1), crop_area=None)
    assert not arrays(views)[0].any()


@pytest.mark.slow
def test_replicas_train_on_views(mirrored_strategy):
    with mirrored_strategy.scope():
        model = small_model()
        model.compile("sgd", losses.SupConLoss())
    history = model.fit(data.views_of(dataset().batch(10)), verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_bad_arguments_are_named():
    photos, batches = dataset(), dataset().batch(2)
    integers = photos.map(
        lambda image, label: (tf.cast(image, tf.int32), label)
    )
    without_labels = photos.map(lambda image, label: image)
    for images, options, message in (
        (noise(), {}, "`dataset` must be a tf.data.Dataset; data.from"),
        (without_labels, {}, "must yield .image, label"),
        (integers, {"batch_size": 2}, "uint8 or floats in 0..255, got "),
        (photos, {}, "`batch_size` must be given for a dataset w"),
        (batches, {"batch_size": 2}, "and for no other one, got 2"),
        (batches, {"num_views": 0}, "`num_views` must be"),
        (batches, {"augmentation": "simaugmnt"},
         "`augmentation` must be one of identity, autoaugment.*'simaugmnt'"),
        (batches, {"augmentation": 3}, "must be a name, a "),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            data.views_of(images, **options)
