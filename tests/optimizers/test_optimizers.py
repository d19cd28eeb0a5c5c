"""Every optimizer against its formula in NumPy, step by step."""

import importlib

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import training
from supcon_tf.keras_2 import keras
from supcon_tf.optimizers import lamb
from supcon_tf.training import callbacks

# A schedule at work: warm-up, peak, two decays.
SCHEDULE = training.WarmupExponential(0.1, 2, 0.5, warmup_steps=2)
RATES = [0.05, 0.1, 0.1, 0.1, 0.05, 0.05, 0.025]


# Formulas: the next w from w, gradient g, memory, learning rate, step t = 1...
# and the optimizer's options; `kernel` is 0 for tensors of rank 1.


def sgd(w, g, memory, rate, t, kernel, *, momentum, nesterov, l2):
    g = g + kernel * l2 * w
    v = memory["v"] = momentum * memory.get("v", 0) - rate * g
    return w + (momentum * v - rate * g if nesterov else v)


def lars(w, g, memory, rate, t, kernel, *, momentum, trust_coefficient, l2):
    g = g + kernel * l2 * w
    if kernel:
        rate *= trust_coefficient * np.linalg.norm(w) / np.linalg.norm(g)
    v = memory["v"] = momentum * memory.get("v", 0) + rate * g
    return w - v


def rmsprop(w, g, memory, rate, t, kernel, *, rho, momentum, epsilon, l2):
    g = g + kernel * l2 * w
    s = memory["s"] = rho * memory.get("s", 0) + (1 - rho) * g**2
    v = momentum * memory.get("v", 0) + rate * g / np.sqrt(s + epsilon)
    memory["v"] = v
    return w - v


def adam(w, g, memory, rate, t, kernel, *, epsilon, l2):
    g = g + kernel * l2 * w
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    s = memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * g**2
    rate *= np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return w - rate * m / (np.sqrt(s) + epsilon)


def adamw(w, g, memory, rate, t, kernel, *, epsilon, weight_decay):
    w = w - kernel * rate * weight_decay * w
    return adam(w, g, memory, rate, t, kernel, epsilon=epsilon, l2=0)


def lamb_step(w, g, memory, rate, t, kernel, *, epsilon, weight_decay):
    m = memory["m"] = 0.9 * memory.get("m", 0) + 0.1 * g
    s = memory["s"] = 0.999 * memory.get("s", 0) + 0.001 * g**2
    u = m / (1 - 0.9**t) / (np.sqrt(s / (1 - 0.999**t)) + epsilon)
    u = u + kernel * weight_decay * w
    if kernel:
        rate *= np.linalg.norm(w) / np.linalg.norm(u)
    return w - rate * u


CASES = [
    *[
        (training.SGD, sgd, dict(momentum=momentum, nesterov=nesterov, l2=l2))
        for momentum, nesterov, l2 in (
            (0.0, False, 0.1),
            (0.9, False, 0.1),
            (0.9, True, 0.0),
        )
    ],
    (training.LARS, lars, dict(momentum=0.9, trust_coefficient=0.5, l2=0.1)),
    (training.LARS, lars, dict(momentum=0.0, trust_coefficient=0.5, l2=0.0)),
    (
        training.RMSProp,
        rmsprop,
        dict(rho=0.9, momentum=0.8, epsilon=1e-3, l2=0.1),
    ),
    (training.Adam, adam, dict(epsilon=1e-2, l2=0.1)),
    (training.AdamW, adamw, dict(epsilon=1e-2, weight_decay=0.1)),
    (lamb.LAMB, lamb_step, dict(epsilon=1e-2, weight_decay=0.1)),
]


