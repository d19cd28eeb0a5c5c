"""Strategies by name and by what is there; the exchange between replicas."""

import json
import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import distribute, losses


def cluster(index=0, task="worker", **jobs):
    return json.dumps({"cluster": jobs, "task": {"type": task, "index": index}})


def set_tf_config(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text or "")


TWO_WORKERS = ["host0:2222", "host1:2222"]


def test_one_device_is_one_worker_and_its_own_chief(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for name in ("auto", "one_device"):
        strategy = distribute.make_strategy(name)
        assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
        assert distribute.num_workers(strategy) == 1
        assert distribute.is_chief(strategy)
    default = tf.distribute.get_strategy()
    assert distribute.num_workers(default) == 1
    assert distribute.is_chief(default)
    with pytest.raises(ValueError, match="`name` must be one of auto, one_dev"):
        distribute.make_strategy("two_devices")


def test_workers_without_tf_config_are_one(monkeypatch):
    """A mock: TensorFlow's strategy would stay for the tests that follow."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    kind = tf.distribute.MultiWorkerMirroredStrategy
    strategy = unittest.mock.Mock(spec=kind)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy.cluster_resolver = resolver
    assert distribute.shard(strategy) == (0, 1)


def test_mirrored_takes_all_devices_of_one_worker(mirrored_strategy):
    assert mirrored_strategy.num_replicas_in_sync == 2
    assert distribute.num_workers(mirrored_strategy) == 1
    assert distribute.is_chief(mirrored_strategy)


@pytest.mark.parametrize(
    ("text", "machines", "is_first"),
    [
        (None, 1, True),
        (cluster(worker=TWO_WORKERS), 2, True),
        (cluster(chief=TWO_WORKERS[:1], task="chief"), 1, True),
        (cluster(worker=TWO_WORKERS, index=1), 2, False),
        (cluster(chief=["host2:2222"], worker=TWO_WORKERS), 3, False),
        (
            cluster(chief=["host2:2222"], worker=TWO_WORKERS, task="chief"),
            3,
            True,
        ),
    ],
)
def test_one_worker_waits_for_no_other_machine(
    monkeypatch, text, machines, is_first
):
    set_tf_config(monkeypatch, text)
    assert distribute.num_machines() == machines
    assert distribute.is_first_machine() == is_first
    strategy = distribute.make_strategy(one_worker=True)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    with strategy.scope():
        (array,) = distribute.chief_values([1.5, 2.5])
    assert array.tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "must be set on every machine"),
        ("{", "must be JSON as .*got '{'"),
        ('["host0:2222"]', "must be JSON as"),
        ('{"task": {"type": "worker", "index": 0}}', "KeyError: 'cluster'"),
        ('{"cluster": {"worker": ["host0:2222"]}}', "KeyError: 'task'"),
        (cluster(worker=TWO_WORKERS, task="ps"), "KeyError: 'ps'"),
        (cluster(worker=TWO_WORKERS, ps=["host2:2222"]), "in cluster.ps"),
        (cluster(chief=TWO_WORKERS, worker=TWO_WORKERS), "one machine at most"),
        (
            cluster(worker=["host0", "host1"]),
            'in cluster.worker, .*"host:port"',
        ),
        (cluster(worker="host0:2222"), "in cluster.worker"),
        (cluster(worker=[1, 2]), "in cluster.worker"),
        (cluster(worker=[]), "in cluster.worker"),
        (cluster(worker=TWO_WORKERS, index=2), r"must be in 0\.\.1, .* got 2"),
        (cluster(worker=TWO_WORKERS, index="0"), "got '0'"),
        (cluster(worker=TWO_WORKERS, task="chief"), r"must be in 0\.\.-1"),
    ],
)
def test_a_bad_tf_config_is_named_before_anything_waits(
    monkeypatch, text, message
):
    set_tf_config(monkeypatch, text)
    for name in ("multi_worker", "auto") if text else ("multi_worker",):
        with pytest.raises(ValueError, match=f"TF_CONFIG.*{message}"):
            distribute.make_strategy(name)


def test_auto_takes_the_machines_of_tf_config_if_there_are_several(monkeypatch):
    calls = []
    monkeypatch.setattr(
        distribute.tf.distribute,
        "MultiWorkerMirroredStrategy",
        lambda communication_options: calls.append(communication_options),
    )
    monkeypatch.setenv("TF_CONFIG", cluster(worker=["host0:2222"]))
    strategy = distribute.make_strategy("auto")
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy) and not calls
    for text in (
        cluster(worker=TWO_WORKERS, index=1),
        cluster(chief=TWO_WORKERS[:1], worker=TWO_WORKERS[1:], task="chief"),
    ):
        monkeypatch.setenv("TF_CONFIG", text)
        distribute.make_strategy("auto")
    assert [options.implementation.value for options in calls] == ["RING"] * 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (None, "provide a TPU Name"),
        ("local", "TPUs not found"),
        ("grpc://127.0.0.1:1", "Connection refused"),
    ],
)
def test_a_tpu_that_is_not_there_is_one_clear_error(monkeypatch, name, reason):
    for variable in ("TPU_NAME", "TPU_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ValueError, match=f"`tpu` must be .* got .*{reason}"):
        distribute.make_strategy("tpu", name)


class ReplicaOfTwo:
    """A replica context whose other replica has twice the values.

    Its id is a tensor, as on a TPU, whose XLA these tests stand in for.
    """

    num_replicas_in_sync = 2

    def __init__(self, replica_id):
        self.replica_id_in_sync_group = replica_id

    def all_gather(self, value, axis):
        others = value * 2 if value.dtype.is_floating else value
        return tf.where(
            self.replica_id_in_sync_group == 0,
            tf.concat([value, others], axis),
            tf.concat([others, value], axis),
        )


def test_the_exchange_compiles_by_xla_wherever_the_replica_is(monkeypatch):
    """Own rows come first, in the loss too."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=[6, 2, 4]).astype(np.float32)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    labels = np.array([0, 1, 0, 2, 1, 3])

    @tf.function(jit_compile=True)
    def step(replica_id, z):
        context = ReplicaOfTwo(replica_id)
        with monkeypatch.context() as patch:
            patch.setattr(tf.distribute, "get_replica_context", lambda: context)
            (rows,) = distribute.gather_across_replicas(z)
            loss = losses.SupConLoss(reduction="none", normalize=False)
            return rows, loss(labels, z)

    expected = losses.supcon_loss(
        z, labels, contrast_projections=2 * z, contrast_labels=labels
    )
    for replica in (0, 1):
        rows, loss = step(tf.constant(replica), z)
        np.testing.assert_array_equal(rows, np.concatenate([z, 2 * z]))
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
