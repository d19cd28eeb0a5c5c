"""Strategies, and the exchange of tensors between their replicas."""

from __future__ import annotations

import json
import os
import socket

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from absl import logging

from supcon_tf import exceptions
from supcon_tf.defaults import STRATEGIES
from supcon_tf.host import listening, proxies

_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)


def make_strategy(
    name: str = "auto", tpu: str | None = None, *, one_worker: bool = False
) -> tf.distribute.Strategy:
    """Builds the distribution strategy of a run.

    Args:
      name: `one_device`; `mirrored`: all GPUs of this machine, or its logical
        CPU devices where it has none; `multi_worker`: the machines of the
        environment variable TF_CONFIG, with all their GPUs; `tpu`; `auto`:
        multi_worker where TF_CONFIG names several, mirrored with more than one
        GPU, else one device.
      tpu: name or grpc:// address of the TPU, `local` on a TPU machine, or
        None for that of the environment.
      one_worker: whether `auto` means this machine alone, for work of a single
        process, whatever TF_CONFIG names.

    Raises:
      ValueError: `name` is none of these, TF_CONFIG does not describe a
        cluster with this task in it, or the TPU cannot be reached.
    """
    exceptions.require_one_of(STRATEGIES, "name", name)
    if name == "tpu":
        return _tpu(tpu)
    is_auto = name == "auto"
    is_cluster = is_auto and not one_worker and num_machines() > 1
    if name == "multi_worker" or is_cluster:
        return _multi_worker()
    devices = tf.config.list_logical_devices("GPU")
    if name == "mirrored" or (is_auto and len(devices) > 1):
        devices = devices or tf.config.list_logical_devices("CPU")
        return tf.distribute.MirroredStrategy([d.name for d in devices])
    return tf.distribute.OneDeviceStrategy(
        devices[0].name if devices else "/cpu:0"
    )


def _multi_worker() -> tf.distribute.Strategy:
    """The machines of TF_CONFIG; must come before any computation."""
    machines = _machines()  # checks them: TensorFlow would wait for ever
    hosts = sorted({address.rpartition(":")[0] for address in machines})
    proxies.go_around()
    for host in hosts:
        if proxy := proxies.used_by_grpc(host):
            logging.warning("%s of TF_CONFIG is asked%s", host, proxy)
    implementations = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=implementations.AUTO
        if tf.config.list_physical_devices("GPU")
        else implementations.RING
    )
    with listening.opened("this worker of TF_CONFIG", *hosts):
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=options
        )


def num_machines() -> int:
    """The number of machines in TF_CONFIG, 1 without it; raises ValueError."""
    return len(_machines()) if os.environ.get("TF_CONFIG") else 1


def _machines() -> list[str]:
    """The chief and the workers of TF_CONFIG; raises ValueError."""
    return _cluster()[0]