@pytest.mark.parametrize(("optimizer_class", "formula", "options"), CASES)
def test_the_optimizer_is_its_formula(optimizer_class, formula, options):
    """And with a share of the learning rate, that of the smaller rate."""
    rng = np.random.default_rng(0)
    expected = [rng.normal(size=shape) for shape in ([3, 4], [4], [3, 4], [4])]
    shares = [1.0, 1.0, 0.3, 0.3]
    variables = [tf.Variable(w, dtype=tf.float32) for w in expected]
    memories = [{} for _ in expected]
    optimizer = optimizer_class(SCHEDULE, **options)
    optimizer.set_learning_rate_shares(
        zip(variables[2:], shares[2:], strict=True)
    )
    for t, rate in enumerate(RATES, 1):
        gradients = [rng.normal(size=w.shape) for w in expected]
        optimizer.apply_gradients(
            (tf.constant(g, tf.float32), variable)
            for g, variable in zip(gradients, variables, strict=True)
        )
        assert float(optimizer.learning_rate) == pytest.approx(rate)
        for i, g in enumerate(gradients):
            kernel = float(g.ndim > 1)
            share_rate = rate * shares[i]
            expected[i] = formula(
                expected[i], g, memories[i], share_rate, t, kernel, **options
            )
            np.testing.assert_allclose(
                variables[i], expected[i], rtol=1e-5, atol=1e-6
            )


def test_serialisation_keeps_every_number():
    for optimizer_class, _, options in CASES:
        optimizer = optimizer_class(SCHEDULE, **options)
        config = keras.optimizers.serialize(optimizer)
        rebuilt = keras.optimizers.deserialize(config)
        assert type(rebuilt) is optimizer_class
        config = rebuilt.get_config()
        assert config == optimizer.get_config()
        assert config.items() >= options.items()
        assert config["learning_rate"]["config"] == SCHEDULE.get_config()


@pytest.mark.parametrize(
    "optimizer_class",
    [training.SGD, training.LARS, training.Adam, training.RMSProp],
)
def test_keras_decay_is_of_kernels_by_their_share(optimizer_class):
    shapes = [2, 2], [2, 2], [2]
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    optimizer = optimizer_class(0.1, weight_decay=0.5)
    optimizer.set_learning_rate_shares([(variables[1], 0.2)])
    gradients = [tf.zeros(shape) for shape in shapes]
    optimizer.apply_gradients(zip(gradients, variables, strict=True))
    means = [float(tf.reduce_mean(variable)) for variable in variables]
    assert means == pytest.approx([0.95, 0.99, 1.0])


def test_adamw_still_excludes_by_keras_lists():
    variable = tf.Variable(np.ones([2, 2]), dtype=tf.float32)
    optimizer = training.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay([variable])
    optimizer.apply_gradients([(tf.zeros([2, 2]), variable)])
    np.testing.assert_array_equal(variable, np.ones([2, 2]))


# LARS at its corners, on replicas, with scaled losses, compiled, restored.

LARS = dict(momentum=0.9, trust_coefficient=0.01, l2=0.1)


def make_optimizer():
    schedule = training.WarmupCosine(0.5, 8, warmup_steps=2)
    return training.LARS(schedule, **LARS)


def draw(rng):
    """A kernel and a bias."""
    return [rng.normal(size=shape).astype("float32") for shape in ([3, 4], [4])]


def make_variables():
    return [tf.Variable(values) for values in draw(np.random.default_rng(0))]


def make_gradients(steps):
    rng = np.random.default_rng(1)
    return [[tf.constant(values) for values in draw(rng)] for _ in range(steps)]


def apply(optimizer, gradients, variables):
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


@pytest.fixture(scope="module")
def five_steps():
    """Weights after five plain steps, which the formula proves."""
    optimizer, variables = make_optimizer(), make_variables()
    for gradients in make_gradients(5):
        apply(optimizer, gradients, variables)
    return [variable.numpy() for variable in variables]


def assert_equal(variables, expected):
    for variable, values in zip(variables, expected, strict=True):
        np.testing.assert_allclose(variable, values, rtol=1e-6, atol=1e-7)


def first_step(weights, gradients, **options):
    variable = tf.Variable(weights)
    optimizer = training.LARS(0.5, **{**LARS, "l2": 0.0, **options})
    optimizer.apply_gradients([(tf.constant(gradients), variable)])
    return variable.numpy() - weights


