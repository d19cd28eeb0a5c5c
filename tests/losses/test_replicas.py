"""Training on replicas is training on one device, in real processes.

One and four logical CPU devices, and two workers over the loopback interface,
train the same batch-normalised encoder for three steps.
"""

import numpy as np

from tests import forks, workers

TRAIN = """
import sys
import numpy as np, tensorflow as tf

kind, implementation, path = sys.argv[1:]
count = {"one": 1, "four": 4, "worker": 1}[kind]
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

resnet.BLOCKS_PER_GROUP[18] = (1, 1)  # a third as long to trace
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
    encoder.representation_dim = 13  # of the second group
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
    running = {
        kind: start(kind, implementation, tmp_path / f"{kind}.npz")
        for kind, implementation in (
            ("one", "tiled"),
            ("four", "dense"),
            ("worker", "tiled"),
        )
    }
    for kind, processes in running.items():
        for process in processes:
            _, errors = process.communicate()
            assert process.returncode == 0, f"{kind}: {errors[-3000:]}"
    single_device = dict(np.load(tmp_path / "one.npz"))
    assert len(single_device) > 20
    for kind in running:
        weights = dict(np.load(tmp_path / f"{kind}.npz"))
        assert weights.keys() == single_device.keys()
        for name, expected in single_device.items():
            error = np.abs(weights[name] - expected).max()
            scale = max(np.abs(expected).max(), 0.1)
            assert error / scale < 5e-5, f"{kind} {name}: {error / scale}"