def _cluster() -> tuple[list[str], int]:
    """The machines of TF_CONFIG, and the index of this one.

    Raises:
      ValueError: TF_CONFIG is missing, or describes no such cluster.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise exceptions.InvalidValue(
            "TF_CONFIG must be set on every machine of a multi_worker run, "
            f"as {_TF_CONFIG_EXAMPLE}, got none"
        )
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        addresses = {job: cluster.get(job) or [] for job in ("chief", "worker")}
        machines = addresses[task["type"]]
        index = task["index"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exceptions.InvalidValue(
            f"TF_CONFIG must be JSON as {_TF_CONFIG_EXAMPLE}, got {text!r} "
            f"({type(error).__name__}: {error})"
        ) from None
    listed = list(addresses.values())
    if not any(listed) or not all(map(_are_addresses, listed)):
        raise exceptions.InvalidValue(
            "TF_CONFIG must list the addresses of its machines in "
            f'cluster.worker, each "host:port", got {text}'
        )
    if cluster.get("ps"):
        raise exceptions.InvalidValue(
            "TF_CONFIG must have no parameter servers in cluster.ps, for which "
            f"TensorFlow would wait: the workers keep all variables, got {text}"
        )
    if len(addresses["chief"]) > 1:
        raise exceptions.InvalidValue(
            "TF_CONFIG must list one machine at most in cluster.chief, got "
            f"{text}"
        )
    if not (isinstance(index, int) and 0 <= index < len(machines)):
        raise exceptions.InvalidValue(
            f"TF_CONFIG's task.index must be in 0..{len(machines) - 1}, the "
            f"machines of cluster.{task['type']}, got {index!r}"
        )
    num_before = 0 if task["type"] == "chief" else len(addresses["chief"])
    return [*addresses["chief"], *addresses["worker"]], num_before + index


def _are_addresses(machines: object) -> bool:
    """Whether these are a list of host:port, or of nothing."""
    return isinstance(machines, list) and all(
        isinstance(address, str)
        and address.rpartition(":")[2].isdecimal()
        and ":" in address
        for address in machines
    )


def _tpu(name: str | None) -> tf.distribute.Strategy:
    """All cores of a TPU."""
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        # TensorFlow would wait for ever for a TPU that does not answer.
        for address in resolver.cluster_spec().as_dict().get("worker", []):
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), timeout=30).close()
            proxies.go_around(host)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (
        ValueError,
        RuntimeError,
        ImportError,
        OSError,
        tf.errors.OpError,
    ) as error:
        reason = str(error).partition("\n")[0]
        raise exceptions.InvalidValue(
            "`tpu` must be the name or grpc:// address of a TPU that can be "
            "reached from here, or local on a machine that has one, got "
            f"{name!r} ({reason})"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def shard(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """(index, count) of this process among those that train together.

    Each process, or each host of a TPU, reads a part of the data.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return 0, strategy.extended.num_hosts
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    if resolver.task_id is None:  # made without TF_CONFIG
        return 0, 1
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    num_before = 0 if resolver.task_type == "chief" else chiefs
    local_replicas = len(strategy.extended.worker_devices)
    count = strategy.num_replicas_in_sync // local_replicas
    return num_before + resolver.task_id, count


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """The count of `shard`."""
    return shard(strategy)[1]


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process writes the files."""
    return strategy.extended.should_checkpoint


def is_first_machine() -> bool:
    """Whether no other machine comes before this one in TF_CONFIG."""
    return num_machines() == 1 or _cluster()[1] == 0


def chief_values(*arrays: npt.ArrayLike) -> list[np.ndarray]:
    """The chief's arrays, on every worker of the strategy in scope.

    Results of different workers may differ in their last bits: values for a
    decision, or for variables, must be those of one worker. All workers must
    call it, with arrays of equal shapes and dtypes.
    """
    strategy = tf.distribute.get_strategy()
    if num_workers(strategy) == 1:
        return [np.asarray(array) for array in arrays]

    @tf.function
    def gather_rows(*rows: tf.Tensor) -> list[tf.Tensor]:
        gathered_rows = [
            gather_across_replicas(row, cyclic=False) for row in rows
        ]
        return [replicas[0] for (replicas,) in gathered_rows]

    rows = [np.asarray(array)[np.newaxis] for array in arrays]
    outputs = strategy.run(gather_rows, args=tuple(map(tf.constant, rows)))
    return [
        strategy.experimental_local_results(output)[0].numpy()
        for output in outputs
    ]


def replicas_in_sync() -> int:
    """Replicas of the strategy that runs the calling code, 1 outside."""
    context = tf.distribute.get_replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def gather_across_replicas(
    *tensors: tf.Tensor, cyclic: bool = True
) -> list[tf.Tensor]:
    """Concatenates tensors of every replica, this replica's rows first.

    The order is cyclic in the global batch: this replica, the next one, ...,
    the previous one. Gradients flow back to the replica that each row came
    from (Sec. 4 of the paper trains with one loss over the global batch).

    Args:
      *tensors: [batch, ...] each, the batch of this replica; replicas may have
        batches of different size, as at the end of an epoch.
      cyclic: False for the order of the global batch on every replica.

    Returns:
      [global batch, ...] each, same dtype; `tensors` themselves where there
      is only one replica.
    """
    if replicas_in_sync() == 1:
        return list(tensors)
    context = tf.distribute.get_replica_context()
    replica_id = context.replica_id_in_sync_group  # a tensor on a TPU
    rows = context.all_gather(tf.shape(tensors[0])[:1], axis=0)  # [replicas]
    first = replica_id if cyclic else 0
    is_before = tf.range(context.num_replicas_in_sync) < first
    rows_before = tf.reduce_sum(tf.where(is_before, rows, 0))

    def gather(tensor: tf.Tensor) -> tf.Tensor:
        # With several workers all_gather needs a tensor with a device: inputs
        # of the training step have none, their copies have.
        gathered = context.all_gather(tf.identity(tensor), axis=0)
        gathered = tf.roll(gathered, -rows_before, axis=0)
        # all_gather forgets the static shape of the trailing axes.
        return tf.ensure_shape(gathered, [None, *tensor.shape[1:]])

    return [gather(tensor) for tensor in tensors]
