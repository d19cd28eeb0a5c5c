"""tiled_supcon_loss is supcon_loss, in value, gradient, and less memory."""

import functools
import itertools
import math
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import distribute, losses
from supcon_tf.losses import pairs, streaming, supcon, tiled
from tests import forks, reference
from tests.losses import vectors


def value_and_gradient(function, z):
    """Losses, and the gradient of their sum with weights 1, 2, 3, ..."""
    weights = np.arange(1.0, len(z) + 1)
    loss, gradient = vectors.value_and_gradient(function, z, weights)
    return loss.numpy(), gradient.numpy()


def assert_same(tensors, expected, rtol=5e-6):
    for tensor, expected_tensor in zip(tensors, expected, strict=True):
        # The parts of a gradient that is 0 cancel from about this size.
        scale = max(np.abs(expected_tensor).max(), 0.1)
        np.testing.assert_allclose(
            tensor / scale, expected_tensor / scale, atol=rtol
        )


@pytest.mark.slow(
    but=[
        "none-out-3",
        "none-in-3",
        "unique-out-3",
        "unique-in-3",
        "many-out-1",
        "many-out-3",
        "many-in-1",
        "many-in-3",
        "one class-out-3",
    ]
)
@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("formulation", ["out", "in"])
@pytest.mark.parametrize("labels", ["none", "unique", "many", "one class"])
def test_equals_the_dense_loss(views, formulation, labels):
    """Every tile size: one tile, an even cut, padding, a row per tile."""
    if (formulation, labels) == ("in", "one class"):
        pytest.skip("constant: see the next test")
    z = vectors.unit([7, views, 5]).astype(np.float32)
    y = {
        "none": None,
        "unique": [3, -1, 2**40, 7, 0, 5, 6],
        "many": [4, -2, 4, 4, 9, -2, 9],
        "one class": [1] * 7,
    }[labels]
    usual_tilings = [{"unit_length": True}, {"tile_rows": 4}]
    further_tilings = [{"tile_rows": rows} for rows in (1, 7, 1000)]
    for anchor_views, temperature in (
        ("all", 0.005),
        ("all", 0.07),
        ("first", 1.0),
    ):
        options = {
            "temperature": temperature,
            "formulation": formulation,
            "anchor_views": anchor_views,
            "scale_by_temperature": views != 3,
        }
        expected = value_and_gradient(
            lambda z, o=options: losses.supcon_loss(z, y, **o), z
        )
        is_usual = temperature != 0.07 or labels != "many"
        for tiling in (
            usual_tilings if is_usual else usual_tilings + further_tilings
        ):
            tensors = value_and_gradient(
                lambda z, o=options, t=tiling: losses.tiled_supcon_loss(
                    z, y, **o, **t
                ),
                z,
            )
            # Logits of up to 200 have two digits less than those of 1.
            assert_same(tensors, expected, 2e-5 if temperature < 0.02 else 5e-6)


HOT = np.array([[1, 0], [1, 1], [0, 0], [0, 1], [1, 0], [1, 1], [0, 1]])
ALIKE = {
    "classes": {"labels": [4, -2, 4, 4, 9, -2, 9]},
    "one class": {"labels": [1] * 7},
    "none": {},
    "any": {"labels": HOT, "positives": "any"},
    "all": {"labels": HOT, "positives": "all"},
    "jaccard": {"labels": HOT, "positives": "jaccard"},
    "mask": {
        "positive_mask": np.random.default_rng(0).integers(0, 3, [7, 7]) / 2
    },
}


