"""A tf.data service: which batches come, and what can be wrong."""

import collections
import os
import signal
import socket

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, data
from supcon_tf.data import service
from tests import forks
from tests.local_batches import Reference


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


@pytest.fixture(scope="module")
def source():
    """22 noise images of 16 px, each with a label of its own."""
    return data.from_arrays(noise(22, 16, 16, 3), np.arange(22))


@pytest.fixture
def closed_port():
    with socket.create_server(("", 0)) as listener:
        return listener.getsockname()[1]


# That of a company, which knows nothing of this machine.
PROXY = {"http_proxy": "http://localhost:9", "no_proxy": ""}


@pytest.fixture(autouse=True)
def proxy(monkeypatch):
    for name, value in PROXY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def address():
    """Of a dispatcher with two workers, in two processes of their own."""
    started = []

    def printed(options):
        """The first line of a process with these settings."""
        process = forks.Fork(
            "from supcon_tf import config\n"
            "from supcon_tf.cli import commands\n"
            f"settings = config.DataServiceSettings({options})\n"
            "commands.data_service(settings)",
            env={**os.environ, **PROXY},
        )
        started.append(process)
        return process.read_line().strip()

    address = printed("port=0").partition("=")[2]
    assert printed(f"role='worker', dispatcher='{address}'").startswith("work")
    yield address
    for process in started:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.fixture
def port_in_use():
    with socket.create_server(("", 0)) as listener:
        yield listener.getsockname()[1]


def test_each_worker_makes_epochs_of_its_own(source, address):
    """From step 7 on, the third of the second epoch of 5 steps."""
    local = data.make_views(source, 4, 2, start_step=7, crop_area=None)
    served = data.through_service(local, address)
    assert served.element_spec == local.element_spec
    assert served.cardinality() == tf.data.INFINITE_CARDINALITY
    assert served.options() == local.options()
    reference = Reference(local, 5, first=7)
    steps_by_epoch = collections.defaultdict(list)
    for batch in served:
        epoch, step = reference.find(batch)
        steps_by_epoch[epoch].append(step)
        # The trainer may learn of the worker of epoch 1 after a while.
        if len(steps_by_epoch) > 20 and len(steps_by_epoch[1]) == 3:
            break
    assert steps_by_epoch.pop(1) == [2, 3, 4]
    for steps in steps_by_epoch.values():
        assert steps == list(range(len(steps)))
    # Whole, but for what the two workers are at and have not sent yet.
    epochs = range(2, 1 + max(steps_by_epoch))
    assert sum(len(steps_by_epoch[epoch]) < 5 for epoch in epochs) <= 8


@pytest.mark.slow(but=["balanced"])
@pytest.mark.parametrize("kind", ["folder", "balanced"])
def test_other_pipelines_travel(kind, address, image_folder):
    options = {"image_size": 8, "batch_size": 8, "crop_area": None}
    if kind == "folder":
        source = data.load("folder", "train", str(image_folder))
    else:
        source = data.from_arrays(noise(22, 8, 8, 3), np.arange(22) % 4)
        options["images_per_class"] = 2
    local = data.make_views(source, num_views=1, **options)
    reference = Reference(local, data.steps_per_epoch(source, 8))
    for batch in data.through_service(local, address).take(4):
        reference.find(batch)


def test_consumers_of_one_job_share_its_batches(source, address):
    local = data.make_views(source, 4, crop_area=None)
    iterators = [
        iter(data.through_service(local, address, "shared")) for _ in range(2)
    ]
    batches = [next(iterator) for _ in range(20) for iterator in iterators]
    reference = Reference(local, 5)
    assert len({reference.find(batch) for batch in batches}) == 40


def test_workers_of_a_run_name_their_job(source, address):
    """Each gets its rows of any batch; mixing comes behind the service."""
    mix = augment.MixUp(num_classes=22)
    options = {"data_service": address, "mix": mix, "crop_area": None}
    with pytest.raises(ValueError, match="`job_name` must be given"):
        data.make_views(source, 4, shard=(0, 2), **options)
    shards = [
        data.make_views(source, 4, shard=(i, 2), job_name="run", **options)
        for i in range(2)
    ]
    for batches in shards:
        views, labels = next(iter(batches))
        assert len(views) == 2 and labels.shape == (2, 22)


def test_an_error_names_the_argument_of_the_address(source):
    rule = "must be grpc://host:port, got grpc://localhost"
    with pytest.raises(ValueError, match=f"`data_service` {rule}"):
        data.make_views(source, 4, data_service="grpc://localhost")
    with pytest.raises(ValueError, match=f"`dispatcher` {rule}"):
        service.start_worker("grpc://localhost")


def test_a_service_that_cannot_be_used_is_an_error(closed_port):
    for address, message in (
        ("localhost:5050", "`address` must be grpc://host:port, got localhost"),
        ("grpc://localhost", "`address` must be grpc://host:port"),
        (f"grpc://localhost:{closed_port}", r"data_service.py, got .*refused"),
        ("grpc://nowhere.invalid:5050", "data_service.py, got grpc://nowhere"),
        ("grpc://.example:5050", "data_service.py, got grpc://.example"),
    ):
        with pytest.raises(ValueError, match=message):
            service.check_service(address, seconds=0.2)
    with pytest.raises(ValueError, match="`dispatcher` must be the address"):
        service.start_worker(f"grpc://localhost:{closed_port}", seconds=0.2)
    with pytest.raises(ValueError, match="`port` must be free, got 70000: "):
        service.start_dispatcher(70000)
    with pytest.raises(ValueError, match="`journal` must be .* not a directo"):
        service.start_dispatcher(journal=__file__)


# What asks in vain goes on asking until its process ends: of a dispatcher
# without workers, or of an address.
ASK = """
import sys
from supcon_tf.data import service

dispatcher = service.start_dispatcher()
address, = sys.argv[1:] or [dispatcher.target]
service.check_service(address, seconds=0.5)
"""


def test_a_service_that_does_not_answer_is_an_error(port_in_use):
    for address in ([], [f"grpc://localhost:{port_in_use}"]):
        process = forks.run(ASK, *address)
        assert process.returncode == 1
        assert "no worker answered within 0.5 s" in process.stderr


def test_a_port_is_not_shared(port_in_use, address):
    message = f"`port` must be free, got {port_in_use}: Address already in use"
    with pytest.raises(ValueError, match=message):
        service.start_dispatcher(port_in_use)
    with pytest.raises(ValueError, match=message):
        service.start_worker(address, port=port_in_use)
