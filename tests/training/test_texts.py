"""Fine-tuning of a language model on sentences."""

import dataclasses
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from supcon_tf import config, data, run_files, text, training
from supcon_tf import settings as settings_module
from supcon_tf.training import best_epoch, runs, sentences
from tests import forks, language_model, workers
from tests import runs as catalogue

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "finetune_text.py"


@pytest.fixture
def folder(text_folder):
    return text_folder


def settings_of(folder, run_dir, **overrides):
    options = {"epochs": 20, "learning_rate": 3e-3}
    return catalogue.text_settings(run_dir, folder, **options | overrides)


def check_the_best_epoch(run):
    """The weights of the best epoch are kept, and have learned."""
    figures = run.metrics()
    ranks = [best_epoch._rank(line) for line in figures]
    best = ranks.index(max(ranks))
    assert run.best_checkpoint().endswith(f"{best + 1:08d}")
    opened = runs.open_run(run.path)
    assert opened.validation["nll"] == figures[best]["validation_loss"]
    tokens, labels = next(
        iter(data.make_examples(opened.source("test"), batch_size=12))
    )
    logits = opened.classifier("pretrained")(opened.encoder(tokens))
    assert np.mean(logits.numpy().argmax(axis=1) == labels) > 0.9
    assert (run.language_model / "vocab.txt").exists()


def test_cross_entropy_learns(finished_text_run):
    check_the_best_epoch(finished_text_run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {
            "objective": "supcon",
            "projection_dim": 8,
            "hidden_dims": (12,),
            # With these every seed learns, the classifier too.
            "pooling": "mean",
            "learning_rate": 0.01,
        },
        {
            "objective": "supcon+ce",
            "queue_size": 16,
            "examples_per_class": 4,
            "freeze": ("embeddings",),
            "layer_decay": 0.9,
        },
    ],
    ids=lambda options: options["objective"],
)
def test_supcon_learns(folder, tmp_path, capsys, options):
    settings = settings_of(folder, tmp_path / "run", **options)
    training.finetune_text(settings)
    printed = capsys.readouterr().out
    assert "bert, " in printed and "gradient norm at most 1;" in printed
    assert ("parameters train" in printed) == ("freeze" in options)
    check_the_best_epoch(run_files.RunDirectory(tmp_path / "run"))


@pytest.mark.slow
def test_resumed_runs_forget_later_best_epochs(folder, tmp_path):
    options = {"epochs": 4, "checkpoint_every": 2, "keep_checkpoints": 9}
    settings = settings_of(folder, tmp_path / "run", **options)
    run = run_files.RunDirectory(settings.run_dir)
    training.finetune_text(settings)
    last = run_files.steps_in(run.checkpoints)[-1]
    run_files.path_of(run.checkpoints, last).rmtree()
    for epoch in (3, 4, 9):  # as if the future had been far better
        run_files.path_of(run.best, epoch).mkdir(exist_ok=True)
        (run_files.path_of(run.best, epoch) / "bad").touch()
    again = dataclasses.replace(settings, resume=True)
    training.finetune_text(again)
    ranks = [best_epoch._rank(line) for line in run.metrics()]
    best = ranks.index(max(ranks)) + 1
    assert run.best_checkpoint().endswith(f"{best:08d}")
    assert not list(run.best.glob("*/bad"))


@pytest.mark.slow
def test_a_test_file_may_come_later(folder, tmp_path):
    run_dir = tmp_path / "run"
    settings = settings_of(folder, run_dir, epochs=1, test_file=None)
    training.finetune_text(settings)
    with pytest.raises(ValueError, match="with a --test_file, which --resume"):
        runs.open_run(run_dir).source("test")
    training.finetune_text(settings_of(folder, run_dir, epochs=1, resume=True))
    assert runs.open_run(run_dir).source("test").num_examples == 12


def test_other_labels_than_the_runs_are_refused(finished_text_run, tmp_path):
    """A training file that has changed would shift them."""
    run = catalogue.copy(finished_text_run.path, tmp_path / "run")
    before = run.recorded(config.FinetuneTextSettings).train_file
    train = tmp_path / "train.tsv"
    train.write_text(pathlib.Path(before).read_text() + "\na c\t-1\nb d\t-1")
    flags = run.settings_file.read_text()
    run.settings_file.write_text(flags.replace(before, str(train)))
    with pytest.raises(ValueError, match=r"classes of the data .* got \+-1"):
        runs.open_run(run.path).source("train")


def test_tools_for_images_refuse_texts(finished_text_run):
    run_dir = finished_text_run.path
    with pytest.raises(ValueError, match="must be a run on images, got .*/run"):
        training.train_linear(config.LinearSettings(str(run_dir)))
    assert training.load_encoder(run_dir).representation_dim == 16