def test_trust_is_1_where_a_norm_is_0():
    ones, zeros = np.ones([2, 2], np.float32), np.zeros([2, 2], np.float32)
    np.testing.assert_allclose(first_step(zeros, ones), -0.5 * ones)
    np.testing.assert_array_equal(first_step(ones, zeros), zeros)
    np.testing.assert_array_equal(first_step(zeros, zeros), zeros)


def test_norms_are_float32():
    # Squares of 300 overflow float16; 300 of them do in any case.
    w = np.full([300, 2], 300.0, np.float16)
    step = first_step(w, np.ones_like(w))
    np.testing.assert_allclose(step, -1.5, rtol=0.1)


def test_replicas_take_the_step_of_one_device(mirrored_strategy, five_steps):
    with mirrored_strategy.scope():
        optimizer, variables = make_optimizer(), make_variables()

    @tf.function
    def step(gradients):
        def replica():
            # Keras adds up the gradients of the replicas.
            context = tf.distribute.get_replica_context()
            replica = tf.cast(context.replica_id_in_sync_group, tf.float32)
            share = replica * 0.5 + 0.25  # 0.25 + 0.75
            apply(optimizer, [share * g for g in gradients], variables)

        mirrored_strategy.run(replica)

    for gradients in make_gradients(5):
        step(gradients)
    for variable, expected in zip(variables, five_steps, strict=True):
        for replica in mirrored_strategy.experimental_local_results(variable):
            assert_equal([replica], [expected])


def test_a_scaled_loss_takes_the_same_steps(five_steps):
    optimizer = keras.mixed_precision.LossScaleOptimizer(
        make_optimizer(), dynamic=True, initial_scale=256.0
    )
    variables = make_variables()
    for gradients in make_gradients(5):
        scaled = optimizer.get_unscaled_gradients([256 * g for g in gradients])
        apply(optimizer, scaled, variables)
    assert_equal(variables, five_steps)
    infinite = [np.inf * g for g in gradients]
    apply(optimizer, optimizer.get_unscaled_gradients(infinite), variables)
    assert_equal(variables, five_steps)


def test_xla_takes_the_same_steps(five_steps):
    optimizer, variables = make_optimizer(), make_variables()
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def step(gradients):
        apply(optimizer, gradients, variables)

    for gradients in make_gradients(5):
        step(gradients)
    assert_equal(variables, five_steps)


def test_a_checkpoint_continues(tmp_path, five_steps):
    gradients = make_gradients(5)
    optimizer, variables = make_optimizer(), make_variables()
    for step in gradients[:3]:
        apply(optimizer, step, variables)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, variables=variables)
    assert len(optimizer.variables) == 3  # iteration, velocities
    path = checkpoint.save(str(tmp_path / "checkpoint"))
    optimizer = make_optimizer()
    variables = [tf.Variable(tf.zeros_like(v)) for v in variables]
    optimizer.build(variables)
    status = tf.train.Checkpoint(optimizer=optimizer, variables=variables)
    status.restore(path).assert_existing_objects_matched()
    for step in gradients[3:]:
        apply(optimizer, step, variables)
    assert_equal(variables, five_steps)


# LAMB, an optimizer of the older kind, where the newer ones are expected.


def test_lambs_learning_rate_can_be_read_and_set():
    optimizer = lamb.LAMB(0.25)
    optimizer.build([])
    for rate in (0.25, 0.5):
        optimizer.learning_rate = rate
        assert float(tf.convert_to_tensor(optimizer.learning_rate)) == rate


