"""The data service as processes of a machine, one of them killed."""

from __future__ import annotations

import collections
import pathlib
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import augment, config, data
from supcon_tf.training import input_pipeline

ROOT = pathlib.Path(__file__).parent.parent.parent
TOOL = [sys.executable, str(ROOT / "tools" / "data_service.py")]


def start(*flags):
    """Starts the tool."""
    return subprocess.Popen(
        [*TOOL, *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@pytest.fixture
def services():
    """Starts a dispatcher and workers; ends them in the end."""
    processes = []

    def run(*flags):
        processes.append(start(*flags))
        return processes[-1]

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def address_of(dispatcher):
    """What a dispatcher prints first."""
    name, flag = dispatcher.stdout.readline().split()
    assert name == "dispatcher" and flag.startswith("--data_service=grpc://")
    return flag.partition("=")[2]


def workers_of(services, address, count=2):
    """Starts workers, and returns them once they work."""
    workers = [
        services("--role=worker", f"--dispatcher={address}")
        for _ in range(count)
    ]
    for worker in workers:
        assert worker.stdout.readline().split() == [
            "workers", "1", "at", "localhost"
        ]  # fmt: skip
    return workers


class Log:
    """Which steps of which epochs have come, by their pixels."""

    def __init__(self, dataset, reference, steps):
        self.batches = dataset.as_numpy_iterator()
        self.reference = enumerate(reference.as_numpy_iterator())
        self.step_of = {}
        self.steps = steps
        self.epochs = collections.defaultdict(list)

    def read(self, count):
        """Reads full batches, none of which has come before."""
        for _ in range(count):
            views, labels = next(self.batches)
            assert views.shape == (64, 2, 16, 16, 3) and len(labels) == 64
            step = self.find((views.tobytes(), labels.tobytes()))
            self.epochs[step // self.steps].append(step % self.steps)

    def find(self, key):
        """The step of a local run that has this batch."""
        while key not in self.step_of:
            step, (views, labels) = next(self.reference)
            self.step_of[views.tobytes(), labels.tobytes()] = step
        return self.step_of.pop(key)  # a second time it is not found

    def under_way(self):
        """The epochs of which some steps are missing."""
        return [e for e, s in self.epochs.items() if len(s) < self.steps]


def digits_log(address, steps=22, **options):
    """Views of the digits, from a service and from here."""
    source = data.load("digits", "train")
    assert data.steps_per_epoch(source, 64) == steps
    local = data.make_views(source, 64, 2, image_size=16, **options)
    return Log(
        data.through_service(local, address), local.take(60 * steps), steps
    )


def test_training_goes_on_without_a_worker(services):
    dispatcher = services("--role=dispatcher", "--port=0")
    address = address_of(dispatcher)
    workers = workers_of(services, address)
    log = digits_log(address)
    while True:
        log.read(1)
        left = [22 - len(log.epochs[e]) for e in log.under_way()]
        if len(left) == 2 and min(left) > 4:
            break
    workers[0].kill()
    before = set(log.epochs)
    log.read(5 * 22)
    for steps in log.epochs.values():
        assert steps == list(range(len(steps)))
    # That of the dead worker has lost its rest; one more may be under way.
    (lost,) = before & set(log.under_way())
    assert set(log.under_way()) - {lost} <= {max(log.epochs)}
    for process, number in (
        (workers[1], signal.SIGTERM),
        (dispatcher, signal.SIGINT),
    ):
        process.send_signal(number)
        assert process.wait(5) == 0
