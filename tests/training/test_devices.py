"""What a run needs of its devices, and what each worker reads."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, data, distribute
from supcon_tf.training import console, devices
from tests import forks, workers


def settings(**options):
    return config.PretrainSettings("run", **options)


@pytest.fixture
def two_replicas(monkeypatch, mirrored_strategy):
    """Every strategy that is made is the suite's one with two replicas."""
    monkeypatch.setattr(
        distribute, "make_strategy", lambda name, tpu: mirrored_strategy
    )


@pytest.mark.parametrize("stage", ["PretrainSettings", "LinearSettings"])
def test_replicas_must_share_the_batch(two_replicas, float32_policy, stage):
    make = getattr(config, stage)
    for batch_size, take in ((7, "6 or 8"), (3, "2 or 4")):
        with pytest.raises(
            ValueError,
            match="--batch_size must be a multiple of the 2 replicas of "
            f"--strategy=mirrored, got {batch_size}: take {take}$",
        ):
            devices.set_up(
                make("run", strategy="mirrored", batch_size=batch_size)
            )
    devices.set_up(make("run", strategy="mirrored", batch_size=8))


def test_xla_takes_one_replica(two_replicas, float32_policy, monkeypatch):
    with pytest.raises(
        ValueError, match="--jit_compile must be left out with 2 replicas"
    ):
        devices.set_up(settings(jit_compile=True))
    monkeypatch.undo()
    devices.set_up(settings(jit_compile=True, strategy="one_device"))
    with pytest.raises(ValueError, match="--jit_compile must be left out with"):
        settings(jit_compile=True, deterministic=True)


def test_many_workers_need_their_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG must be set on every"):
        devices.set_up(settings(strategy="multi_worker"))


def test_what_a_tpu_cannot_do_is_refused_by_the_settings():
    tpu = {"strategy": "tpu", "tpu": "name"}
    pretrain, linear = config.PretrainSettings, config.LinearSettings
    half = tpu | {"precision": "mixed_float16"}
    for make, run_dir, options, message in (
        (pretrain, "run", half, "--precision must be float32 or mix"),
        (pretrain, "run", tpu, "--run_dir must be a gs:// path .*, got run$"),
        (linear, "run", tpu, "--run_dir must be a gs:// path"),
        (
            pretrain,
            "gs://b/run",
            tpu | {"data_dir": "images"},
            "--data_dir must be a gs:// path .*, got images$",
        ),
        (pretrain, "run", {"tpu": "name"}, "--tpu must come with --strategy=t"),
    ):
        with pytest.raises(ValueError, match=message):
            make(run_dir, **options)
    pretrain("gs://b/run", data_dir="gs://b/images", **tpu)
    settings(strategy="tpu", tpu="local", precision="mixed_bfloat16")


def test_precision_and_seed_are_set(float32_policy):
    draws = []
    for precision in ("mixed_bfloat16", "float32"):
        strategy = devices.set_up(settings(precision=precision, seed=3))
        assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
        assert tf.keras.mixed_precision.global_policy().name == precision
        draws.append([tf.random.uniform([]).numpy(), np.random.rand()])
    assert draws[0] == draws[1]


def test_one_worker_gets_its_batches_as_they_are(mirrored_strategy):
    whole = tf.data.Dataset.range(4)
    asked = []

    def make(shard):
        asked.append(shard)
        return whole

    assert devices.distributed(mirrored_strategy, make) is whole
    assert asked == [(0, 1)]
    devices.wait_for_all(mirrored_strategy)


def test_replicas_of_one_worker_share_its_batch(mirrored_strategy, monkeypatch):
    """A worker of two devices among others, as the strategy would ask it."""
    monkeypatch.setattr(distribute, "num_workers", lambda strategy: 2)
    batches = devices.distributed(
        mirrored_strategy,
        lambda shard: tf.data.Dataset.range(8).batch(4, drop_remainder=True),
    )
    seen = [
        [part.numpy().tolist() for part in batch.values] for batch in batches
    ]
    assert seen == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_the_header_says_where_and_how(
    mirrored_strategy, float32_policy, capsys
):
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    images = data.load("digits", "train", None)
    with mirrored_strategy.scope():
        console.print_header(images, 8, settings(deterministic=True))
    line = capsys.readouterr().out.splitlines()[1]
    assert line == (
        "devices      MirroredStrategy: 2 replica(s), 1 worker(s), 2 CPU in "
        "all; mixed_bfloat16, XLA off, determinism on"
    )


WORKER = """
import json, pathlib, sys, time
import numpy as np, tensorflow as tf
from tensorflow.python.framework import config as framework_config
from supcon_tf import config, data, distribute
from supcon_tf.training import devices

index, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
strategy = devices.set_up(config.PretrainSettings(
    "run", strategy="multi_worker", batch_size=8,
    precision="mixed_bfloat16", deterministic=True,
))
if index == 0:
    time.sleep(0.5)
    (folder / "written").touch()
devices.wait_for_all(strategy)
result = {
    "waited": (folder / "written").exists(),
    "workers": distribute.num_workers(strategy),
    "is_chief": distribute.is_chief(strategy),
    "files": devices.file_shard(
        config.PretrainSettings("run", auto_shard="file"), strategy
    ),
    "elements": devices.file_shard(config.PretrainSettings("run"), strategy),
    "policy": tf.keras.mixed_precision.global_policy().name,
    "deterministic": framework_config.is_op_determinism_enabled(),
}
images = data.from_arrays(
    np.zeros([20, 8, 8, 3], np.uint8), np.arange(20),
    [str(i) for i in range(20)],
)
views = devices.distributed(
    strategy, lambda shard: data.make_views(images, 8, shard=shard)
)
batches = iter(views)
def local(value):
    (own,) = strategy.experimental_local_results(value)
    return own.numpy().tolist()

result["labels"] = [local(next(batches)[1]) for _ in range(4)]
(folder / f"{index}.json").write_text(json.dumps(result))
# Who ends first would take a collective away from the other.
while not all((folder / f"{i}.json").exists() for i in (0, 1)):
    time.sleep(0.1)
"""


def test_two_workers_read_what_one_device_reads_each_image_once(tmp_path):
    """They find each other on ports of this machine."""
    both = [
        forks.Fork(WORKER, str(index), str(tmp_path), env=environment)
        for index, environment in enumerate(workers.environments(2))
    ]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-3000:]
    parts = []
    for index in range(2):
        result = json.loads((tmp_path / f"{index}.json").read_text())
        parts.append(result.pop("labels"))
        assert [len(batch) for batch in parts[index]] == [4] * 4
        assert result == {
            "waited": True,
            "workers": 2,
            "is_chief": index == 0,
            "files": [index, 2],
            "elements": None,
            "policy": "mixed_bfloat16",
            "deterministic": True,
        }
    names = [str(index) for index in range(20)]
    pixels = np.zeros([20, 8, 8, 3], np.uint8)
    images = data.from_arrays(pixels, np.arange(20), names)
    views = data.make_views(images, 8).take(4)
    alone = [labels.numpy().tolist() for _, labels in views]
    assert [a + b for a, b in zip(*parts, strict=True)] == alone
    assert len(set(alone[0] + alone[1])) == 16
