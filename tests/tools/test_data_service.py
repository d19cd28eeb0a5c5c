"""The data service as processes of a machine, one of them killed."""

import collections
import signal
import socket

import pytest

from supcon_tf import config, data
from supcon_tf.augment import warp
from supcon_tf.training import input_pipeline
from tests import forks, processes
from tests.local_batches import Reference

TOOL = processes.ROOT / "tools" / "data_service.py"


@pytest.fixture
def services():
    """Starts a dispatcher and workers; ends them in the end."""
    started = []

    def run(*flags):
        started.append(forks.Fork(TOOL, *flags))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def address_of(dispatcher):
    """What a dispatcher prints first."""
    name, flag = dispatcher.read_line().split()
    assert name == "dispatcher" and flag.startswith("--data_service=grpc://")
    return flag.partition("=")[2]


def start_workers(services, address, *flags, count=2):
    """Starts workers, and returns them once they work."""
    flags = ["--role=worker", f"--dispatcher={address}", *flags]
    workers = [services(*flags) for _ in range(count)]
    for worker in workers:
        assert worker.read_line() == "worker       at localhost\n"
    return workers


def read_until_both_work(log):
    """Reads until two workers are amid their epochs."""
    remaining = []  # more than is sent ahead
    while not (len(remaining) == 2 and min(remaining) > 40):
        log.read(1)
        remaining = [log.steps - len(log.epochs[e]) for e in set(log.latest)]


class Log:
    """Which steps of which epochs of the digits have come, by their pixels."""

    steps = 89  # of an epoch, in batches of 16

    def __init__(self, address, start_step=0):
        digits = data.load("digits", "train")
        options = {"image_size": 16, "start_step": start_step}
        # An operation of TensorFlow Addons, not of TensorFlow.
        local = data.make_views(digits, 16, 2, warp.random_warp, **options)
        self.batches = iter(data.through_service(local, address))
        self.reference = Reference(local, self.steps, start_step)
        self.epochs = collections.defaultdict(list)
        self.latest = collections.deque(maxlen=6)

    def read(self, count):
        """Reads full batches."""
        for _ in range(count):
            views, labels = next(self.batches)
            assert views.shape == (16, 2, 16, 16, 3) and labels.shape == 16
            epoch, step = self.reference.find((views, labels))
            self.latest.append(epoch)
            self.epochs[epoch].append(step)

    def close(self):
        """Takes leave of the service, while that is there."""
        del self.batches

    def under_way(self):
        """The epochs of which some steps are missing."""
        return [e for e, s in self.epochs.items() if len(s) < self.steps]

    def check(self, start_step=0):
        """Each epoch has come in order from its start, no step twice."""
        for epoch, steps in self.epochs.items():
            first = max(0, start_step - epoch * self.steps)
            assert steps == list(range(first, first + len(steps))), epoch


@pytest.mark.slow
def test_batches_go_on_without_a_worker(services):
    dispatcher = services("--role=dispatcher", "--port=0")
    address = address_of(dispatcher)
    workers = start_workers(services, address)
    log = Log(address)
    read_until_both_work(log)
    workers[0].kill()
    before = set(log.epochs)
    log.read(5 * log.steps)
    log.check()
    # That of the dead worker has lost its rest; the last is under way.
    (lost,) = before & set(log.under_way())
    assert set(log.under_way()) - {lost} <= {max(log.epochs)}
    log.close()
    ended = (workers[1], signal.SIGTERM), (dispatcher, signal.SIGINT)
    for process, number in ended:
        process.send_signal(number)
        assert process.wait() == 0


def test_workers_of_a_run_share_an_epoch(services, tiny_settings):
    """Each gets half batches; what is mixed is mixed behind the service."""
    address = address_of(services("--port=0"))
    start_workers(services, address, count=1)
    settings = tiny_settings(
        data_service=address,
        augmentation="identity",
        objective="ce",
        mixing="mixup",
    )
    images = input_pipeline.source(settings, "train")

    def views(shard, mix=None):
        return input_pipeline.views(
            settings, images, 16, 2, mix, start_step=2, shard=shard
        )

    iterators = [iter(views((index, 2))) for index in range(2)]
    parts = [next(iterator)[0] for _ in range(24) for iterator in iterators]
    pairs = {pair.tobytes() for part in parts for pair in part.numpy()}
    assert len(pairs) == 2 * 24 * 8
    mix = input_pipeline.mixing(settings, 3)
    mixed, labels = next(iter(views((0, 1), mix)))
    assert mixed.shape == (16, 2, 16, 16, 3)
    assert ((labels > 0.01) & (labels < 0.99)).numpy().any()


@pytest.mark.slow
def test_a_service_whose_every_part_is_killed_and_replaced(services, tmp_path):
    journal = ["--role=dispatcher", "--journal", f"--run_dir={tmp_path}/j"]
    dispatcher = services(*journal, "--port=0")
    address = address_of(dispatcher)
    _, worker = start_workers(services, address)
    log = Log(address, start_step=100)
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
    for _ in range(3):  # under another port, and twice under its own
        read_until_both_work(log)
        worker.kill()
        log.read(40)
        port_flag = f"--worker_port={port}"
        (worker,) = start_workers(services, address, port_flag, count=1)
    read_until_both_work(log)
    dispatcher.kill()
    log.read(5)
    dispatcher = services(*journal, f"--port={address.rpartition(':')[2]}")
    assert address_of(dispatcher) == address
    log.read(5 * log.steps)
    read_until_both_work(log)
    log.check(start_step=100)
    log.close()


@pytest.mark.slow
def test_a_run_trains_on_a_service(services, tmp_path):
    address = address_of(services("--port=0"))
    flags = ["--epochs=2", f"--data_service={address}"]
    processes.end(processes.start(tmp_path / "run", *flags))
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"role": "worker"}, "--dispatcher must be the grpc:// address of"),
        (
            {"role": "worker", "dispatcher": "h:1"},
            "--dispatcher must be a grpc:// address, got h:1",
        ),
        (
            {"role": "worker", "dispatcher": "grpc://h:1"},
            "--host must be the name of this machine with a dispatcher on an",
        ),
        ({"dispatcher": "grpc://h:1"}, "left out with --role=all: only worker"),
        (
            {"role": "dispatcher", "worker_port": 2},
            "--worker_port must be left",
        ),
    ],
)
def test_flags_fit_the_role(flags, message):
    with pytest.raises(ValueError, match=message):
        config.DataServiceSettings(**flags)
    away = {"dispatcher": "grpc://host0:5050", "host": "host1"}
    config.DataServiceSettings(role="worker", **away)
