"""The loss of replicas is that of one device; so is training on them."""

import math

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import distribute
from supcon_tf.losses import streaming, strips
from tests import forks, workers
from tests.losses import vectors


@pytest.mark.slow(
    but=[
        "streamed-True",
        "windows-True",
        "dense jaccard-True",
        "npairs-True",
        "triplet-True",
        "rank-True",
        "paco-True",
    ]
)
@pytest.mark.parametrize("cross_replica", [True, False])
@pytest.mark.parametrize("name", vectors.CONTRASTIVE)
def test_two_replicas_equal_one_device(
    mirrored_strategy, name, cross_replica, monkeypatch
):
    """Or, without cross_replica, two devices; of batches of different size."""
    monkeypatch.setattr(strips, "_WIDTHS", (4,))  # each is traced
    monkeypatch.setattr(streaming, "_TILE_ROWS", 3)
    loss = vectors.make_loss(name, cross_replica=cross_replica)
    parts = [slice(0, 4), slice(4, 7)]
    batch = (
        vectors.unit([7, 2, 4], seed=6, dtype=np.float32),
        vectors.labels_for(name),
        np.arange(1, 8, dtype=np.float32),
    )

    def step(z, labels, weights):
        return vectors.value_and_gradient(lambda z: loss(labels, z), z, weights)

    results = vectors.on_two_replicas(mirrored_strategy, step, parts, *batch)
    expected = [
        step(*(array[part] for array in batch))
        for part in ([slice(0, 7)] if cross_replica else parts)
    ]
    expected = map(np.concatenate, zip(*expected, strict=True))
    vectors.assert_close(results, expected)


@pytest.mark.slow(but=["streamed", "windows", "rank"])
@pytest.mark.parametrize("name", vectors.CONTRASTIVE)
def test_a_replica_may_have_no_samples(mirrored_strategy, name, monkeypatch):
    """As in `fit`, of the last samples of an epoch; no shape is static."""
    monkeypatch.setattr(strips, "_WIDTHS", (4,))
    monkeypatch.setattr(streaming, "_TILE_ROWS", 3)
    loss = vectors.make_loss(name)
    batch = (
        vectors.unit([7, 2, 4], seed=6, dtype=np.float32),
        vectors.labels_for(name),
        np.arange(1, 8, dtype=np.float32),
    )

    def step(z, labels, weights):
        if not tf.executing_eagerly():
            z = tf.compat.v1.placeholder_with_default(z, [None, 2, 4])
        return vectors.value_and_gradient(lambda z: loss(labels, z), z, weights)

    parts = [slice(0, 7), slice(7, 7)]
    results = vectors.on_two_replicas(mirrored_strategy, step, parts, *batch)
    vectors.assert_close(results, step(*batch))


def test_the_gradient_exchanges_three_numbers_per_row(monkeypatch):
    """No projections: bytes of a sample, as docs/benchmarks/ has them."""
    exchanged_bytes = []

    def gather(*tensors):
        for tensor in tensors:
            # Of a row, of which a sample has two, or of a sample.
            is_of_row = tensor.shape.rank == 1 and tensor.dtype.is_floating
            size = tensor.dtype.size * math.prod(tensor.shape[1:])
            exchanged_bytes.append((1 + is_of_row) * size)
        return [np.concatenate([tensor, tensor]) for tensor in tensors]

    monkeypatch.setattr(distribute, "replicas_in_sync", lambda: 2)
    monkeypatch.setattr(distribute, "gather_across_replicas", gather)
    loss = vectors.make_loss("streamed", normalize=False)
    z = vectors.unit([4, 2, 128], dtype=np.float32)
    vectors.value_and_gradient(lambda z: loss([0, 1, 0, 1], z), z)
    forward, backward = 2 * 128 * 4 + 8, 3 * 2 * 4
    assert forward + backward == 1056
    assert sum(exchanged_bytes) == forward + backward


# One and two logical CPU devices, and two workers over the loopback interface,
# train the same batch-normalised encoder for three steps.
TRAIN = """
import sys
import numpy as np, tensorflow as tf

kind, implementation, path = sys.argv[1:]
count = {"one": 1, "two": 2, "worker": 1}[kind]
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * count,
)
if kind == "worker":
    from supcon_tf.host import proxies

    proxies.go_around()  # as distribute.make_strategy does
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.MirroredStrategy(
        [f"/cpu:{index}" for index in range(count)]
    )
from supcon_tf import losses, models
from supcon_tf.keras_2 import keras
from supcon_tf.models import resnet

resnet.BLOCKS_PER_GROUP[18] = (1,)  # a fifth as long to trace
rng = np.random.default_rng(0)
views = rng.integers(0, 256, [3, 8, 2, 16, 16, 3]).astype(np.uint8)
# Classes that stay on one replica, and classes that do not.
labels = np.array([[0, 0, 0, 1, 1, 0, 2, 0], [3] * 4 + [4, 5, 6, 3], range(8)])
share = 8 // strategy.num_replicas_in_sync

def replica_batches(context):
    data = tf.data.Dataset.from_tensor_slices((
        views.reshape(-1, share, *views.shape[2:]), labels.reshape(-1, share)
    ))
    pipelines = context.num_input_pipelines
    return data.shard(pipelines, context.input_pipeline_id)

with strategy.scope():
    keras.utils.set_random_seed(0)
    encoder = models.Encoder("resnet18", width=0.1)
    encoder.representation_dim = 6  # of the first group
    model = models.SupConModel(
        encoder,
        models.ProjectionHead(8, (16,), use_batch_norm=True),
    )
    model.build((None, 2, 16, 16, 3))
    loss = losses.SupConLoss(implementation=implementation)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
history = model.fit(
    strategy.distribute_datasets_from_function(replica_batches),
    epochs=1, steps_per_epoch=3, verbose=0,
).history
task = strategy.cluster_resolver.task_id if kind == "worker" else 0
if not task:
    np.savez(
        path,
        loss=history["loss"],
        **{v.name: v.numpy() for v in model.trainable_variables},
    )
"""


def start(kind, implementation, path):
    """The processes of one kind, which write one file."""
    environments = workers.environments(2) if kind == "worker" else [None]
    return [
        forks.Fork(TRAIN, kind, implementation, str(path), env=environment)
        for environment in environments
    ]


def test_three_steps_equal_those_of_one_device(tmp_path):
    kinds = {"one": "tiled", "two": "dense", "worker": "tiled"}
    processes = {
        kind: start(kind, implementation, tmp_path / f"{kind}.npz")
        for kind, implementation in kinds.items()
    }
    for kind, running in processes.items():
        for process in running:
            _, errors = process.communicate()
            assert process.returncode == 0, f"{kind}: {errors[-3000:]}"
    weights = {kind: np.load(tmp_path / f"{kind}.npz") for kind in kinds}
    assert len(weights["one"]) > 12
    for kind in kinds:
        assert weights[kind].keys() == weights["one"].keys()
        for name, expected in weights["one"].items():
            error = np.abs(weights[kind][name] - expected).max()
            scale = max(np.abs(expected).max(), 0.1)
            assert error / scale < 2e-4, f"{kind} {name}: {error / scale}"
