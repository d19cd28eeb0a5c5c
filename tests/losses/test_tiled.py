"""tiled_supcon_loss is supcon_loss, in value, gradient, and less memory."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import losses
from supcon_tf.losses import pairs, streaming, strips, supcon
from tests import forks
from tests.losses import vectors


@pytest.mark.slow(but=["many-out-1", "many-out-3", "many-in-1", "many-in-3"])
@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("formulation", vectors.FORMULATIONS)
@pytest.mark.parametrize("labels", ["none", "unique", "many", "one class"])
def test_equals_the_dense_loss(views, formulation, labels):
    """Every tile size: one tile, an even cut, padding, a sample each."""
    if (formulation, labels) == ("in", "one class"):
        pytest.skip("constant: see the next test")
    z = vectors.unit([7, views, 5]).astype(np.float32)
    y = {
        "none": None,
        "unique": [3, -1, 2**40, 7, 0, 5, 6],
        "many": [4, -2, 4, 4, 9, -2, 8],
        "one class": [1] * 7,
    }[labels]
    weights = np.arange(1.0, 8.0)
    # Logits of up to 200 have two digits less than those of 14.
    for temperature, tolerance, tilings in (
        (0.005, 2e-5, [{"unit_length": True}, {"tile_rows": 4}]),
        (0.07, 5e-6, [{"tile_rows": rows} for rows in (views, 7, 1000)]),
    ):
        options = {"temperature": temperature, "formulation": formulation}
        expected = vectors.value_and_gradient(
            lambda z, o=options: losses.supcon_loss(z, y, **o), z, weights
        )
        for tiling in tilings:
            results = vectors.value_and_gradient(
                lambda z, o=options | tiling: losses.tiled_supcon_loss(
                    z, y, **o
                ),
                z,
                weights,
            )
            for result, expected_result in zip(results, expected, strict=True):
                # The parts of a gradient that is 0 cancel from this size.
                atol = tolerance * max(np.abs(expected_result).max(), 0.1)
                np.testing.assert_allclose(
                    result, expected_result, rtol=0, atol=atol
                )


@pytest.mark.parametrize("temperature", [0.005, 0.1])
def test_inside_of_one_class_is_constant(temperature):
    """P(i) is A(i): L_in = log |P(i)| for any projections, Eq. 3."""
    loss, gradient = vectors.value_and_gradient(
        lambda z: losses.tiled_supcon_loss(
            z,
            [5] * 6,
            temperature=temperature,
            formulation="in",
            scale_by_temperature=False,
        ),
        vectors.unit([6, 2, 4]),
    )
    np.testing.assert_allclose(loss, np.full(6, np.log(11)), rtol=1e-5)
    np.testing.assert_allclose(gradient, np.zeros([6, 2, 4]), atol=1e-5)


def float64_gradient(z, labels, temperature):
    """Suppl. Eq. 8 for all rows at once, of the mean loss of "out"."""
    rows = z.reshape(-1, z.shape[-1])
    row_labels = np.repeat(labels, z.shape[1])
    logits = rows @ rows.T / temperature
    np.fill_diagonal(logits, -np.inf)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    is_positive = row_labels[:, None] == row_labels
    np.fill_diagonal(is_positive, False)
    count = is_positive.sum(1, keepdims=True)
    difference = (p - is_positive / np.maximum(count, 1)) * (count > 0)
    # tau scales the loss and 1 / tau the gradient.
    return ((difference + difference.T) @ rows / len(rows)).reshape(z.shape)


@pytest.mark.parametrize("options", [{"unit_length": True}, {"tile_rows": 512}])
def test_gradient_within_5e_7_of_float64(options):
    rng = np.random.default_rng(0)
    z = vectors.unit([1024, 2, 128]).astype(np.float32)
    labels = rng.integers(0, 1000, 1024)
    _, gradient = vectors.value_and_gradient(
        lambda z: losses.tiled_supcon_loss(z, labels, **options), z, 1 / 1024
    )
    expected = float64_gradient(z.astype(np.float64), labels, 0.1)
    error = np.abs(gradient - expected).max()
    assert error / np.abs(expected).max() < 5e-7


def test_the_schedule_follows_the_documented_rule(monkeypatch):
    unrolled, sum_unrolled = [], streaming._sum_unrolled
    monkeypatch.setattr(
        streaming,
        "_sum_unrolled",
        lambda *arguments: unrolled.append(1) or sum_unrolled(*arguments),
    )

    def unrolls(**options):
        unrolled.clear()
        z = vectors.unit([4, 2, 4])
        losses.tiled_supcon_loss(z, [0, 1, 0, 1], **options)
        return bool(unrolled)

    assert unrolls(unit_length=True)
    assert unrolls(unit_length=True, formulation="in")
    assert not unrolls()
    assert not unrolls(unit_length=True, tile_rows=2)
    assert not unrolls(unit_length=True, temperature=0.02)
    assert streaming._unrolled_blocks(8192) == 8
    assert streaming._unrolled_blocks(12288) is None
    tile_rows, tiles = [], streaming._Tiles
    with monkeypatch.context() as gpu:
        gpu.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
        gpu.setattr(
            streaming,
            "_Tiles",
            lambda *arguments, **options: (
                tile_rows.append(options["tile_rows"])
                or tiles(*arguments, **options)
            ),
        )
        assert not unrolls()
        assert tile_rows == [4096]
        assert streaming._unrolled_blocks(2048) == 1
        assert streaming._unrolled_blocks(12288) == 4
        assert streaming._unrolled_blocks(32768) is None
    monkeypatch.setattr(streaming, "UNROLLED_BYTES", 100)
    assert not unrolls(unit_length=True)


def test_implementation_chooses(monkeypatch):
    z, labels = vectors.unit([6, 2, 4]), np.array([0, 1, 0, 2, 1, 0])
    anchors, pair_losses = [], pairs.losses
    monkeypatch.setattr(
        pairs,
        "losses",
        lambda rows, *arguments: (
            anchors.append(len(rows.vectors)) or pair_losses(rows, *arguments)
        ),
    )
    monkeypatch.setattr(strips, "_STRIP", 4)
    capped = {"positives_cap": 3}
    all_at_once, in_strips, in_sums = [12], [4] * 3, []
    for options, limit, expected in (
        ({}, 2**22, in_sums),
        (capped, 144, all_at_once),
        (capped, 143, in_strips),
        (capped | {"implementation": "tiled"}, 2**22, in_strips),
        (capped | {"implementation": "dense"}, 1, all_at_once),
        (capped | {"positives": "any"}, 1, in_strips),
    ):
        monkeypatch.setattr(supcon, "_PAIRS_AT_ONCE", limit)
        y = np.eye(3)[labels] if "positives" in options else labels
        losses.SupConLoss(**options)(y, z)
        assert anchors == expected
        anchors.clear()


def test_bad_arguments_are_named():
    z, mask = vectors.unit([6, 2, 4]), {"positive_mask": np.eye(6)}
    for options, message in (
        (mask | {"labels": range(6)}, "must not be combined with labels"),
        (mask | {"cross_replica": True}, "`positive_mask` must be of one repl"),
        ({"tile_rows": 0}, "`tile_rows` must be at least 1"),
        ({"labels": [0, 1]}, "`labels` must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.tiled_supcon_loss(z, **options)
    with pytest.raises(ValueError, match="`implementation` must be one of au"):
        losses.SupConLoss(implementation="fast")


# Prints the peak growth of resident memory, MiB, of two steps.
MEMORY_PROCESS = """
import sys
import numpy as np, tensorflow as tf
from supcon_tf import losses
def status(key):
    for line in open("/proc/self/status"):
        if line.startswith(key):
            return int(line.split()[1]) / 1024
rows, options = int(sys.argv[1]), eval(sys.argv[2])
z = np.random.default_rng(0).normal(size=[rows // 2, 2, 32])
z = tf.math.l2_normalize(tf.constant(z, tf.float32), axis=-1)
labels = tf.range(rows // 2) % 100
@tf.function
def step(z):
    with tf.GradientTape() as tape:
        tape.watch(z)
        loss = tf.reduce_mean(losses.SupConLoss(**options)(labels, z))
    return tape.gradient(loss, z)
step.get_concrete_function(z)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
for _ in range(2):
    gradient = step(z)
assert np.isfinite(gradient).all()
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("rows", "options"), [(12288, {}), (4096, {"positives_cap": 9})]
)
def test_memory_is_linear_in_the_rows(rows, options):
    """One matrix would be 576 MiB, and the ten of a cap take 64 each."""
    process = forks.run(MEMORY_PROCESS, str(rows), str(options))
    assert process.returncode == 0, process.stderr[-2000:]
    assert float(process.stdout) < 288
