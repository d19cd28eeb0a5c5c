"""From a pretrained network and images to a classifier."""

import dataclasses
import json
import pathlib
import re
import shutil
import signal
import types

import numpy as np
import pytest

from supcon_tf import config, data, evaluation, exceptions, finetuning
from supcon_tf.finetuning import candidates, images, tuning
from supcon_tf.training import jobs, materials, representations, runs
from supcon_tf.transfer import linear_probe
from tests import forks, workers
from tests import runs as shared_runs

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def settings(finished_run, image_folder, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("finetuned") / "run"
    return config.FinetuneSettings(
        str(run_dir),
        data_dir=str(image_folder),
        init_from=str(finished_run.path),
        image_size=16,
        epochs=2,
        learning_rates=(0.01,),
        hidden_dims=(16,),
        batch_size=16,
        seed=1,
    )


@pytest.fixture(scope="module")
def run(settings):
    return finetuning.finetune_images(settings)


def test_the_run_has_the_network_and_the_classifier_that_were_chosen(run):
    opened = runs.Run.open(run.path)
    assert opened.classifiers == ("pretrained",)
    record = run.finetuning()
    assert record["training_images"] == 39
    assert record["validation_images"] == 9
    names = [row["name"] for row in record["candidates"]]
    assert names[:2] == ["frozen", "tuned at 0.01"]
    assert 1 + 3 <= len(names) <= 1 + 4
    assert record["chosen"] in names
    frozen, *tuned = record["candidates"]
    assert frozen["gain"] == frozen["gain_standard_error"] == 0
    for row in tuned:
        gain = frozen["validation"]["nll"] - row["validation"]["nll"]
        assert row["gain"] == pytest.approx(gain, abs=1e-4)
        assert row["gain_standard_error"] > 0
    assert not run.trainings.exists() and run.tool == "finetune"
    measured = evaluation.evaluate(shared_runs.evaluation_settings(run.path))
    assert measured["pretrained"]["top_1"] > 0.8


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_views", 4), ("mixing", "mixup"), ("knn_every", 1)]
    + [("profile", (1, 2))],
)
def test_a_setting_without_effect_is_refused_in_a_new_run(name, value):
    unused = config.FinetuneSettings("x", data_dir="y", **{name: value})
    message = f"--{name} must be left out of a fine-tuning, which does not"
    with pytest.raises(ValueError, match=message):
        images._network_fields(unused, None, None)