@pytest.mark.slow(but=["classes", "none", "jaccard", "mask"])
@pytest.mark.parametrize("label_set", list(ALIKE))
def test_denominators_and_caps_equal_the_dense_loss(label_set, small_windows):
    """A row per tile, tiles with some classes, one tile; any shift."""
    z = vectors.unit([7, 2, 4], seed=3).astype(np.float32)
    for tile_rows, options in zip(
        (None, 1, 3, 4, 100, 4, 3, 100),
        (
            {},
            {"denominator": "one_positive"},
            {"denominator": "one_positive", "positives_cap": 2},
            {"denominator": "only_negatives", "formulation": "in"},
            {"denominator": "one_positive", "formulation": "in"},
            {"positives_cap": 3, "anchor_views": "first", "temperature": 0.01},
            {"positives_cap": 1},
            {"denominator": "only_negatives", "temperature": 0.02},
        ),
        strict=True,
    ):
        options = ALIKE[label_set] | options
        expected, tensors = (
            value_and_gradient(functools.partial(function, **options), z)
            for function in (
                losses.supcon_loss,
                functools.partial(
                    losses.tiled_supcon_loss,
                    tile_rows=tile_rows,
                    unit_length=True,
                ),
            )
        )
        # At most logits of 100.
        assert_same(tensors, expected, 1e-5)


@pytest.fixture
def small_windows(monkeypatch):
    """Several tiles, strips and widths in a small batch."""
    monkeypatch.setattr(streaming, "_TILE_ROWS", 4)
    monkeypatch.setattr(tiled, "_STRIP", 3)
    monkeypatch.setattr(tiled, "_WIDTHS", (3, 5, 9))


@pytest.mark.slow(but=["5"])
@pytest.mark.parametrize("rows", [0, 5, 16])
def test_with_a_queue_equals_the_dense_loss(rows, small_windows):
    z = vectors.unit([7, 2, 4], seed=3).astype(np.float32)
    labels = np.array([4, -2, 4, 4, 9, -2, 9])
    queue = losses.ProjectionQueue(9, 4)
    if rows:
        queue.enqueue(
            vectors.unit([rows, 4], seed=4), np.arange(rows) % 3 * 2 + 4
        )
    for options in vectors.combinations(
        denominator=vectors.DENOMINATORS,
        formulation=vectors.FORMULATIONS,
        positives_cap=(None, 3),
    ):
        options |= {"queue": queue, "reduction": "none"}
        expected, tensors = (
            value_and_gradient(
                functools.partial(
                    losses.SupConLoss(**options, implementation=name), labels
                ),
                z,
            )
            for name in ("dense", "tiled")
        )
        assert_same(tensors, expected, 1e-5)


