"""Losses and diagnostics in models of Keras 3 are ours, to 1e-6."""

import doctest
import inspect

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import exceptions, losses, models
from supcon_tf.keras_2 import PACKAGE
from supcon_tf.keras_2 import keras as keras_2
from tests import forks

if PACKAGE == "keras":
    pytest.skip("Keras 2 alone is installed", allow_module_level=True)
import keras  # noqa: E402

from supcon_tf import keras_3  # noqa: E402

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=[8, 2, 5]).astype(np.float32)  # [batch, views, ...]
KERNEL = RNG.normal(size=[5, 4]).astype(np.float32)
CENTRES = RNG.normal(size=[4, 4]).astype(np.float32)
CLASSES = np.array([0, 3, 1, 1, 2, 0, 1, 3])
# float32 takes the first three for one class.
IDS = 2**31 - 1 - np.array([0, 1, 0, 1, 2, 2, 5000, 1])
AGES = np.array([20.5, 31, 20.5, 90, 4, 31, 55.25, 54.75], np.float32)
WEIGHTS = np.array([0, 1, 2, 3, 0.5, 1, 1, 2], np.float32)
SEVERAL = np.eye(4, dtype=np.int64)[CLASSES] | np.eye(4, dtype=np.int64)[0]

LOSSES, METRICS = (
    {
        name: loss_class
        for name, loss_class in vars(losses).items()
        if inspect.isclass(loss_class) and issubclass(loss_class, base)
    }
    for base in (keras_2.losses.Loss, keras_2.metrics.Metric)
)
# Arguments that a loss needs, and options with which it computes otherwise.
OPTIONS = {
    "BalancedSupConLoss": [{"temperature": 0.5}],
    "CrossEntropyLoss": [
        {"label_smoothing": 0.1, "class_shares": [1, 2, 1, 3]}
    ],
    "HierarchicalSupConLoss": [{"ancestors": [[0, 0], [0, 1], [1, 2], [1, 3]]}],
    "PaCoLoss": [{"class_shares": [0.1, 0.2, 0.3, 0.4]}],
    "SupConLoss": [
        {},
        {"formulation": "in", "denominator": "one_positive"},
        {"denominator": "sincere", "margin": 0.5, "hardness": 1.0},
        {"implementation": "dense", "temperature": 0.5},
        {"positives": "jaccard"},
        {"positives": "any", "implementation": "tiled"},
        {"positives_cap": 3, "implementation": "tiled"},
    ],
    "TripletLoss": [{"mining": "hard"}, {"mining": "semi_hard"}],
}
CASES = [
    (name, options) for name in LOSSES for options in OPTIONS.get(name, [{}])
]


def make_labels(name, options):
    """Returns labels that a loss with such options takes."""
    if name == "BinaryCrossEntropyLoss" or options.get("positives"):
        return SEVERAL
    if name == "RankNContrastLoss":
        return AGES
    return IDS if name in ("SupConLoss", "NPairsLoss") else CLASSES


def make_losses(name, options):
    """Returns a loss of Keras 3, and the loss of Keras 2 that it wraps."""
    options, keras_2_options = dict(options), dict(options)
    if "centres" in inspect.signature(LOSSES[name]).parameters:
        for kinds, arguments in ((keras_3, options), (models, keras_2_options)):
            arguments["centres"] = kinds.ClassCentres(*CENTRES.shape)
            arguments["centres"].build(None)
            arguments["centres"].set_weights([CENTRES])
    return getattr(keras_3, name)(**options), LOSSES[name](**keras_2_options)


def make_model(loss, metrics=(), **options):
    """Returns a model of weights KERNEL; SGD subtracts the gradient."""
    layers = [
        keras.Input(ROWS.shape[1:]),
        keras.layers.Dense(4, use_bias=False),
    ]
    if getattr(loss, "centres", None) is not None:
        layers.append(loss.centres)
    model = keras.Sequential(layers)
    model.layers[0].set_weights([KERNEL])
    sgd = keras.optimizers.SGD(1.0)
    model.compile(sgd, loss, metrics=[*metrics], **options)
    return model


def fit(model, labels, **options):
    """Returns the history of all samples in a batch, and the gradient."""
    options = {"batch_size": 8, "shuffle": False, "verbose": 0, **options}
    history = model.fit(ROWS, labels, **options).history
    return history, KERNEL - model.layers[0].get_weights()[0]


def compute_expected(keras_2_loss, labels, weights=None):
    kernel = tf.Variable(KERNEL)
    with tf.GradientTape() as tape:
        value = keras_2_loss(labels, ROWS @ kernel, weights)
    return value, tape.gradient(value, kernel)


