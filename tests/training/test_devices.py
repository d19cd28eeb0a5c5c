"""Devices of a run, and the data of each worker."""

import dataclasses
import shutil
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, data, distribute, finetuning, training, transfer
from supcon_tf.host import cores
from supcon_tf.keras_2 import keras
from supcon_tf.training import console, devices, jobs, runs


def settings(**options):
    return config.PretrainSettings("run", **options)


@pytest.fixture
def two_replicas(monkeypatch, mirrored_strategy):
    """Every new strategy is the suite's strategy of two replicas."""
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


@pytest.mark.parametrize(
    "train, make",
    [
        (training.pretrain, config.PretrainSettings),
        (training.train_linear, config.LinearSettings),
        (training.finetune_text, config.FinetuneTextSettings),
        (finetuning.finetune_images, config.FinetuneSettings),
        (transfer.transfer_encoder, config.TransferSettings),
    ],
)
def test_every_training_gives_the_precision_back(
    train, make, float32_policy, tmp_path, monkeypatch
):
    """What follows in the process computes in the user's precision."""

    def prepare(*_, **__):
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
        raise ValueError("prepared")

    run = mock.MagicMock()
    run.files.stage.return_value.transfer_file = tmp_path / "transfer.json"
    monkeypatch.setattr(jobs, "prepare", prepare)
    monkeypatch.setattr(runs.Run, "open", lambda *_, **__: run)
    arguments = {
        config.FinetuneTextSettings: {"model": "m", "train_file": "t.tsv"},
        config.FinetuneSettings: {"data_dir": "photos"},
        config.TransferSettings: {"image_size": 32, "dataset": "digits"},
    }
    with pytest.raises(ValueError, match="prepared"):
        train(make(str(tmp_path / "run"), **arguments.get(make, {})))
    assert keras.mixed_precision.global_policy().name == "float32"


def test_xla_takes_one_replica(two_replicas, float32_policy, monkeypatch):
    with pytest.raises(ValueError, match="must be left out with 2 replicas"):
        devices.set_up(settings(jit_compile=True))
    monkeypatch.undo()
    devices.set_up(settings(jit_compile=True, strategy="one_device"))
    with pytest.raises(ValueError, match="--jit_compile must be left out with"):
        settings(jit_compile=True, deterministic=True)


def test_settings_refuse_wrong_options_of_a_tpu():
    tpu = {"strategy": "tpu", "tpu": "name"}
    pretrain, linear = config.PretrainSettings, config.LinearSettings
    half = tpu | {"precision": "mixed_float16"}
    local = tpu | {"data_dir": "images"}
    for make, run_dir, options, message in (
        (pretrain, "run", half, "--precision must be float32 or mix"),
        (pretrain, "run", tpu, "--run_dir must be a gs:// path .*, got run$"),
        (linear, "run", tpu, "--run_dir must be a gs:// path"),
        (pretrain, "gs://b/run", local, "--data_dir must be a gs:// .*images$"),
        (pretrain, "run", {"tpu": "name"}, "--tpu must be left out with --str"),
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
        assert keras.mixed_precision.global_policy().name == precision
        draws.append([tf.random.uniform([]).numpy(), np.random.rand()])
    assert draws[0] == draws[1]


def test_a_single_worker_gets_the_global_batches(mirrored_strategy):
    batches = tf.data.Dataset.range(4)
    shards = []

    def make(shard):
        shards.append(shard)
        return batches

    assert devices.distributed(mirrored_strategy, make) is batches
    assert shards == [(0, 1)]
    devices.wait_for_all(mirrored_strategy)


def test_replicas_of_a_worker_share_its_batch(mirrored_strategy, monkeypatch):
    """A worker of two devices among other workers."""
    monkeypatch.setattr(distribute, "num_workers", lambda strategy: 2)
    batches = devices.distributed(
        mirrored_strategy,
        lambda shard: tf.data.Dataset.range(8).batch(4, drop_remainder=True),
    )
    seen = [
        [part.numpy().tolist() for part in batch.values] for batch in batches
    ]
    assert seen == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_workers_read_different_files_by_auto_shard(
    mirrored_strategy, monkeypatch
):
    by_file = settings(auto_shard="file")
    assert devices.file_shard(by_file, mirrored_strategy) is None  # alone
    monkeypatch.setattr(distribute, "shard", lambda strategy: (1, 2))
    assert devices.file_shard(by_file, mirrored_strategy) == (1, 2)
    assert devices.file_shard(settings(), mirrored_strategy) is None


def test_the_header_has_devices_and_precision(
    mirrored_strategy, float32_policy, capsys
):
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    images = data.load("digits", "train", None)
    with mirrored_strategy.scope():
        console.print_header(images, 8, settings(deterministic=True))
    line = capsys.readouterr().out.splitlines()[1]
    assert line == (
        "devices      MirroredStrategy: 2 replica(s), 1 worker(s), 2 CPU in "
        "all; mixed_bfloat16, XLA off, determinism on"
    )


def test_the_header_names_parameters_of_other_policies(capsys):
    images = data.load("digits", "train", None)
    alone = config.PretrainSettings("x", jitter_strength=0.5)
    console.print_header(images, 8, alone)
    assert "without effect" not in capsys.readouterr().out
    other = dataclasses.replace(alone, randaugment_magnitude=5.0)
    console.print_header(images, 8, other)
    assert (
        "note         --randaugment_magnitude without effect: the policy of "
        "the views is --augmentation=simaugment\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "policy, lacked, told",
    [
        ("mixed_bfloat16", "bfloat16", True),
        ("mixed_bfloat16", "float16", False),
        ("mixed_float16", "float16", True),
        ("float32", "bfloat16", False),
    ],
)
def test_the_header_notes_a_precision_that_the_processor_lacks(
    policy, lacked, told, float32_policy, capsys, monkeypatch
):
    monkeypatch.setattr(cores, "lack_instructions", lambda t: t == lacked)
    keras.mixed_precision.set_global_policy(policy)
    console.print_header(data.load("digits", "train", None), 8)
    notes = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("note ")
    ]
    assert notes == told * [
        f"note         this processor has no {lacked} instructions, so that "
        f"{policy} takes many times as long as float32: leave out --precision"
    ]


