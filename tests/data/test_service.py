"""A tf.data service: which batches come, and what can be wrong."""

from __future__ import annotations

import collections
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import data
from supcon_tf.data import service


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def source():
    """22 noise images of 16 px, each with a label of its own."""
    return data.from_arrays(noise(22, 16, 16, 3), np.arange(22))


@pytest.fixture(scope="module")
def address():
    """Of a dispatcher with two workers, in a process of their own."""
    arguments = {
        "port": 0,
        "dispatcher": None,
        "workers": 2,
        "host": "localhost",
        "worker_port": 0,
        "journal": None,
    }
    code = (
        "from supcon_tf.data import service\n"
        f"service.serve('all', **{arguments})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process.stdout.readline().strip().partition("=")[2]
        process.terminate()
    assert process.returncode == 0


@pytest.fixture
def port_in_use():
    with socket.create_server(("", 0)) as listener:
        yield listener.getsockname()[1]


def positions(batches, reference, steps):
    """Returns {epoch: its steps, as they came}, by pixels and labels."""
    step_of = {
        (views.tobytes(), labels.tobytes()): step
        for step, (views, labels) in enumerate(reference.as_numpy_iterator())
    }
    found = collections.defaultdict(list)
    for views, labels in batches:
        step = step_of[views.tobytes(), labels.tobytes()]
        found[step // steps].append(step % steps)
    return found


def test_each_worker_makes_epochs_of_its_own(source, address):
    """From step 7 on, the third of the second epoch of 5 steps."""

    def views(start_step):
        return data.make_views(source, 4, 2, start_step=start_step)

    local = views(7)
    served = data.through_service(local, address)
    assert served.element_spec == local.element_spec
    assert served.cardinality() == tf.data.INFINITE_CARDINALITY
    assert served.options() == local.options()
    batches = served.take(80).as_numpy_iterator()
    found = positions(batches, views(0).take(400), 5)
    assert sorted(found) == list(range(1, 1 + len(found)))
    assert found.pop(1) == [2, 3, 4]
    for steps in found.values():
        assert steps == list(range(len(steps)))
    # Whole, but for what the two workers are at.
    assert sum(len(steps) < 5 for steps in found.values()) <= 2


@pytest.mark.parametrize("kind", ["folder", "balanced"])
def test_other_pipelines_travel(kind, address, image_folder):
    options = {"image_size": 8, "batch_size": 8}
    if kind == "folder":
        source = data.load("folder", "train", str(image_folder))
    else:
        source = data.from_arrays(noise(22, 8, 8, 3), np.arange(22) % 4)
        options["images_per_class"] = 2
    local = data.make_views(source, num_views=1, **options)
    steps = data.steps_per_epoch(source, 8)
    batches = data.through_service(local, address).take(4).as_numpy_iterator()
    found = positions(batches, local.take(3 * steps), steps)
    assert sum(map(len, found.values())) == 4


def test_consumers_of_one_job_share_its_batches(source, address):
    local = data.make_views(source, 4)
    both = [
        iter(data.through_service(local, address, "shared").take(20))
        for _ in range(2)
    ]
    batches = [
        [array.numpy() for array in next(iterator)]
        for _ in range(20)
        for iterator in both
    ]
    found = positions(batches, local.take(100), 5)
    for steps in found.values():
        assert len(set(steps)) == len(steps)


def test_a_service_that_cannot_be_used_is_an_error(port_in_use):
    with socket.create_server(("", 0)) as listener:
        closed = listener.getsockname()[1]
    for address, message in (
        ("localhost:5050", "`address` must be grpc://host:port, got localhost"),
        ("grpc://localhost", "`address` must be grpc://host:port"),
        (f"grpc://localhost:{closed}", r"\(--data_service\), got .*refused"),
        ("grpc://nowhere.invalid:5050", r"\(--data_service\), got grpc://now"),
        # A server of something else.
        (f"grpc://localhost:{port_in_use}", "no worker answered within 0.2 s"),
    ):
        with pytest.raises(ValueError, match=message):
            service.check_service(address, seconds=0.2)


def test_a_service_without_workers_is_an_error():
    dispatcher = service.start_dispatcher()
    with pytest.raises(ValueError, match="no worker answered within 0.5 s"):
        service.check_service(dispatcher.target, seconds=0.5)


def test_a_port_is_not_shared(port_in_use, address):
    message = f"`port` must be free, got {port_in_use}: Address already in use"
    with pytest.raises(ValueError, match=message):
        service.start_dispatcher(port_in_use)
    with pytest.raises(ValueError, match=message):
        service.start_workers(address, 2, first_port=port_in_use - 1)


def test_workers_need_a_dispatcher():
    with socket.create_server(("", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(ValueError, match="`dispatcher` must be the address"):
        service.start_workers(f"grpc://localhost:{closed}", seconds=0.2)