def assert_fit_takes_gradient(model, keras_2_loss, labels, weights=None):
    history, gradient = fit(model, labels, sample_weight=weights)
    expected_loss, expected_gradient = compute_expected(
        keras_2_loss, labels, weights
    )
    assert_close(history["loss"], [expected_loss])
    assert_close(gradient, expected_gradient)


def assert_close(values, reference):
    scale = np.abs(reference).max()
    assert np.abs(np.subtract(values, reference)).max() < 1e-6 * max(scale, 1)


@pytest.mark.parametrize("name", [*LOSSES, *METRICS])
def test_every_class_of_ours_is_there(name):
    keras_3_class, keras_2_class = getattr(keras_3, name), getattr(losses, name)
    base = keras.losses.Loss if name in LOSSES else keras.metrics.Metric
    assert issubclass(keras_3_class, base)
    assert (keras_3_class.__name__, keras_3_class.__module__) == (
        name,
        "supcon_tf.keras_3",
    )
    arguments = dict(inspect.signature(keras_3_class).parameters)
    keras_2_arguments = dict(inspect.signature(keras_2_class).parameters)
    if name in LOSSES:
        reduction, auto = (
            arguments.pop("reduction"),
            keras_2_arguments.pop("reduction"),
        )
        assert reduction.default == "sum_over_batch_size"
        assert auto.default == "auto"
    assert [*arguments.items()] == [*keras_2_arguments.items()]
    lines = [
        line for line in keras_3_class.__doc__.splitlines() if ">>>" not in line
    ]
    keras_2_lines = [
        line for line in keras_2_class.__doc__.splitlines() if ">>>" not in line
    ]
    assert len(lines) == len(keras_2_lines) and lines[0] == keras_2_lines[0]


EXAMPLES = {
    name: example
    for name, public in vars(keras_3).items()
    if name[0] != "_" and hasattr(public, "__name__")
    for example in doctest.DocTestFinder(recurse=False).find(public, name)
    if not inspect.ismodule(public)
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name):
    source = "".join(step.source for step in EXAMPLES[name].examples)
    assert f"keras_3.{name}(" in source and " losses" not in source
    assert doctest.DocTestRunner(verbose=False).run(EXAMPLES[name]).failed == 0


@pytest.mark.parametrize(
    ("name", "options", "jit_compile"),
    [
        *((*case, False) for case in CASES),
        ("SupConLoss", {}, True),
        ("SupConLoss", {"positives_cap": 3, "implementation": "tiled"}, True),
        ("RankNContrastLoss", {}, True),
    ],
)
def test_fit_takes_our_gradient(name, options, jit_compile):
    """Of integers that float32 does not hold, with weights of samples."""
    loss, keras_2_loss = make_losses(name, options)
    labels = make_labels(name, options)
    model = make_model(loss, jit_compile=jit_compile)
    assert_fit_takes_gradient(model, keras_2_loss, labels, WEIGHTS)


@pytest.mark.parametrize(
    "labels",
    [
        CLASSES.astype(np.int32),
        CLASSES.astype(np.uint8),
        CLASSES[:, np.newaxis],
        np.eye(4)[CLASSES],
    ],
)
def test_labels_of_every_form(labels):
    history, _ = fit(make_model(keras_3.SupConLoss()), labels)
    assert_close(history["loss"], [losses.SupConLoss()(CLASSES, ROWS @ KERNEL)])


def test_labels_that_are_no_integers_are_refused():
    model = make_model(keras_3.SupConLoss())
    with pytest.raises(ValueError, match="`labels` must be integers, got floa"):
        fit(model, CLASSES.astype(np.float32))


@pytest.mark.parametrize("reduction", ["sum", "none", None])
def test_the_reduction_is_that_of_keras_3(reduction):
    sample_losses = losses.SupConLoss(reduction="none")(IDS, ROWS @ KERNEL)
    value = keras_3.SupConLoss(reduction=reduction)(IDS, ROWS @ KERNEL, WEIGHTS)
    weighted_losses = sample_losses * WEIGHTS
    assert_close(
        value, weighted_losses if reduction != "sum" else sum(weighted_losses)
    )
    loss = keras_3.SupConLoss(reduction="mean_with_sample_weight")
    value = loss(IDS, ROWS @ KERNEL, WEIGHTS)
    assert_close(value, sum(weighted_losses) / sum(WEIGHTS))
    assert_close(loss.call(IDS, ROWS @ KERNEL), sample_losses)


def test_arguments_are_attributes():
    loss = keras_3.SupConLoss(0.3, name="mine")
    assert (loss.temperature, loss.positives, loss.name) == (0.3, None, "mine")
    with pytest.raises(AttributeError):
        loss.temperature = 0.5
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        keras_3.SupConLoss(other=0.5)
    with pytest.raises(ValueError, match="`temperature` must be positive"):
        keras_3.SupConLoss(temperature=0)