@pytest.mark.parametrize("clip", ["clipnorm", "global_clipnorm"])
def test_lamb_clips_by_the_norm_of_the_sum_of_repeated_rows(clip):
    rows = tf.IndexedSlices([[3.0, 2.0], [0.0, 2.0]], [1, 1], [2, 2])
    results = []
    for gradient in (rows, tf.convert_to_tensor(rows)):
        table = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
        optimizer = lamb.LAMB(0.1, **{clip: 0.5})
        # The second gradient is short: only the first is clipped.
        for g in (gradient, tf.constant([[0.1, 0.0], [0.0, 0.2]])):
            optimizer.apply_gradients([(g, table)])
        results.append(table.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_the_plain_lamb_is_tfas_and_opens_its_checkpoints(tmp_path):
    tfa = pytest.importorskip("tensorflow_addons", exc_type=ImportError)
    kinds = [tfa.optimizers.LAMB, lamb.PlainLAMB]
    options = dict(
        weight_decay=0.1, exclude_from_weight_decay=["bias"], epsilon=1e-3
    )
    rng = np.random.default_rng(0)
    start = {"kernel": rng.normal(size=[5, 3]), "bias": rng.normal(size=[3])}
    gradients = rng.normal(size=[2, 10, 5, 3]).astype(np.float32)

    def run(first, second):
        """Ten steps of one, and ten of another that goes on."""
        variables = [
            tf.Variable(value, name=name, dtype=tf.float32)
            for name, value in start.items()
        ]
        path = None
        for number, kind in enumerate((first, second)):
            optimizer = kind(SCHEDULE, **options)
            saved = tf.train.Checkpoint(optimizer=optimizer)
            if path:
                optimizer._create_all_weights(variables)
                saved.read(path).assert_consumed()
            for g in gradients[number]:
                # Rows 0 and 2, as the gradient of an embedding is.
                rows = tf.IndexedSlices(g[[0, 2, 0]], [0, 2, 0], [5, 3])
                optimizer.apply_gradients(
                    zip([rows, g[0]], variables, strict=True)
                )
            path = saved.write(str(tmp_path / f"{first.__module__}{number}"))
        return [variable.numpy() for variable in variables]

    expected = run(*[tfa.optimizers.LAMB] * 2)
    for pair in (kinds[1:] * 2, kinds, kinds[::-1]):
        for weights, expected_weights in zip(run(*pair), expected, strict=True):
            np.testing.assert_allclose(weights, expected_weights, 1e-5, 1e-6)
    configs = [kind(0.1, **options).get_config() for kind in kinds]
    assert configs[0] == configs[1]


def test_lamb_trains_on_replicas_with_a_scaled_loss(
    mirrored_strategy, float32_policy
):
    images = np.random.default_rng(0).normal(size=[16, 3]).astype(np.float32)
    rates = training.WarmupCosine(0.1, 8, warmup_steps=2)
    weights = []
    for strategy, policy in (
        (tf.distribute.get_strategy(), "float32"),
        (mirrored_strategy, "mixed_float16"),
    ):
        keras.utils.set_random_seed(0)
        keras.mixed_precision.set_global_policy(policy)
        with strategy.scope():
            layer = keras.layers.Dense(2, dtype="float32")
            model = keras.Sequential([layer])
            model.build([None, 3])
            optimizer = lamb.LAMB(rates, weight_decay=0.1)
            if policy == "mixed_float16":
                optimizer = keras.mixed_precision.LossScaleOptimizer(
                    optimizer, initial_scale=16.0
                )
            model.compile(optimizer, "mse")
        model.fit(images, images[:, :2], batch_size=8, epochs=2, verbose=0)
        callbacks.check_finite_weights(model)
        weights.append(model.get_weights())
        rate = tf.convert_to_tensor(model.optimizer.learning_rate)
        assert float(rate) == pytest.approx(float(rates(3)))
        assert int(tf.convert_to_tensor(model.optimizer.iterations)) == 4
    for single_device, replicas in zip(*weights, strict=True):
        np.testing.assert_allclose(replicas, single_device, 1e-5, 1e-6)


def test_files_of_keras_name_the_former_modules():
    """A model that was saved with its optimizer opens without its import."""
    for module, name in (("optimizers", "SGD"), ("schedules", "Warmup")):
        former_module = importlib.import_module(f"supcon_tf.training.{module}")
        assert vars(former_module)[name] is getattr(training, name)
