"""What Keras' fit, evaluate and predict are given: epochs and shapes."""

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data, losses, models
from supcon_tf.data import epoch_steps
from supcon_tf.keras_2 import keras

SIDE, BATCH, STEPS = 8, 4, 4
_RNG = np.random.default_rng(0)
IMAGES = _RNG.integers(0, 256, [BATCH * STEPS, SIDE, SIDE, 3], np.uint8)
LABELS = np.arange(BATCH * STEPS) % 4
VIEWS = np.stack([IMAGES, IMAGES[:, ::-1]], axis=1)


@epoch_steps.with_epochs
def make_batches(source, batch_size, start_step=0):
    """Two epochs in turn, without the tracing of `data.make_views`."""
    views = np.concatenate([VIEWS, 255 - VIEWS])
    dataset = tf.data.Dataset.from_tensor_slices((views, np.tile(LABELS, 2)))
    return dataset.batch(batch_size).repeat().skip(start_step)


def endless_views():
    return make_batches(data.from_arrays(IMAGES, LABELS), BATCH)


def network():
    dense = [keras.layers.Flatten(), keras.layers.Dense(4)]
    return keras.Sequential(dense)


class Recording(models.SupConModel):
    """Keeps the sum of every batch that it trains on."""

    def train_step(self, data):
        self.sums.append(int(tf.reduce_sum(tf.cast(data[0], tf.int64))))
        return super().train_step(data)


class Skipping(Recording):
    """Updates no weight, as a step that loss scaling skips."""

    def train_step(self, data):
        super().train_step(data)
        self.optimizer.iterations.assign_sub(1)
        return {"loss": 0.0}


def supcon_model(kind=models.SupConModel, **options):
    model = kind(network(), models.ProjectionHead(8, (8,)))
    model.compile("sgd", losses.SupConLoss(), **options)
    return model


def recording_model(kind=Recording):
    model = supcon_model(kind, run_eagerly=True)
    model.__dict__["sums"] = []  # Keras would wrap a list
    return model


def batch_sums(batches, count):
    return [
        int(tf.reduce_sum(tf.cast(views, tf.int64)))
        for views, _ in batches.take(count)
    ]


def test_endless_views_tell_the_length_of_their_epochs():
    model = supcon_model(run_eagerly=True)  # not traced three times
    history = model.fit(
        endless_views(), epochs=2, validation_data=endless_views(), verbose=0
    )
    assert int(model.optimizer.iterations) == 2 * STEPS
    assert len(history.history["val_loss"]) == 2
    mirrored = endless_views().map(
        lambda pixels, labels: (pixels[..., ::-1, :], labels)
    )
    loss = model.evaluate(mirrored, verbose=0)
    expected = model.evaluate(mirrored, steps=STEPS, verbose=0)
    assert loss == pytest.approx(expected)
    assert model.predict(endless_views(), verbose=0).shape == (16, 2, 8)
    model.fit(endless_views(), steps_per_epoch=1, verbose=0)
    assert int(model.optimizer.iterations) == 2 * STEPS + 1


def test_tokens_tell_the_length_of_their_epochs():
    tokens = np.full([6, 5, 2], 7, np.int32)
    source = data.from_tokens(tokens, [0, 1] * 3, ["a", "b"])
    assert data.make_token_views(source, 2).epochs.steps == 3


def test_a_second_fit_goes_on():
    batches = endless_views().map(lambda views, labels: (views[:, :1], labels))
    expected = batch_sums(batches, 8)
    assert len(set(expected)) == 8
    model, second_model = recording_model(Skipping), recording_model()
    for steps in (3, 1):
        model.fit(batches, steps_per_epoch=steps, verbose=0)
    model.fit(batches, verbose=0)
    assert model.sums == expected
    # Another model starts where the views do, and so does the dataset.
    second_model.fit(batches, steps_per_epoch=2, verbose=0)
    assert second_model.sums == expected[:2] == batch_sums(batches, 2)
    # A model that was loaded goes on at an epoch.
    loaded_model = recording_model()
    loaded_model.fit(batches, initial_epoch=1, epochs=2, verbose=0)
    assert loaded_model.sums == expected[4:]


def test_an_interrupted_fit_goes_on():
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    def make_views(step):
        source = data.from_arrays(IMAGES, LABELS)
        constant = {"crop_area": None, "horizontal_flip": False}
        return data.make_views(source, BATCH, start_step=step, **constant)

    model, batches = recording_model(), make_views(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches, callbacks=[Interrupt()], verbose=0)
    model.fit(batches, steps_per_epoch=2, verbose=0)
    assert model.sums == batch_sums(make_views(0), 5)[1:]