def compute_diagnostics(parts, **options):
    """Returns the results for parts of a batch, one after the other."""
    metrics = losses.diagnostics(**options)
    for metric in metrics:
        for part in parts:
            metric.update_state(CLASSES[part], ROWS[part] @ KERNEL)
    return {metric.name: float(metric.result()) for metric in metrics}


@pytest.mark.parametrize("jit_compile", [False, True])
def test_diagnostics_are_right_and_anew_in_each_epoch(jit_compile):
    model = make_model(
        keras_3.SupConLoss(), keras_3.diagnostics(), jit_compile=jit_compile
    )
    model.optimizer.learning_rate = 0.0
    history, _ = fit(model, CLASSES, batch_size=3, epochs=2)
    expected_values = compute_diagnostics(
        [slice(0, 3), slice(3, 6), slice(6, 8)]
    )
    assert len(expected_values) == 6
    for name, value in expected_values.items():
        assert_close(history[name], [value, value])


@pytest.mark.parametrize(
    ("positives", "options", "labels"),
    [
        ("any", {"multi_label": True}, SEVERAL),
        ("soft", {"soft_labels": True}, SEVERAL / 2),
    ],
)
def test_diagnostics_of_several_labels(positives, options, labels):
    loss, metrics = keras_3.SupConLoss(positives=positives), losses.diagnostics
    history, _ = fit(make_model(loss, keras_3.diagnostics(**options)), labels)
    assert set(history) == {"loss", *(m.name for m in metrics(**options))}
    for metric in metrics(**options):
        value = float(metric(labels, ROWS @ KERNEL))
        assert_close(history[metric.name], [value])


def test_a_diagnostic_has_no_weights_of_samples():
    model = make_model(keras_3.SupConLoss())
    weighted = [keras_3.Alignment()]
    model.compile("sgd", keras_3.SupConLoss(), weighted_metrics=weighted)
    with pytest.raises(ValueError, match="`sample_weight` must be None"):
        fit(model, CLASSES, sample_weight=WEIGHTS)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("CrossEntropyLoss", {}),
        ("NPairsLoss", {}),
        ("PaCoLoss", {}),
        ("RankNContrastLoss", {}),
        ("SimCLRLoss", {}),
        ("SupConLoss", {}),
        ("SupConLoss", {"implementation": "dense"}),
    ],
)
def test_replicas_have_the_loss_of_one(name, options, mirrored_strategy):
    """Every anchor meets the views of both."""
    labels = make_labels(name, options)
    with mirrored_strategy.scope():
        loss, keras_2_loss = make_losses(name, options)
        model = make_model(loss)
    assert_fit_takes_gradient(model, keras_2_loss, labels, WEIGHTS)


def test_numbers_stay_what_they_are_in_the_scope_of_replicas(mirrored_strategy):
    """Where Keras 3 traces a trial step, labels become integers."""
    loss = keras_3.RankNContrastLoss(reduction="none")
    ages = np.linspace(1, 3, len(ROWS))
    expected = loss(ages, ROWS)
    with mirrored_strategy.scope():
        assert_close(loss(ages, ROWS), expected)


def test_diagnostics_of_replicas(mirrored_strategy):
    """All but the positives are of a replica, as ours are."""
    with mirrored_strategy.scope():
        model = make_model(keras_3.SupConLoss(), keras_3.diagnostics())
        model.optimizer.learning_rate = 0.0
    history, _ = fit(model, CLASSES, epochs=2)
    expected_values = compute_diagnostics([slice(0, 4), slice(4, 8)])
    single_device_values = compute_diagnostics([slice(0, 8)])
    for name in ("positives_per_anchor", "share_without_positives"):
        expected_values[name] = single_device_values[name]
    assert expected_values["alignment"] != single_device_values["alignment"]
    for name, value in expected_values.items():
        assert_close(history[name], [value, value])


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_the_loss_is_float32_in_mixed_precision(precision):
    default_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        model = make_model(keras_3.SupConLoss(), keras_3.diagnostics())
        projections = model(ROWS)
        history, gradient = fit(model, IDS)
    finally:
        keras.config.set_dtype_policy(default_policy)
    assert projections.dtype == precision.removeprefix("mixed_")
    assert_close(history["loss"], [losses.SupConLoss()(IDS, projections)])
    alignment = float(losses.Alignment()(IDS, projections))
    assert_close(history["alignment"], [alignment])
    _, expected_gradient = compute_expected(losses.SupConLoss(), IDS)
    assert (
        np.abs(gradient - expected_gradient).max()
        < 0.02 * np.abs(expected_gradient).max()
    )


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_loaded_model_has_its_loss(name, options, tmp_path):
    loss, keras_2_loss = make_losses(
        name, {**options, "name": "mine", "reduction": "sum"}
    )
    labels = make_labels(name, options)
    saved = make_model(loss)
    fit(saved, labels)
    saved.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is getattr(keras_3, name)
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.loss.name == "mine" and loaded.loss.reduction == "sum"
    for model in (saved, loaded):  # the state of the optimizer too
        fit(model, labels)
    assert_close(loaded.get_weights()[0], saved.get_weights()[0])