def test_the_header_lists_copies_of_another_label(
    image_folder, tmp_path, capsys
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    shutil.copy(photos / "train/mid/01.jpg", photos / "train/dark/copy.jpg")
    console.print_header(data.load("folder", "train", str(photos)), 16)
    *_, line = capsys.readouterr().out.splitlines()
    assert line.endswith(
        "2 of 49 train images have a copy, byte for byte, of another label: "
        "train/dark/copy.jpg, train/mid/01.jpg; correct the labels, or remove "
        "the copies"
    )


def test_the_header_has_several_labels(image_folder, tmp_path, capsys):
    table = tmp_path / "list.csv"
    rows = [f"{image_folder}/train/dark/0{i}.png,a|b,train" for i in (0, 2)]
    rows.append(f"{image_folder}/test/dark/00.png,a,test")
    table.write_text("\n".join(["path,labels,split", *rows]))
    console.print_header(data.load(table), 16)
    line = capsys.readouterr().out.splitlines()[2]
    assert line.endswith(
        ": 2 train images of 2 classes, with several labels, views of 16 px"
    )


def test_the_header_says_that_few_names_divide_the_images(
    image_folder, tmp_path, capsys
):
    """As of folders with a main.jpg each; the hash of a name decides."""
    table = tmp_path / "list.csv"

    def header(name, split=""):
        rows = ["path,label" + ",split" * bool(split)]
        for i in range(24):
            path = tmp_path / str(i) / name.format(i)
            path.parent.mkdir(exist_ok=True)
            shutil.copy(image_folder / "train/dark/01.jpg", path)
            end = ("," + split.split()[i % 2]) if split else ""
            rows.append(f"{path},{'ab'[i // 12]}{end}")
        table.write_text("\n".join(rows))
        console.print_header(data.load(table), 16)
        return capsys.readouterr().out

    assert (
        "note         22 of 24 images are test images, a share of 0.92 instead "
        "of 0.2: a hash of its file name decides for each image, and they have "
        "1 names, such as main.jpg; give the list a column split\n"
    ) in header("main.jpg")
    assert "column split" not in header("main.jpg", "train test")
    assert "column split" not in header("{}.jpg")


def test_the_header_lists_classes_that_may_be_one(capsys):
    labels = np.arange(6)
    for names, text in (
        (
            ["Cat", "big dog", "c", "cat", "C++", "big_dog "],
            "'Cat' and 'cat', 'big dog' and 'big_dog '",
        ),
        (["\u00e9", "e\u0301", "0", "00", "1", "-1"], "'\u00e9' and 'e\u0301'"),
        (["1", "1.0", "0", "v1.0", "v1", "1.5"], "'1' and '1.0'"),
        (["a", "b", "c", "d", "e", "f"], None),
    ):
        images = data.from_arrays(
            np.zeros([6, 8, 8, 3], np.uint8), labels, class_names=names
        )
        console.print_header(images, 8)
        *_, line = capsys.readouterr().out.splitlines()
        if text:
            assert f"a final .0 alone: {text}; give the" in line
        else:
            assert line.startswith("data")
