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

from supcon_tf import config, evaluation, finetuning
from supcon_tf.finetuning import candidates, tuning
from supcon_tf.training import representations, runs
from supcon_tf.transfer import linear_probe
from tests import forks, workers

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
        learning_rates=(0.01, 0.1),
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
    assert 1 + 2 * 3 <= len(names) <= 1 + 2 * 4
    assert record["chosen"] in names
    frozen, *tuned = record["candidates"]
    assert frozen["gain"] == frozen["gain_standard_error"] == 0
    for row in tuned:
        gain = frozen["validation"]["nll"] - row["validation"]["nll"]
        assert row["gain"] == pytest.approx(gain, abs=1e-4)
        assert row["gain_standard_error"] > 0
    assert not run.trainings.exists() and run.tool == "finetune"
    measured = evaluation.evaluate(
        config.EvaluateSettings(str(run.path), plotted_images=0)
    )
    assert measured["pretrained"]["top_1"] > 0.8


def test_the_classifier_is_fitted_to_all_training_images(
    run, settings, finished_run
):
    """Of a frozen network it is the optimum of the loss on all of them."""
    own = dataclasses.replace(
        settings, run_dir=f"{run.path}_frozen", epochs=0, learning_rates=()
    )
    frozen = runs.Run.open(finetuning.finetune_images(own).path)
    (row,) = frozen.files.finetuning()["candidates"]
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


def test_resuming_a_finished_run_changes_nothing(run, settings, capsys):
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
    own = dataclasses.replace(
        settings, run_dir=str(finished_run.path), resume=True
    )
    message = "a run of tools/finetune.py, got .*, one of tools/pretrain.py"
    with pytest.raises(ValueError, match=message):
        finetuning.finetune_images(own)


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
        flagfile.write_text(
            run.settings_file.read_text().replace(
                f"--run_dir={run.path}\n", f"--run_dir={path}\n"
            )
        )
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
    changed = {"run_dir": tmp_path / "run", "learning_rates": "0.01"}
    changed["strategy"] = "multi_worker"
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
    told = []
    for worker in both:
        output, errors = worker.communicate()
        assert worker.returncode == 0, errors[-2000:]
        told.append(output)
    assert re.search(r"linear top-1 +[01]\.\d", told[0])
    assert "not run" not in told[0] and "stage 1" not in told[0]
    record = json.loads((tmp_path / "run/finetune.json").read_text())
    expected = {row["name"]: row for row in run.finetuning()["candidates"]}
    nll = {x["name"]: x["validation"]["nll"] for x in record["candidates"]}
    # Where epochs are nearly equal, the last bits say whether an earlier one
    # than the last is a candidate.
    of_last_epoch = {name for name in nll if ", epoch " not in name}
    assert len(of_last_epoch) == 4 and of_last_epoch <= expected.keys()
    for name in nll.keys() & expected.keys():
        loss = expected[name]["validation"]["nll"]
        assert nll[name] == pytest.approx(loss, abs=1e-4)
    for name in ("evaluation.json", "report.html", "export/1"):
        assert (tmp_path / "run" / name).exists()
    card = (tmp_path / "run/export/1/assets.extra/model_card.md").read_text()
    chosen = f"{record['chosen']}, which 9 validation images chose among "
    assert f"- Network: {chosen}{len(record['candidates'])}\n" in card
    assert "Epochs done" not in card and "- Top-1 accuracy: " in card


def test_a_folder_of_validation_images_chooses(
    settings, image_folder, tmp_path
):
    images = tmp_path / "images"
    shutil.copytree(image_folder / "train", images / "train")
    for split in ("validation", "test"):
        shutil.copytree(image_folder / "test", images / split)
    own = dataclasses.replace(
        settings,
        run_dir=str(tmp_path / "run"),
        data_dir=str(images),
        epochs=0,
        learning_rates=(),
    )
    record = finetuning.finetune_images(own).finetuning()
    assert record["training_images"] == 48
    assert record["validation_images"] == 21


def test_minutes_bound_the_trainings(settings, tmp_path, capsys):
    own = dataclasses.replace(
        settings,
        run_dir=str(tmp_path / "run"),
        epochs=None,
        learning_rates=(),
        minutes=1e-9,
    )
    run = finetuning.finetune_images(own)
    assert "no tuning: the network stays frozen" in capsys.readouterr().out
    assert len(run.finetuning()["candidates"]) == 1
    recorded = run.recorded(config.FinetuneSettings)
    assert recorded.epochs == 0 and recorded.minutes is None