def test_draws_are_few_balanced_and_apart_from_validation(folder, tmp_path):
    """The same of a seed, others of another, whatever the objective."""
    drawn_ids = {}
    for draw in (0, 0, 1):
        settings = settings_of(
            folder,
            tmp_path / "run",
            train_examples=6,
            draw=draw,
            batch_size=2,
            epochs=1,
            test_file=None,
            overwrite=True,
        )
        train, validation = sentences.splits(
            settings, text.load_tokenizer(folder)
        )
        assert np.bincount(train.labels).tolist() == [3, 3]
        assert np.bincount(validation.labels).tolist() == [4, 4]
        assert not {*train.ids} & {*validation.ids}
        assert drawn_ids.setdefault(draw, train.ids) == train.ids
    assert drawn_ids[0] != drawn_ids[1]


@pytest.mark.slow
def test_two_workers_learn_as_one_device(folder, tmp_path):
    """Real processes; the chief alone writes."""
    settings = settings_of(folder, tmp_path / "one", dropout=0.0, epochs=2)
    training.finetune_text(settings)
    flags = settings_module.to_flags(settings)
    flags += ["--strategy=multi_worker", f"--run_dir={tmp_path / 'two'}"]
    processes = [
        subprocess.Popen(
            [sys.executable, TOOL, *flags],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for environment in workers.environments(2)
    ]
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0, output
    single, distributed = (
        run_files.RunDirectory(tmp_path / name) for name in ("one", "two")
    )
    for a, b in zip(single.metrics(), distributed.metrics(), strict=True):
        for key in ("loss", "validation_loss"):
            assert b[key] == pytest.approx(a[key], rel=1e-3), key
    assert distributed.best_checkpoint()


KILLED = """
import os, signal
from supcon_tf.cli import commands
from supcon_tf.training import saving

save = saving.Saver._save

def save_and_die(self, step, metrics):
    save(self, step, metrics)
    if step == 6:  # of four steps of an epoch
        os.kill(os.getpid(), signal.SIGKILL)

saving.Saver._save = save_and_die
commands.run("finetune_text")
"""


@pytest.mark.slow
def test_a_killed_run_ends_bit_identical(folder, tmp_path):
    """With dropout, and without the files of the model."""
    moved = tmp_path / "model"
    moved.mkdir()
    language_model.write_model(moved)
    flags = [
        f"--model={moved}",
        f"--train_file={folder / 'train.tsv'}",
        f"--test_file={folder / 'test.tsv'}",
        "--validation_fraction=0.2",
        "--max_length=8",
        "--batch_size=8",
        "--num_views=2",
        "--epochs=3",
        "--learning_rate=0.003",
        "--checkpoint_steps=1",
        "--deterministic",
    ]
    reference = forks.run(TOOL, *flags, f"--run_dir={tmp_path / 'whole'}")
    assert reference.returncode == 0, reference.stderr
    flags.append(f"--run_dir={tmp_path / 'killed'}")
    killed = forks.run(KILLED, *flags)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    moved.rename(tmp_path / "elsewhere")
    again = forks.run(TOOL, *flags, "--resume")
    assert again.returncode == 0, again.stderr
    assert "resumed" in again.stdout
    reference_run, other = (
        run_files.RunDirectory(tmp_path / name) for name in ("whole", "killed")
    )
    encoders = [
        runs.open_run(run.path).encoder for run in (reference_run, other)
    ]
    for a, b in zip(
        *(encoder.get_weights() for encoder in encoders), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(reference_run.metrics(), other.metrics(), strict=True):
        for name in ("loss", "validation_loss", "classifier_loss"):
            assert a[name] == b[name], name


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model": None}, "--model must be given"),
        ({"train_file": None}, "--train_file must be given"),
        ({"test_file": "t", "train_file": "t"}, "--test_file must be another"),
        ({"hidden_dims": (8,)}, "--hidden_dims must be left out without --pro"),
        (
            {"objective": "ce", "mixing": "mixup"},
            "--mixing must be left out fo",
        ),
        ({"examples_per_class": 3}, "--examples_per_class must divide --batch"),
        ({"train_examples": 33}, "--train_examples must be at most 32, those"),
        ({"max_length": 13}, "`max_length` must be in 4..12"),
        ({"max_length": 12}, "--max_length must be at most 10, as the model"),
        ({"label_column": "none"}, "header, must have a column none"),
        ({"batch_size": 40}, "`batch_size` must be in 1..num_examples"),
    ],
)
def test_wrong_settings_begin_no_run(folder, tmp_path, overrides, message):
    run_dir = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        training.finetune_text(settings_of(folder, run_dir, **overrides))
    assert not run_dir.exists()
