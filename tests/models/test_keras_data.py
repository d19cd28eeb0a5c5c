"""What Keras' fit, evaluate and predict are given: epochs and shapes."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, models
from supcon_tf.keras_2 import keras

SIDE, BATCH, STEPS = 8, 4, 4


def images(count=BATCH * STEPS):
    shape = [count, SIDE, SIDE, 3]
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def views(**options):
    source = data.from_arrays(images(), np.arange(BATCH * STEPS) % 4)
    return data.make_views(source, BATCH, **options)


def network():
    dense = [keras.layers.Flatten(), keras.layers.Dense(4)]
    return keras.Sequential(dense)


class Recording(models.SupConModel):
    """Keeps the sum of every batch that it trains on."""

    def train_step(self, data):
        self.sums.append(int(tf.reduce_sum(tf.cast(data[0], tf.int64))))
        return super().train_step(data)


def supcon_model(kind=models.SupConModel, **options):
    model = kind(network(), models.ProjectionHead(8, (8,)))
    model.compile("sgd", losses.SupConLoss(), **options)
    return model


def recording_model():
    model = supcon_model(Recording, run_eagerly=True)
    model.__dict__["sums"] = []  # Keras would wrap a list
    return model


def sums_of(batches, count):
    return [int(tf.reduce_sum(tf.cast(batch, tf.int64))) for batch, _ in
            batches.take(count)]  # fmt: skip


@pytest.mark.slow
def test_endless_views_know_their_epoch():
    model = supcon_model(run_eagerly=True)  # not traced three times
    history = model.fit(
        views(), epochs=2, validation_data=views(seed=1), verbose=0
    )
    assert int(model.optimizer.iterations) == 2 * STEPS
    assert len(history.history["val_loss"]) == 2
    mirrored = views().map(
        lambda pixels, labels: (pixels[..., ::-1, :], labels)
    )
    loss = model.evaluate(mirrored, verbose=0)
    expected = model.evaluate(mirrored, steps=STEPS, verbose=0)
    assert loss == pytest.approx(expected)
    assert model.predict(views(), verbose=0).shape == (16, 2, 8)
    model.fit(views(), steps_per_epoch=1, verbose=0)
    assert int(model.optimizer.iterations) == 2 * STEPS + 1


def test_tokens_know_their_epoch():
    tokens = np.full([6, 5, 2], 7, np.int32)
    source = data.from_tokens(tokens, [0, 1] * 3, ["a", "b"])
    assert data.make_token_views(source, 2).epochs.steps == 3


@pytest.mark.slow(but=["None"])
@pytest.mark.parametrize(
    "change", [None, lambda pixels, labels: (pixels[:, ::-1], labels)]
)
def test_a_second_fit_goes_on(change):
    batches = views() if change is None else views().map(change)
    expected = sums_of(batches, 8)
    assert len(set(expected)) == 8
    model, another = recording_model(), recording_model()
    for steps in (3, 1):
        model.fit(batches, steps_per_epoch=steps, verbose=0)
    model.fit(batches, verbose=0)
    assert model.sums == expected
    # Another model starts where the views do, and so does the dataset.
    another.fit(batches, steps_per_epoch=2, verbose=0)
    assert another.sums == expected[:2] == sums_of(batches, 2)
    # As one that is loaded goes on at an epoch.
    loaded = recording_model()
    loaded.fit(batches, initial_epoch=1, epochs=2, verbose=0)
    assert loaded.sums == expected[4:]


def test_an_interrupted_fit_goes_on():
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    model, batches = recording_model(), views(start_step=1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches, callbacks=[Interrupt()], verbose=0)
    model.fit(batches, steps_per_epoch=2, verbose=0)
    assert model.sums == sums_of(views(), 5)[1:]


WRONG = {
    "images": (
        lambda pixels: pixels,
        "`views` must be .*data.views_of.* got shape",
    ),
    "a tuple": (
        lambda pixels: (pixels, pixels),
        "`x` must be one tensor.*got a tuple of 2",
    ),
}


@pytest.mark.slow(but=["images-False", "a tuple-True"])
@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_refused_before_anything_is_traced(kind, built):
    """So that the right data train the same model afterwards."""
    change, message = WRONG[kind]
    model, pixels, labels = supcon_model(), images(8), np.arange(8) % 2
    if built:
        model.fit(views(), steps_per_epoch=1, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices(
        (change(pixels), labels)
    ).batch(4)
    arrays = list(change(pixels)) if kind == "a tuple" else change(pixels)
    for call in (
        lambda: model.fit(dataset),
        lambda: model.evaluate(dataset),
        lambda: model.predict(dataset),
        lambda: model.fit(arrays, labels, batch_size=4)
        if kind == "images"
        else model.fit(tuple(arrays), labels),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    if kind == "images":
        with pytest.raises(ValueError, match=message + r" \(8, 8, 8, 3\)"):
            model(pixels)
    assert model.built == built
    model.fit(views(), steps_per_epoch=1, verbose=0)


@pytest.mark.parametrize("kind", [models.LinearClassifier, models.Encoder])
def test_views_are_refused_where_images_are_taken(kind):
    encoder = models.Encoder("vgg8", width=0.1)
    model = encoder
    if kind is models.LinearClassifier:
        model = kind(encoder, 4)
    batch = next(iter(views()))[0]
    for _ in range(2):  # not built, and built
        for call in (model, lambda pixels: model.predict(pixels, verbose=0)):
            with pytest.raises(ValueError, match="`images` must be .batch, h"):
                call(batch)
        model(batch[:, 0])


def test_a_path_is_no_tensor():
    classifier = models.LinearClassifier(models.Encoder("vgg8", width=0.1), 4)
    message = "`x` must be a tensor or .* supcon_tf.load .*, got photo.jpg"
    with pytest.raises(ValueError, match=message):
        classifier.predict("photo.jpg")


def test_accuracy_is_that_of_projections_or_of_every_view(tmp_path):
    model = models.SupConModel(network(), models.ProjectionHead(8, (8,)))
    rule = "`metrics` must be of projections, as losses.ContrastiveAccuracy.. "
    with pytest.raises(ValueError, match=rule + ".*, got accuracy"):
        model.compile("sgd", losses.SupConLoss(), metrics=["accuracy"])
    eagerly = {"run_eagerly": True}
    metrics = [losses.ContrastiveAccuracy()]
    model.compile("sgd", losses.SupConLoss(), metrics=metrics, **eagerly)
    model.fit(views(), verbose=0)

    model = models.ClassifierModel(network(), 4)
    loss = losses.CrossEntropyLoss()
    model.compile("sgd", loss, metrics=["accuracy"], **eagerly)
    history = model.fit(views(), validation_data=views(), verbose=0).history
    pixels = np.concatenate([batch for batch, _ in views().take(STEPS)])
    classes = np.concatenate([batch for _, batch in views().take(STEPS)])
    right = model(pixels).numpy().argmax(axis=2) == classes[:, None]
    assert history["val_accuracy"] == [pytest.approx(right.mean())]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    shares = np.eye(4)[classes].astype(np.float32)
    for labels in (classes, shares):
        measured = again.evaluate(pixels, labels, verbose=0, return_dict=True)
        assert measured["accuracy"] == pytest.approx(right.mean())


def test_hdf5_is_refused_before_an_epoch(tmp_path):
    model, path = recording_model(), str(tmp_path / "x.h5")
    checkpoint = keras.callbacks.ModelCheckpoint
    message = "`filepath` must end in .keras .*weights.h5.*, got .*x.h5"
    with pytest.raises(ValueError, match=message):
        model.fit(views(), callbacks=[checkpoint(path)])
    assert model.sums == []
    path = str(tmp_path / "x.weights.h5")
    callbacks = [checkpoint(path, save_weights_only=True)]
    model.fit(views(), callbacks=callbacks, verbose=0)
    model.load_weights(path)
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "x.h5")
