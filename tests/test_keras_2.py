"""Objects of Keras 3 in models of ours, and ours in models of Keras 3.

Each is an error of one line at once, or works: none is silent.
"""

import inspect
import warnings

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import (
    augment,
    data,
    exceptions,
    keras_2,
    losses,
    models,
    serving,
    training,
)
from supcon_tf.keras_2 import PACKAGE, keras

if PACKAGE == "keras":
    pytest.skip("Keras 2 alone is installed", allow_module_level=True)
import keras as keras_3  # noqa: E402

SIDE = 8
VIEWS = np.zeros([4, 2, SIDE, SIDE, 3], np.uint8)
LABELS = np.array([0, 0, 1, 1])
ROWS = np.random.default_rng(0).normal(size=[4, 6]).astype(np.float32)


def network_3():
    layers = keras_3.layers.Conv2D(4, 3), keras_3.layers.Flatten()
    return keras_3.Sequential([keras_3.Input([SIDE, SIDE, 3]), *layers])


class Batches(keras_3.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return VIEWS, LABELS


def encoder():
    return keras.Sequential([keras.layers.Conv2D(4, 3), keras.layers.Flatten()])


def supcon_model(**parts):
    arguments = {"projection_head": models.ProjectionHead(4, ()), **parts}
    return models.SupConModel(encoder(), **arguments)


def compiled(optimizer="sgd", loss=None, metrics=None):
    model = supcon_model()
    model.compile(optimizer, loss or losses.SupConLoss(), metrics)
    return model


def fit(views=VIEWS, labels=LABELS, **options):
    return compiled().fit(views, labels, verbose=0, **options)


# A call for each argument that gets an object of Keras 3.
CALLS = {
    "encoder": lambda: models.as_encoder(keras_3.layers.Dense(2)),
    "encoder to load into": lambda: models.load_weights(network_3(), "a.h5"),
    "encoder to represent": lambda: training.represent(
        network_3(), data.load("digits", "test")
    ),
    "classifier to export": lambda: serving.export_saved_model(
        encoder(),
        "export",
        classifier=keras_3.layers.Dense(2),
        image_size=SIDE,
        class_names=["a", "b"],
    ),
    "backbone": lambda: models.BackboneEncoder(keras_3.layers.Dense(2)),
    "projection_head": lambda: supcon_model(projection_head=network_3()),
    "classifier": lambda: supcon_model(classifier=keras_3.layers.Dense(2)),
    "optimizer": lambda: compiled(keras_3.optimizers.SGD(0.1)),
    "loss": lambda: compiled(loss=keras_3.losses.MeanSquaredError()),
    "metrics": lambda: compiled(metrics={"a": [keras_3.metrics.Mean()]}),
    "callbacks": lambda: fit(callbacks=[keras_3.callbacks.EarlyStopping()]),
    "x": lambda: fit(Batches(), None),
    "validation_data": lambda: fit(validation_data=Batches()),
    "dtype": lambda: models.ProjectionHead(
        4, (), dtype=keras_3.DTypePolicy("mixed_bfloat16")
    ),
    "inputs": lambda: models.ProjectionHead(4, ())(keras_3.Input([6])),
}


def one_line_of(function):
    with pytest.raises(TypeError) as caught:
        function()
    assert isinstance(caught.value, exceptions.WrongKeras)
    line = str(caught.value)
    assert "\n" not in line and len(line) <= 400
    return line


@pytest.mark.parametrize("name", CALLS)
def test_objects_of_keras_3_are_refused(name):
    line = one_line_of(CALLS[name])
    argument = name.partition(" ")[0]
    assert line.startswith(f"`{argument}` must be of Keras 2, got ")
    assert "of Keras 3: make it with `from supcon_tf.keras_2 import" in line


def test_a_network_has_another_way():
    remedy = 'save_weights("its.weights.h5")'
    assert remedy in one_line_of(CALLS["projection_head"])
    assert remedy not in one_line_of(CALLS["optimizer"])


def test_a_function_of_the_tools_returns_a_model(tmp_path, monkeypatch):
    (tmp_path / "theirs_3.py").write_text(
        "import keras\ndef layer():\n    return keras.layers.Conv2D(4, 3)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    line = one_line_of(lambda: models.named_encoder("theirs_3:layer", SIDE))
    assert line.startswith("`architecture` must be of Keras 2, got Conv2D")


def in_keras_3(loss, metrics=(), **options):
    model = keras_3.Sequential([keras_3.Input([6]), keras_3.layers.Dense(4)])
    model.compile("sgd", loss, metrics=[*metrics], **options)
    return model


def called(name):
    return f"`{name}` must be in a model of Keras 2, got a call by Keras 3"


def test_a_loss_in_keras_3_is_refused():
    """Keras 3 would leave out the weights of samples, and say nothing."""
    loss = losses.SupConLoss()
    for keras_3_loss, labels, options in (
        (loss, LABELS, {}),
        (loss, np.eye(2)[LABELS], {"run_eagerly": True}),
        (lambda y_true, y_pred: loss(y_true, y_pred), LABELS, {}),
    ):
        model = in_keras_3(keras_3_loss, **options)
        line = one_line_of(lambda m=model, y=labels: m.fit(ROWS, y, verbose=0))
        assert line.startswith(called("SupConLoss"))
        assert "take supcon_tf.keras_3.SupConLoss, the same" in line


def test_every_loss_and_metric_looks_who_calls():
    for kind in vars(losses).values():
        if inspect.isclass(kind) and issubclass(kind, keras.losses.Loss):
            assert issubclass(kind, losses.inputs.Loss), kind
        if inspect.isclass(kind) and issubclass(kind, keras.metrics.Metric):
            base = losses.diagnostics.__globals__["_Diagnostic"]
            assert kind.update_state is base.update_state, kind


def test_a_metric_in_keras_3_is_refused():
    """Its means would be taken for values of each sample."""
    for metric in losses.diagnostics():
        model = in_keras_3("mse", [metric])
        line = one_line_of(lambda model=model: model.fit(ROWS, ROWS[:, :4]))
        name = type(metric).__name__
        assert line.startswith(called(name))
        assert f"take supcon_tf.keras_3.{name}, the same" in line


def test_a_direct_call_takes_tensors_of_keras_3():
    labels = keras_3.ops.convert_to_tensor(LABELS)
    rows = keras_3.ops.convert_to_tensor(ROWS)
    expected = losses.SupConLoss()(LABELS, ROWS)
    assert float(losses.SupConLoss()(labels, rows)) == float(expected)


class Around(keras_3.Model):
    """A model of Keras 3 that calls an encoder of ours."""

    def __init__(self, **options):
        super().__init__()
        self.part = models.Encoder("vgg8", width=0.05)
        self.dense = keras_3.layers.Dense(2)
        self.options = options

    def call(self, images):
        return self.dense(self.part(images, **self.options))


def test_an_encoder_in_keras_3_would_not_train():
    images = np.zeros([2, 32, 32, 3], np.uint8)
    refused = "`Encoder` must be in a model of Keras 2.*make the model with tf_"
    with pytest.raises(TypeError, match=refused):
        Around()(images)
    assert Around(training=False)(images).shape == (2, 2)


def test_layers_of_keras_3_augment():
    """They take pixels and return them; Keras 3 draws in tf.data as well."""
    turn = keras_3.Sequential([keras_3.layers.RandomRotation(0.2)])
    digits = data.load("digits", "train")
    options = {"crop_area": None, "horizontal_flip": False}
    views = data.make_views(digits, 8, augmentation=turn, **options)
    batches = [views for views, _ in views.take(2)]
    assert batches[0].dtype == tf.uint8
    assert (batches[0][:, 0] != batches[0][:, 1]).numpy().any()
    pixels = tf.zeros([2, SIDE, SIDE, 3], tf.uint8)
    black = augment.policy(turn)(pixels, [[0, 1], [0, 2]])
    assert black.shape == pixels.shape and not black.numpy().any()


def test_a_precision_of_keras_3_alone_is_told(float32_policy):
    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled()
        return [
            str(warning.message)
            for warning in caught
            if "policy of" in str(warning.message)
        ]

    assert told() == []
    before = keras_3.config.dtype_policy()
    try:
        keras_3.mixed_precision.set_global_policy("mixed_bfloat16")
        (line,) = told()
        assert line.startswith("the policy of Keras 3, mixed_bfloat16, has no")
        assert "\n" not in line and len(line) <= 400
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        assert told() == []
    finally:
        keras_3.config.set_dtype_policy(before)


def test_a_config_may_be_what_a_model_tracks():
    """A model wraps its dictionaries and lists."""
    holder = keras.Model()
    holder.config = keras.saving.serialize_keras_object(
        keras.layers.Reshape([2, 3])
    )
    holder.config["config"]["target_shape"] = [2, 3]
    layer = keras_2.deserialized(holder.config)
    assert tuple(layer.target_shape) == (2, 3)