@pytest.mark.parametrize("name", METRICS)
def test_a_loaded_model_has_its_metric(name, tmp_path):
    options = {"anchors": 3} if "anchors" in dir(getattr(keras_3, name)) else {}
    metric = getattr(keras_3, name)(name="mine", **options)
    saved = make_model(keras_3.SupConLoss(), [metric])
    fit(saved, CLASSES)
    saved.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    values = [
        model.evaluate(ROWS, CLASSES, batch_size=8, verbose=0, return_dict=True)
        for model in (saved, loaded)
    ]
    assert values[0] == values[1] and values[0].keys() == {"loss", "mine"}
    (loaded_metric,) = loaded.metrics[-1].metrics
    assert loaded_metric.get_config() == metric.get_config()


def test_a_fresh_process_loads_it(tmp_path):
    """It knows the classes once they are imported."""
    model = make_model(keras_3.SupConLoss(0.3), [keras_3.Uniformity()])
    fit(model, IDS)
    model.save(tmp_path / "model.keras")
    process = forks.run(
        "import keras\nfrom supcon_tf import keras_3\n"
        'model = keras.models.load_model("model.keras")\n'
        "assert model.loss.temperature == 0.3\n"
        "assert type(model.loss) is keras_3.SupConLoss\n",
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr[-2000:]


def test_in_a_model_of_keras_2_they_are_refused():
    model = keras_2.Sequential([keras_2.layers.Dense(4)])
    model = models.SupConModel(model, models.ProjectionHead(4, ()))
    for name, arguments in (
        ("SupConLoss", {"loss": keras_3.SupConLoss()}),
        ("Alignment", {"metrics": keras_3.diagnostics()[1:]}),
    ):
        rule = f"got {name} of Keras 3: take supcon_tf.losses.{name}"
        with pytest.raises(exceptions.WrongKeras, match=rule):
            model.compile("sgd", **arguments)


@pytest.mark.parametrize("name", ["BalancedSupConLoss", "PaCoLoss"])
def test_centres_are_weights_of_the_model(name, tmp_path):
    loss, _ = make_losses(name, {})
    saved = make_model(loss)
    fit(saved, CLASSES)
    assert np.abs(loss.centres.get_weights()[0] - CENTRES).max() > 1e-3
    saved.save(tmp_path / "model.keras")
    first, second = (
        keras.models.load_model(tmp_path / "model.keras") for _ in range(2)
    )
    for model in (first, second):
        assert model.loss.centres is model.layers[-1]
        assert_close(model.get_weights()[1], loss.centres.get_weights()[0])
    assert first.loss.centres is not second.loss.centres


def test_weights_alone_have_the_centres(tmp_path):
    loss, restored_loss = (make_losses("PaCoLoss", {})[0] for _ in range(2))
    saved = make_model(loss)
    fit(saved, CLASSES)
    saved.save_weights(tmp_path / "model.weights.h5")
    inputs = keras.Input(ROWS.shape[1:])
    model = keras.Sequential([inputs, *make_model(restored_loss).layers])
    model.load_weights(tmp_path / "model.weights.h5")
    assert_close(
        restored_loss.centres.get_weights()[0], loss.centres.get_weights()[0]
    )


def test_a_config_alone_has_centres_of_its_own():
    loss, _ = make_losses("PaCoLoss", {})
    rebuilt = keras_3.PaCoLoss.from_config(loss.get_config())
    assert rebuilt.centres is not loss.centres
    assert rebuilt.centres.num_classes == loss.centres.num_classes


def test_centres_of_keras_2_would_not_train():
    centres = models.ClassCentres(4, 4)
    with pytest.raises(exceptions.WrongKeras, match="take supcon_tf.keras_3.C"):
        keras_3.PaCoLoss(centres)


def test_a_loss_has_its_queue(tmp_path):
    queue = losses.ProjectionQueue(4, 4)
    with pytest.warns(UserWarning, match="`fit` of Keras 3 does not fill it"):
        keras_3.SupConLoss(queue=queue)
    queue.enqueue(np.eye(4), [0, 1, 2, 3])
    model = make_model(keras_3.SupConLoss(queue=queue))
    assert_fit_takes_gradient(model, losses.SupConLoss(queue=queue), CLASSES)
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="`queue` is empty"):
        loaded = keras.models.load_model(tmp_path / "model.keras").loss.queue
    assert (loaded.size, loaded.dim, int(loaded.filled)) == (4, 4, 0)