def test_copies_of_training_images_do_not_choose(
    settings, image_folder, tmp_path, capsys
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    before = images._splits(settings, None)
    assert "duplicates" not in capsys.readouterr().out
    for file in [*(photos / "train/dark").iterdir()]:
        shutil.copy(file, file.with_stem(f"copy_of_{file.stem}"))
    after = images._splits(
        dataclasses.replace(settings, data_dir=str(photos)), None
    )
    count = int(re.search(r"(\d+) of \d+ valid", capsys.readouterr().out)[1])
    shares = [
        np.isin(splits["validation"].digests, splits["train_part"].digests)
        for splits in (before, after)
    ]
    assert not shares[0].any() and not shares[1].any()
    held_out = after["train"].num_examples - after["train_part"].num_examples
    assert after["validation"].num_examples == held_out - count < held_out
    shutil.copytree(photos / "train", photos / "val")
    with pytest.raises(ValueError, match="got copies alone, 64: remove them"):
        images._splits(
            dataclasses.replace(settings, data_dir=str(photos)), None
        )


def test_a_file_that_is_lost_behind_the_trainings_is_named(
    settings, image_folder, tmp_path, monkeypatch
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    file = photos / "train/dark/03.jpg"
    monkeypatch.setattr(images, "_train_all", lambda *_: file.unlink() or [])
    paths = {"run_dir": tmp_path / "run", "data_dir": photos}
    texts = {name: str(path) for name, path in paths.items()}
    with pytest.raises(exceptions.FileLost, match="03.jpg .not there"):
        finetuning.finetune_images(dataclasses.replace(settings, **texts))


def test_every_rate_is_trained_and_one_may_diverge():
    def train(number, frozen):
        if number == 1:
            raise FloatingPointError("the loss is nan")
        return [f"tuned {number}", f"mean {number}"]

    rates = types.SimpleNamespace(epochs=2, learning_rates=(0.1, 9.0, 0.2))
    job = types.SimpleNamespace(settings=rates)
    search = types.SimpleNamespace(job=job, train=train)
    tuned = images._train_all(search, frozen=None)
    assert tuned == ["tuned 0", "mean 0", "tuned 2", "mean 2"]


@pytest.fixture(scope="module")
def frozen_run(settings, image_folder, tmp_path_factory):
    """In no time, and chosen by a folder of validation images."""
    folder = tmp_path_factory.mktemp("frozen")
    shutil.copytree(image_folder / "train", folder / "images/train")
    for split in ("validation", "test"):
        shutil.copytree(image_folder / "test", folder / "images" / split)
    changes = {"epochs": None, "learning_rates": (), "minutes": 1e-9}
    paths = {"run_dir": folder / "run", "data_dir": folder / "images"}
    texts = {name: str(path) for name, path in paths.items()}
    return finetuning.finetune_images(
        dataclasses.replace(settings, **changes, **texts)
    )


def test_no_minutes_leave_the_network_frozen(frozen_run):
    record = frozen_run.finetuning()
    assert [row["name"] for row in record["candidates"]] == ["frozen"]
    assert record["training_images"] == 48
    assert record["validation_images"] == 21
    recorded = frozen_run.recorded(config.FinetuneSettings)
    assert recorded.epochs == 0 and recorded.minutes is None


def test_a_run_of_some_minutes_goes_on_with_its_own_epochs():
    """However long a representation takes by now."""
    asked = config.FinetuneSettings(
        "x", data_dir="y", minutes=1.0, epochs=20, learning_rates=(0.01, 0.1)
    )
    recorded = dataclasses.replace(
        asked, minutes=None, epochs=5, learning_rates=(0.01,)
    )
    kept = dataclasses.replace(asked, **images._kept_fields(asked, recorded))
    train_part = types.SimpleNamespace(num_examples=100)
    job = jobs.Job(kept, None, None, None, train_part, recorded=recorded)
    resumed = images._within_minutes(job, seconds=1e9).settings
    for settings in (kept, resumed):
        assert (settings.epochs, settings.learning_rates) == (5, (0.01,))
    new = dataclasses.replace(job, recorded=None)
    assert images._within_minutes(new, seconds=1e9).settings.epochs == 0
    # What is no part of the record is refused later.
    fewer = dataclasses.replace(asked, epochs=3, learning_rates=(0.1,))
    expected = {"epochs": 3, "learning_rates": (0.1,)}
    assert images._kept_fields(fewer, recorded) == expected


def test_the_classifier_is_fitted_to_all_training_images(
    frozen_run, finished_run
):
    """Of a frozen network it is the optimum of the loss on all of them."""
    frozen = runs.Run.open(frozen_run.path)
    (row,) = frozen_run.finetuning()["candidates"]
    before = runs.Run.open(finished_run.path).encoder.get_weights()
    for new, old in zip(frozen.encoder.get_weights(), before, strict=True):
        np.testing.assert_array_equal(new, old)
    encoded, labels = representations.represent(
        frozen.encoder, frozen.source("train"), image_size=16
    )
    kernel, bias = frozen.classifier("pretrained").weights
    probabilities = np.exp(encoded @ kernel.numpy() + bias.numpy())
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    errors = probabilities - np.eye(3)[labels]
    gradient = encoded.T @ errors + 2 * row["l2"] * kernel.numpy()
    assert np.abs(gradient).max() < 1e-3 * len(labels)


def test_resuming_a_finished_run_changes_nothing(run, settings):
    before = (run.path / "finetune.json").read_bytes()
    checkpoint = run.latest_checkpoint()
    # The same command: rates and epochs are those of the run.
    again = dataclasses.replace(
        settings, resume=True, learning_rates=(), epochs=None
    )
    finetuning.finetune_images(again)
    assert (run.path / "finetune.json").read_bytes() == before
    assert run.latest_checkpoint() == checkpoint
    with pytest.raises(ValueError, match="holds a run already"):
        finetuning.finetune_images(settings)
    other = dataclasses.replace(settings, resume=True, epochs=3, seed=5)
    with pytest.raises(ValueError, match="--seed=5 .was 1"):
        finetuning.finetune_images(other)


def test_a_run_of_another_tool_does_not_go_on(settings, finished_run):
    pretrained = dataclasses.replace(
        settings, run_dir=str(finished_run.path), resume=True
    )
    message = "a run of tools/finetune.py, got .*, one of tools/pretrain.py"
    with pytest.raises(ValueError, match=message):
        finetuning.finetune_images(pretrained)


KILLED = """
import os, signal, sys
from supcon_tf import config, finetuning, settings
from supcon_tf.training import checkpoints

save, saved = checkpoints.save, []

def save_and_die(*args, **kwargs):
    save(*args, **kwargs)
    saved.append(args)
    if len(saved) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

checkpoints.save = save_and_die
finetuning.finetune_images(
    settings.from_flagfile(config.FinetuneSettings, sys.argv[1], "--resume")
)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same(run, tmp_path):
    """Killed in each of its trainings, and behind the last.

    An uninterrupted run in a process of its own has the same threads, and so
    the same last bits.
    """
    records, weights = [], []
    for name, saves in (("whole", [99]), ("killed", [1, 3, 99])):
        path = tmp_path / name
        flagfile = tmp_path / f"{name}.flags"
        flags = run.settings_file.read_text()
        for flag, old, new in (
            ("run_dir", run.path, path),
            ("learning_rates", "0.01", "0.01,0.1"),
        ):
            assert f"--{flag}={old}\n" in flags
            flags = flags.replace(f"--{flag}={old}\n", f"--{flag}={new}\n")
        flagfile.write_text(flags)
        for count in saves:
            done = forks.run(KILLED, str(flagfile), str(count))
            expected = 0 if count == 99 else -signal.SIGKILL
            assert done.returncode == expected, done.stderr[-2000:]
        records.append(json.loads((path / "finetune.json").read_text()))
        weights.append(runs.Run.open(path).encoder.get_weights())
    assert records[0] == records[1]
    for whole, killed in zip(*weights, strict=True):
        np.testing.assert_array_equal(whole, killed)


@pytest.mark.slow
def test_two_workers_end_like_one_device(run, settings, tmp_path):
    """The first measures and exports; both end well."""
    flags = run.settings_file.read_text().splitlines()
    changed = {"run_dir": tmp_path / "run", "strategy": "multi_worker"}
    flags = [
        flag
        for flag in flags
        if flag.partition("=")[0].removeprefix("--") not in changed
        and not flag.startswith("#")
    ] + [f"--{name}={value}" for name, value in changed.items()]
    both = [
        forks.Fork(ROOT / "tools/finetune.py", *flags, env=environment)
        for environment in workers.environments(2)
    ]
    outputs = []
    for worker in both:
        output, errors = worker.communicate()
        assert worker.returncode == 0, errors[-2000:]
        outputs.append(output)
    assert re.search(r"linear top-1 +[01]\.\d", outputs[0])
    assert "not run" not in outputs[0] and "stage 1" not in outputs[0]
    record = json.loads((tmp_path / "run/finetune.json").read_text())
    expected = {row["name"]: row for row in run.finetuning()["candidates"]}
    nll = {x["name"]: x["validation"]["nll"] for x in record["candidates"]}
    # Where epochs are nearly equal, the last bits say whether an earlier one
    # than the last is a candidate.
    last_epochs = {name for name in nll if ", epoch " not in name}
    assert len(last_epochs) == 4 and last_epochs <= expected.keys()
    for name in nll.keys() & expected.keys():
        loss = expected[name]["validation"]["nll"]
        assert nll[name] == pytest.approx(loss, abs=1e-4)
    for name in ("evaluation.json", "report.html", "export/1"):
        assert (tmp_path / "run" / name).exists()
    card = (tmp_path / "run/export/1/assets.extra/model_card.md").read_text()
    chosen = f"{record['chosen']}, which 9 validation images chose among "
    assert f"- Network: {chosen}{len(record['candidates'])}\n" in card
    assert "Epochs done" not in card and "- Top-1 accuracy: " in card


@pytest.mark.parametrize(("count", "first"), [(8, 0), (32, 1)])
def test_the_split_that_is_timed_is_traced_before(count, first):
    """Few validation images are a batch of another size."""
    search, represented = object.__new__(tuning.Tuning), []
    parts = [types.SimpleNamespace(num_examples=n) for n in (40, count)]
    search.job = types.SimpleNamespace(
        settings=types.SimpleNamespace(batch_size=32),
        train_part=parts[0],
        validation=parts[1],
    )
    search.judge = types.SimpleNamespace(
        represent=represented.append, candidate=lambda name: name
    )
    search.frozen()
    assert represented == [parts[first], parts[0]]


def test_a_training_goes_on_with_the_same_validation_images(
    image_folder, tmp_path, monkeypatch
):
    """They choose among epochs of before and after."""
    parts = [
        data.load("folder", split, str(image_folder))
        for split in ("train", "test")
    ]
    search = object.__new__(tuning.Tuning)
    search.model, search._steps = None, 1
    search.job = types.SimpleNamespace(
        settings=types.SimpleNamespace(learning_rates=(0.1,)),
        strategy=None,
        train_part=parts[0],
        validation=parts[1],
    )
    settings = shared_runs.image_settings(tmp_path / "run", image_folder)
    monkeypatch.setattr(search, "_restart", lambda frozen: None)
    monkeypatch.setattr(search, "_stage_1_settings", lambda number: settings)
    monkeypatch.setattr(tuning.builders, "compile_model", lambda *_: None)
    records = []

    def fit(*_, made_of=None, **options):
        records.append(made_of)
        raise FloatingPointError  # nothing is trained here

    monkeypatch.setattr(tuning.loop, "fit", fit)
    with pytest.raises(FloatingPointError):
        search.train(0, None)
    digest = materials.fingerprints(parts[1])["images"]
    assert records == [{"validation": digest}]


def test_too_few_images_and_lost_weights_are_refused(
    settings, image_folder, tmp_path
):
    photograph = image_folder / "train/dark/00.png"
    for name in ("a/0.png", "b/1.png", "b/2.png"):
        file = tmp_path / "images" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photograph, file)
    run_dir = str(tmp_path / "run")
    other_data = {"run_dir": run_dir, "data_dir": str(tmp_path / "images")}
    few = dataclasses.replace(settings, **other_data)
    lost = config.FinetuneSettings(
        run_dir,
        data_dir=str(image_folder),
        image_size=16,
        architecture="vgg8",
        weights=str(tmp_path / "none.h5"),
    )
    without = dataclasses.replace(lost, weights=None)
    for refused, error, message in (
        (few, ValueError, "two classes or more of two"),
        (lost, FileNotFoundError, r"none\.h5"),
        (without, ValueError, "--weights must name the file"),
    ):
        with pytest.raises(error, match=message):
            finetuning.finetune_images(refused)
    assert not (tmp_path / "run").exists()


def test_a_penalty_is_the_best_of_all_though_weak_ones_are_not_tried(
    monkeypatch,
):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    rows = rng.normal(size=(240, 20)).astype(np.float32)
    rows[:, :3] += np.eye(3)[labels]
    rows += 5  # as features behind a ReLU, far from a mean of zero
    sources = [
        types.SimpleNamespace(
            class_names=("a", "b", "c"), weights=None, part=part
        )
        for part in (slice(0, 120), slice(120, 240))
    ]
    judge = candidates.Judge(
        types.SimpleNamespace(get_weights=list),
        lambda source: (rows[source.part], labels[source.part]),
        *sources,
    )
    fit, strengths = linear_probe.LinearProbe.fit, []
    monkeypatch.setattr(
        linear_probe.LinearProbe,
        "fit",
        lambda self, *args: strengths.append(args[2]) or fit(self, *args),
    )
    candidate = judge.candidate("frozen")
    assert candidate.losses.dtype == np.float64
    assert 3 <= len(strengths) < len(candidates._STRENGTHS)
    scale = np.square(rows[:120]).sum(axis=1).mean()
    losses = {}
    for l2 in candidates._STRENGTHS * scale:
        probe = linear_probe.LinearProbe(3, 1000)
        fit(probe, rows[:120], labels[:120], float(l2))
        likelihoods = probe.predict(rows[120:])[np.arange(120), labels[120:]]
        losses[float(l2)] = -np.log(likelihoods).mean()
    assert candidate.l2 == pytest.approx(min(losses, key=losses.get))
    assert candidate.validation["nll"] == pytest.approx(
        min(losses.values()), abs=1e-4
    )


def candidate_of(name, losses):
    losses = np.asarray(losses, float)
    figures = {"nll": losses.mean(), "top_1": 1.0}
    return candidates.Candidate(name, [np.zeros(1)], 1.0, losses, figures)


def test_in_doubt_the_network_stays_frozen():
    frozen = candidate_of("frozen", [1.0, 2.0, 3.0, 2.0])
    # Better by 0.1 on average, but not by more than the images differ.
    doubtful = candidate_of("doubtful", [0.0, 3.0, 2.0, 2.6])
    # Better by 1.5 standard errors: one of several is by chance.
    likely = candidate_of("likely", [0.0, 2.0, 2.9, 1.0])
    clear = candidate_of("clear", [0.8, 1.7, 2.9, 1.8])
    assert candidates.choose(frozen, []) is frozen
    assert candidates.choose(frozen, [doubtful]) is frozen
    assert candidates.choose(frozen, [likely]) is frozen
    assert candidates.choose(frozen, [clear, doubtful]) is clear


def test_a_mean_of_weights_is_between():
    first = candidates.Candidate("a", [np.array([0.0, 4.0])], 1, None, {})
    second = candidates.Candidate("b", [np.array([8.0, 4.0])], 1, None, {})
    (mean,) = candidates.mean_weights(first, second, 0.25)
    np.testing.assert_array_equal(mean, [2.0, 4.0])