@pytest.mark.parametrize(("count", "first"), [(8, "part"), (32, "held")])
def test_what_is_timed_is_traced(count, first):
    """Few validation images are a batch of another size."""
    search, seen = object.__new__(tuning.Tuning), []
    part, held = (types.SimpleNamespace(num_examples=n) for n in (40, count))
    search.job = types.SimpleNamespace(
        settings=types.SimpleNamespace(batch_size=32),
        train_part=part,
        validation=held,
    )
    search.judge = types.SimpleNamespace(
        represent=seen.append, candidate=lambda name: name
    )
    search.frozen()
    assert seen == [{"part": part, "held": held}[first], part]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a/0.png", "a/1.png", "a/2.png"), "two classes or more of two"),
        (("a/0.png", "b/1.png", "b/2.png"), "two classes or more of two"),
        (("x/a/0.png", "x/b/0.png"), "must hold image files only, not folders"),
    ],
    ids=["one class", "three photographs", "a folder of folders"],
)
def test_what_cannot_be_learned_from_is_refused(
    names, message, settings, image_folder, tmp_path
):
    source = image_folder / "train/dark/00.png"
    for name in names:
        file = tmp_path / "images" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, file)
    own = dataclasses.replace(
        settings,
        run_dir=str(tmp_path / "run"),
        data_dir=str(tmp_path / "images"),
    )
    with pytest.raises(ValueError, match=message):
        finetuning.finetune_images(own)
    assert not (tmp_path / "run").exists()


def test_weights_that_are_not_there_are_named(image_folder, tmp_path):
    own = config.FinetuneSettings(
        str(tmp_path / "run"),
        data_dir=str(image_folder),
        image_size=32,
        weights=str(tmp_path / "none.h5"),
    )
    with pytest.raises(FileNotFoundError, match=r"none\.h5"):
        finetuning.finetune_images(own)
    own = dataclasses.replace(own, weights=None, architecture="vgg8")
    with pytest.raises(ValueError, match="--weights must name the file"):
        finetuning.finetune_images(own)
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
        types.SimpleNamespace(class_names=("a", "b", "c"), weights=None, at=at)
        for at in (slice(0, 120), slice(120, 240))
    ]
    judge = candidates.Judge(
        types.SimpleNamespace(get_weights=list),
        lambda source: (rows[source.at], labels[source.at]),
        *sources,
    )
    fit, tried = linear_probe.LinearProbe.fit, []
    monkeypatch.setattr(
        linear_probe.LinearProbe,
        "fit",
        lambda self, *args: tried.append(args[2]) or fit(self, *args),
    )
    found = judge.candidate("frozen")
    assert 3 <= len(tried) < len(candidates._STRENGTHS)
    scale = np.square(rows[:120]).sum(axis=1).mean()
    losses = {}
    for l2 in candidates._STRENGTHS * scale:
        probe = linear_probe.LinearProbe(3, 1000)
        fit(probe, rows[:120], labels[:120], float(l2))
        own = probe.predict(rows[120:])[np.arange(120), labels[120:]]
        losses[float(l2)] = -np.log(own).mean()
    assert found.l2 == pytest.approx(min(losses, key=losses.get))
    assert found.validation["nll"] == pytest.approx(
        min(losses.values()), abs=1e-4
    )


def of_losses(name, losses):
    losses = np.asarray(losses, float)
    figures = {"nll": losses.mean(), "top_1": 1.0}
    return candidates.Candidate(name, [np.zeros(1)], 1.0, losses, figures)


def test_in_doubt_the_network_stays_frozen():
    frozen = of_losses("frozen", [1.0, 2.0, 3.0, 2.0])
    # Better by 0.1 on average, but not by more than the images differ.
    doubtful = of_losses("doubtful", [0.0, 3.0, 2.0, 2.6])
    # Better by 1.5 standard errors: one of several is by chance.
    likely = of_losses("likely", [0.0, 2.0, 2.9, 1.0])
    clear = of_losses("clear", [0.8, 1.7, 2.9, 1.8])
    assert candidates.choose(frozen, []) is frozen
    assert candidates.choose(frozen, [doubtful]) is frozen
    assert candidates.choose(frozen, [likely]) is frozen
    assert candidates.choose(frozen, [clear, doubtful]) is clear


def test_a_mean_of_weights_is_between():
    first = candidates.Candidate("a", [np.array([0.0, 4.0])], 1, None, {})
    second = candidates.Candidate("b", [np.array([8.0, 4.0])], 1, None, {})
    (mean,) = candidates.mean_weights(first, second, 0.25)
    np.testing.assert_array_equal(mean, [2.0, 4.0])
