"""Views made by other processes, through TensorFlow's tf.data service."""

from __future__ import annotations

import socket
import threading
import time
from concurrent import futures

import tensorflow as tf
from tensorflow.data.experimental import service

from supcon_tf import exceptions
from supcon_tf.disk import files
from supcon_tf.host import listening, proxies

_CONNECT_SECONDS = 5.0  # A port that is open answers in a round trip.
_START_SECONDS = 60.0  # Time to start what a cluster starts all at once.


def through_service(
    dataset: tf.data.Dataset, address: str, job_name: str | None = None
) -> tf.data.Dataset:
    """Lets the workers of a tf.data service make the batches of `make_views`.

    Every worker takes an epoch that no other worker has, makes its batches in
    order, and takes another. So no batch comes twice, but batches of several
    epochs are mixed in the order of their completion: a run cannot be repeated
    bit by bit. A worker that starts later joins in with a new epoch; if a
    worker dies, the rest of its epoch is lost. With `start_step`, as in a
    resumed run, the epochs begin where they would in a local run.

    The workers need this package in the same version, and must see image files
    and TFDS sets under the same paths. Images in memory travel in the graph of
    the dataset, which is limited to 2 GB, as is a batch.

    Args:
      dataset: of `make_views`, the same in all processes that share a job.
        Each worker would count batches by itself (`Dataset.counter`,
        `enumerate`): append a count to the returned dataset.
      address: grpc://host:port of the dispatcher.
      job_name: processes of one run that name the same job share its batches,
        each of which goes to one process; None for a new job. The name of an
        earlier job gives the rest of its batches.

    Example:
      >>> import numpy as np
      >>> from supcon_tf import data
      >>> images = np.zeros([2, 8, 8, 3], np.uint8)
      >>> views = data.make_views(data.from_arrays(images, [0, 1]), 2)
      >>> try:
      ...     views = data.through_service(views, "grpc://localhost:1")
      ... except ValueError as error:  # nothing listens there
      ...     print(str(error).partition(",")[0])
      `address` must be that of a running tools/data_service.py

    Returns:
      A dataset of the same element spec, cardinality and options.

    Raises:
      ValueError: as `check_service`.
    """
    check_service(address)
    remote = service.distribute(
        service.ShardingPolicy.DYNAMIC, address, job_name
    )
    return dataset.apply(remote).with_options(dataset.options())


def check_service(address: str, seconds: float = _START_SECONDS) -> None:
    """Raises unless a tf.data service answers: TensorFlow would just wait.

    Args:
      address: grpc://host:port of the dispatcher.
      seconds: time to wait for a first worker.

    Example:
      >>> from supcon_tf import data
      >>> try:
      ...     data.check_service("localhost:5000")
      ... except ValueError as error:
      ...     print(error)
      `address` must be grpc://host:port, got localhost:5000

    Raises:
      ValueError: nothing can be reached at `address` within seconds, or the
        server is no dispatcher of this TensorFlow, or has no workers.
    """
    rule = "`address` must be that of a running tools/data_service.py"
    message = f"{rule}, got {address}"
    _connect(address, message)
    answer: futures.Future[tf.Tensor] = futures.Future()

    def request() -> None:
        try:
            remote = service.distribute(service.ShardingPolicy.OFF, address)
            answer.set_result(
                next(iter(tf.data.Dataset.range(1).apply(remote)))
            )
        except (tf.errors.OpError, StopIteration) as error:
            answer.set_exception(error)

    # Waiting for a worker cannot be interrupted: the thread may stay behind.
    threading.Thread(target=request, daemon=True).start()
    try:
        answer.result(timeout=seconds)
    except futures.TimeoutError:
        raise exceptions.InvalidValue(
            f"{message}: no worker answered within {seconds:g} s"
            f"{proxies.used_by_grpc()}"
        ) from None
    except (tf.errors.OpError, StopIteration) as error:
        raise exceptions.InvalidValue(f"{message}: {error}") from error


def start_dispatcher(
    port: int = 0, journal: str | None = None, host: str = "localhost"
) -> service.DispatchServer:
    """Starts a dispatcher, which gives epochs to workers, workers to trainers.

    Args:
      port: to listen on; 0 takes a free port.
      journal: directory of the dispatcher's state: a dispatcher that is started
        with the same journal and port goes on. None keeps the state in memory.
      host: name of this machine by which workers and trainers reach it. At any
        but localhost the dispatcher is open to all networks, without a
        password, and a warning says so: see `listening`.

    Returns:
      The server, whose `target` ends in its port.

    Raises:
      ValueError: `port` is taken, or the journal cannot be used.
    """
    _check_free(port)
    if journal is not None:
        journal = files.expanded(journal, "journal")
    proxies.go_around()
    try:
        with listening.opened("the dispatcher", host):
            return service.DispatchServer(
                service.DispatcherConfig(
                    port=port,
                    work_dir=journal,
                    fault_tolerant_mode=journal is not None,
                )
            )
    except (RuntimeError, tf.errors.OpError) as error:
        if journal is None:
            raise
        raise exceptions.InvalidValue(
            "`journal` must be a directory of a dispatcher, or a new one, got "
            f"{journal}: {exceptions.reason(str(error))}"
        ) from error


def start_worker(
    dispatcher: str,
    host: str = "localhost",
    port: int = 0,
    seconds: float = _START_SECONDS,
) -> service.WorkerServer:
    """Starts a worker, which makes epochs that no other worker makes.

    Args:
      dispatcher: its address, grpc://host:port.
      host: name of this machine by which trainers reach it; as that of
        `start_dispatcher`.
      port: to listen on; 0 takes a free one.
      seconds: time to wait for the dispatcher.

    Raises:
      ValueError: `dispatcher` cannot be reached, or `port` is taken.
    """
    with exceptions.argument("dispatcher", "address"):
        _connect(
            dispatcher,
            "`dispatcher` must be the address of a dispatcher that runs, got "
            f"{dispatcher}",
            seconds,
        )
    proxies.go_around(host)
    _check_free(port)
    # TensorFlow replaces %port%.
    address = f"{host}:%port%"
    with listening.opened("the worker", host):
        return service.WorkerServer(
            service.WorkerConfig(
                dispatcher_address=dispatcher.removeprefix("grpc://"),
                worker_address=address,
                data_transfer_address=address,
                port=port,
            )
        )


def _connect(address: str, message: str, seconds: float = 0.0) -> None:
    """Returns once a process listens at a grpc:// address.

    Raises:
      ValueError: `address` is of another form, or no process listens within
        seconds; then the message begins with `message`.
    """
    host, _, port = address.removeprefix("grpc://").rpartition(":")
    exceptions.require(
        address.startswith("grpc://") and host and port.isdecimal(),
        "`address` must be grpc://host:port",
        address,
    )
    end = time.monotonic() + seconds
    while True:
        try:
            target = host.strip("[]"), int(port)
            socket.create_connection(target, _CONNECT_SECONDS).close()
            # TensorFlow would ask a proxy, which cannot reach the port.
            return proxies.go_around(host)
        # UnicodeError is of a name that no host can have.
        except (OSError, UnicodeError) as error:
            if time.monotonic() >= end:
                raise exceptions.InvalidValue(f"{message}: {error}") from error
        time.sleep(0.2)


def _check_free(port: int) -> None:
    """Raises ValueError for a port that is taken: gRPC would share it."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", error)
            raise exceptions.InvalidValue(
                f"`port` must be free, got {port}: {reason}"
            ) from error