@pytest.mark.parametrize("temperature", [0.005, 0.1])
def test_inside_of_one_class_is_constant(temperature):
    """P(i) is A(i): L_in = log |P(i)| for any projections, Eq. 3."""
    loss, gradient = value_and_gradient(
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


@pytest.mark.parametrize("formulation", ["out", "in"])
def test_equals_the_papers_loops(formulation):
    z, labels = vectors.unit([6, 2, 4], seed=1), [0, 1, 0, 0, 2, 1]
    options = {"temperature": 0.1, "formulation": formulation}
    np.testing.assert_allclose(
        losses.tiled_supcon_loss(z, labels, **options, tile_rows=5),
        reference.supcon_loss(z, labels, **options),
        rtol=1e-5,
    )
    _, gradient = value_and_gradient(
        lambda z: losses.tiled_supcon_loss(z, labels, **options, tile_rows=5), z
    )
    weights = np.arange(1.0, 7.0)
    expected = reference.finite_differences(
        lambda z: (weights * reference.supcon_loss(z, labels, **options)).sum(),
        z,
    )
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def float64_gradient(z, labels, temperature):
    """Suppl. Eq. 8 for all rows at once, of the mean loss of "out"."""
    rows = z.reshape(-1, z.shape[-1])
    ids = np.repeat(labels, z.shape[1])
    logits = rows @ rows.T / temperature
    np.fill_diagonal(logits, -np.inf)
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    x = (ids[:, None] == ids) & ~np.eye(len(ids), dtype=bool)
    count = x.sum(1, keepdims=True)
    difference = p - x / np.maximum(count, 1) * (count > 0)
    difference *= count > 0
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


@pytest.mark.slow(but=["0.0-float16", "100.0-bfloat16"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("scale", [0.0, 100.0])
def test_value_and_gradient_are_finite(dtype, scale):
    for views, labels in itertools.product(
        (1, 2), ([3], [0] * 5, [0, 1, 2, 3, 4])
    ):
        z = tf.cast(vectors.unit([len(labels), views, 8]) * scale, dtype)
        for formulation in ("out", "in"):
            loss = losses.SupConLoss(0.005, formulation, implementation="tiled")
            value, gradient = vectors.value_and_gradient(
                lambda z, loss=loss, y=labels: loss(tf.constant(y), z), z
            )
            assert np.isfinite(value)
            assert np.isfinite(tf.cast(gradient, tf.float32)).all()
            raw = losses.tiled_supcon_loss(
                z, labels, temperature=0.005, formulation=formulation
            )
            assert raw.dtype == tf.float32 and np.isfinite(raw).all()


@pytest.mark.slow(but=["options0-True-6", "options4-True-6"])
@pytest.mark.parametrize(("jit_compile", "batch"), [(False, None), (True, 6)])
@pytest.mark.parametrize(
    "options",
    [
        {"unit_length": True},
        {"tile_rows": 4},
        {"formulation": "in"},
        {"denominator": "only_negatives", "tile_rows": 3},
        {"positives_cap": 2, "denominator": "one_positive", "tile_rows": 5},
    ],
)
def test_in_a_function(jit_compile, options, batch, monkeypatch):
    monkeypatch.setattr(tiled, "_WIDTHS", (4,))  # each is compiled

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[
            tf.TensorSpec([batch, 2, 4]),
            tf.TensorSpec([batch], tf.int32),
        ],
    )
    def step(z, labels):
        return vectors.value_and_gradient(
            lambda z: losses.tiled_supcon_loss(z, labels, **options), z
        )

    in_tiles = {"unit_length", "tile_rows"}
    dense_options = {
        name: value for name, value in options.items() if name not in in_tiles
    }
    for size in (6,) if batch else (3, 6):
        z = vectors.unit([size, 2, 4]).astype(np.float32)
        labels = np.arange(size, dtype=np.int32) % 2
        expected = vectors.supcon_value_and_gradient(z, labels, **dense_options)
        expected = [tensor.numpy() for tensor in expected]
        for _ in range(2):  # the second use of a trace, too
            assert_same(
                [tensor.numpy() for tensor in step(z, labels)], expected
            )


def test_the_schedule_follows_the_documented_rule(monkeypatch):
    block_counts, unrolled_blocks = [], streaming._unrolled_blocks

    def blocks(rows):
        block_counts.append(unrolled_blocks(rows))
        return block_counts[-1]

    monkeypatch.setattr(streaming, "_unrolled_blocks", blocks)

    def unrolls(z, **options):
        block_counts.clear()
        losses.tiled_supcon_loss(z, [0, 1, 0, 1], **options)
        return block_counts == [1]

    z = tf.constant(vectors.unit([4, 2, 4]).astype(np.float32))
    assert unrolls(z, unit_length=True)
    assert unrolls(z, unit_length=True, formulation="in")
    assert not unrolls(z)
    assert not unrolls(z, unit_length=True, tile_rows=2)
    assert not unrolls(z, unit_length=True, temperature=0.02)
    assert unrolled_blocks(8192) == 8 and unrolled_blocks(12288) is None
    monkeypatch.setattr(streaming, "UNROLLED_BYTES", 100)
    assert not unrolls(z, unit_length=True)


def test_implementation_chooses(monkeypatch):
    z, labels = vectors.unit([6, 2, 4]), np.array([0, 1, 0, 2, 1, 0])
    dense, tiles = (
        losses.SupConLoss(implementation=name, reduction="none")(labels, z)
        for name in ("dense", "tiled")
    )
    np.testing.assert_allclose(tiles, dense, rtol=1e-5)
    anchors, by_pairs = [], pairs.losses
    monkeypatch.setattr(
        pairs,
        "losses",
        lambda rows, *arguments: (
            anchors.append(rows.vectors.shape[0]) or by_pairs(rows, *arguments)
        ),
    )
    monkeypatch.setattr(tiled, "_STRIP", 4)
    capped = {"positives_cap": 3}
    several = capped | {"positives": "any"}
    all_at_once, in_strips, in_sums = [12], [4] * 3, []
    for options, limit, expected in (
        ({}, 2**22, in_sums),
        (capped, 144, all_at_once),
        (capped, 143, in_strips),
        (capped | {"implementation": "tiled"}, 2**22, in_strips),
        (capped | {"implementation": "dense"}, 1, all_at_once),
        (several, 1, in_strips),
    ):
        monkeypatch.setattr(supcon, "_PAIRS_AT_ONCE", limit)
        y = np.eye(3)[labels] if "positives" in options else labels
        losses.SupConLoss(**options)(y, z)
        assert anchors == expected
        anchors.clear()
    for function, options, message in (
        (losses.SupConLoss, {"implementation": "fast"}, "must be one of auto"),
        (
            losses.tiled_supcon_loss,
            {"positive_mask": np.eye(6), "labels": labels},
            "`positive_mask` must not be combined with labels",
        ),
        (
            losses.tiled_supcon_loss,
            {"positive_mask": np.eye(6), "cross_replica": True},
            "`positive_mask` must be of one replica",
        ),
        (losses.tiled_supcon_loss, {"tile_rows": 0}, "must be at least 1"),
        (losses.tiled_supcon_loss, {"labels": [0, 1]}, "`labels` must have sh"),
    ):
        arguments = () if function is losses.SupConLoss else (z,)
        with pytest.raises(ValueError, match=message):
            function(*arguments, **options)


@pytest.mark.slow(but=["options1-True"])
@pytest.mark.parametrize(
    ("options", "labelled"),
    [
        ({}, False),
        ({"formulation": "in"}, True),
        ({"denominator": "only_negatives"}, True),
        ({"denominator": "one_positive", "positives_cap": 2}, True),
        ({"positives_cap": 3, "formulation": "in"}, True),
    ],
)
def test_two_replicas_equal_one_device(mirrored_strategy, options, labelled):
    """With batches of different size, and classes on one replica only."""
    batch = 5
    z = vectors.unit([batch, 2, 4], seed=6).astype(np.float32)
    labels = np.array([0, 0, 0, 1, 1, 0, 2, 0])[:batch]
    split = [slice(0, 4), slice(4, batch)]

    def loss(z, labels, cross_replica):
        return losses.tiled_supcon_loss(
            z,
            labels if labelled else None,
            **options,
            tile_rows=3,
            cross_replica=cross_replica,
        )

    def replica_step(z, labels, weights):
        return vectors.value_and_gradient(
            lambda z: loss(z, labels, True), z, weights
        )

    weights = np.arange(1.0, batch + 1, dtype=np.float32)
    tensors = vectors.on_two_replicas(
        mirrored_strategy, replica_step, split, z, labels, weights
    )
    assert_same(
        tensors, value_and_gradient(lambda z: loss(z, labels, False), z)
    )


def test_the_gradient_exchanges_three_numbers_per_row(
    mirrored_strategy, monkeypatch
):
    """No projections: bytes of a sample, as docs/benchmarks/ has them."""
    exchanged, gather = [], distribute.gather_across_replicas

    def count(*tensors):
        for x in tensors:
            # Of a row, of which a sample has two, or of a sample.
            is_of_row = x.shape.rank == 1 and x.dtype.is_floating
            size = x.dtype.size * math.prod(x.shape[1:])
            exchanged.append((1 + is_of_row) * size)
        return gather(*tensors)

    monkeypatch.setattr(distribute, "gather_across_replicas", count)
    z, labels = (
        vectors.unit([4, 2, 128], dtype=np.float32),
        np.array([0, 1, 0, 1]),
    )
    vectors.on_two_replicas(
        mirrored_strategy,
        lambda z, labels: vectors.value_and_gradient(
            functools.partial(
                losses.tiled_supcon_loss, labels=labels, cross_replica=True
            ),
            z,
        ),
        [slice(0, 2), slice(2, 4)],
        z,
        labels,
    )
    forward, backward = 2 * 128 * 4 + 8, 3 * 2 * 4
    assert forward + backward == 1056
    assert sum(exchanged) == 2 * (forward + backward)  # on both replicas


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
    ("rows", "options"), [(16384, {}), (8192, {"positives_cap": 9})]
)
def test_memory_is_linear_in_the_rows(rows, options):
    """One matrix would be 1,024 MiB, and the ten of a cap take 256 each."""
    done = forks.run(MEMORY_PROCESS, str(rows), str(options))
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout) < 512