@pytest.mark.slow(but=["epoch"])
@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_a_backup_goes_on_with_its_views(tmp_path, save_freq):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == 2 * STEPS - 1:
                raise KeyboardInterrupt

    def fit(model, batches, *callbacks):
        backup = keras.callbacks.BackupAndRestore(tmp_path, save_freq)
        callbacks = [backup, *callbacks]
        model.fit(batches, epochs=2, callbacks=callbacks, verbose=0)

    expected = batch_sums(endless_views(), 2 * STEPS)
    saved_steps = STEPS if save_freq == "epoch" else 6
    model, batches = recording_model(), endless_views()
    with pytest.raises(KeyboardInterrupt):
        fit(model, batches, Interrupt())
    assert model.sums == expected[:-1]
    second_model, second_batches = recording_model(), endless_views()
    with pytest.raises(KeyboardInterrupt):  # in a new process
        fit(second_model, second_batches, Interrupt())
    fit(model, batches)  # in the same one
    for sums in (second_model.sums, model.sums[len(expected) - 1 :]):
        assert sums == expected[saved_steps : saved_steps + len(sums)]
    assert batches.epochs.trained[model] == 2 * STEPS


@pytest.mark.slow(but=["images-False", "tuple-True"])
@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("kind", ["images", "tuple"])
def test_wrong_shapes_are_refused_before_a_step_is_traced(kind, is_built):
    """So that the right data train the same model afterwards."""
    inputs, message = IMAGES, "`views` must be .*data.views_of.* got shape"
    if kind == "tuple":
        inputs = IMAGES, IMAGES
        message = "`x` must be one tensor.*got a tuple of 2"
    model = supcon_model()
    if is_built:
        model.fit(VIEWS, LABELS, batch_size=BATCH, verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, LABELS)).batch(BATCH)
    for call in (
        lambda: model.fit(dataset),
        lambda: model.evaluate(dataset),
        lambda: model.predict(dataset),
        lambda: model.fit(inputs, LABELS, batch_size=BATCH),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    if kind == "images":
        with pytest.raises(ValueError, match=message + r" \(16, 8, 8, 3\)"):
            model(IMAGES)
    assert model.built == is_built
    model.fit(VIEWS, LABELS, batch_size=BATCH, verbose=0)


def test_views_are_refused_where_images_are_taken():
    encoder = models.Encoder("vgg8", width=0.1)
    for model in (models.LinearClassifier(encoder, 4), encoder):
        for _ in range(2):  # not built, and built
            for call in (model, model.predict):
                with pytest.raises(ValueError, match="`images` must be .batch"):
                    call(VIEWS)
            model(IMAGES)


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
    metrics = [losses.ContrastiveAccuracy()]
    model.compile("sgd", losses.SupConLoss(), metrics, run_eagerly=True)
    model.fit(VIEWS, LABELS, verbose=0)

    model = models.ClassifierModel(network(), 4)
    loss = losses.CrossEntropyLoss()
    model.compile("sgd", loss, ["accuracy"], run_eagerly=True)
    history = model.fit(
        VIEWS, LABELS, validation_data=(VIEWS, LABELS), verbose=0
    ).history
    is_right = model(VIEWS).numpy().argmax(axis=2) == LABELS[:, None]
    assert history["val_accuracy"] == [pytest.approx(is_right.mean())]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    shares = np.eye(4)[LABELS].astype(np.float32)
    for labels in (LABELS, shares):
        scores = loaded.test_on_batch(VIEWS, labels, return_dict=True)
        assert scores["accuracy"] == pytest.approx(is_right.mean())


def test_hdf5_is_refused_before_an_epoch(tmp_path):
    model, path = recording_model(), str(tmp_path / "x.h5")
    checkpoint = keras.callbacks.ModelCheckpoint
    message = "`filepath` must end in .keras .*weights.h5.*, got .*x.h5"
    with pytest.raises(ValueError, match=message):
        model.fit(VIEWS, LABELS, callbacks=[checkpoint(path)])
    assert model.sums == []
    path = str(tmp_path / "x.weights.h5")
    callbacks = [checkpoint(path, save_weights_only=True)]
    model.fit(VIEWS, LABELS, callbacks=callbacks, verbose=0)
    model.load_weights(path)
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "x.h5")
