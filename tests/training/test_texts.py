"""Fine-tuning of a language model on sentences."""

import dataclasses
import pathlib
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, data, distribute, run_files, text, training
from supcon_tf import settings as settings_module
from supcon_tf.training import (
    best_epoch,
    checkpoints,
    console,
    runs,
    sentences,
)
from tests import forks, workers
from tests import runs as catalogue

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "finetune_text.py"


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
def test_supcon_learns(text_folder, tmp_path, capsys, options):
    settings = settings_of(text_folder, tmp_path / "run", **options)
    training.finetune_text(settings)
    printed = capsys.readouterr().out
    assert "bert, " in printed and "gradient norm at most 1;" in printed
    assert ("parameters train" in printed) == ("freeze" in options)
    check_the_best_epoch(run_files.RunDirectory(tmp_path / "run"))


@pytest.mark.slow
def test_held_out_sentences_that_training_sees_are_named(
    text_folder, tmp_path, capsys
):
    training_lines = (text_folder / "train.tsv").read_text().splitlines()
    files = {}
    for split, lines in (("validation", [0, 1, 2]), ("test", [0, 1])):
        files[f"{split}_file"] = str(tmp_path / f"{split}.tsv")
        content = "\n".join([*(training_lines[line] for line in lines), "z\t1"])
        pathlib.Path(files[f"{split}_file"]).write_text(content)
    settings = settings_of(
        text_folder,
        tmp_path / "run",
        epochs=1,
        validation_fraction=0.1,
        **files,
    )
    training.finetune_text(settings)
    printed = capsys.readouterr().out
    assert "2 of 3 validation texts are, byte for byte, training" in printed
    assert "1 of 2 test texts are, byte for byte, training texts" in printed


def test_test_sentences_that_choose_the_epoch_are_named(capsys):
    tokens = np.zeros([2, 4, 2], np.int32)
    test, validation, other = (
        data.from_tokens(
            tokens, [0, 1], ["bad", "good"], ids=lines, texts=lines
        )
        for lines in (("a", "b"), ("b", "c"), ("d", "e"))
    )
    console.print_choosing_copies(test, other)
    assert capsys.readouterr().out == ""
    console.print_choosing_copies(test, validation)
    line = "1 of 2 test texts are, byte for byte, validation texts: b; "
    assert line in capsys.readouterr().out


def test_resumed_runs_forget_later_best_epochs(tmp_path):
    run = run_files.RunDirectory(tmp_path)
    for epoch in (1, 2, 3, 9):
        run_files.path_of(run.best, epoch).mkdir(parents=True)
    best = best_epoch.BestEpoch(run, None, None, checkpoint_every=1)
    strategy = tf.distribute.get_strategy()
    best.set_model(types.SimpleNamespace(distribute_strategy=strategy))
    best.on_epoch_begin(2)
    assert run_files.steps_in(run.best) == [1, 2]


def test_validation_that_is_not_finite_is_a_divergence(tmp_path):
    """So that a fine-tuning goes on with its other learning rates."""

    def predict(validation):
        return np.full([1, 2], np.nan), np.zeros(1, int)

    run = run_files.RunDirectory(tmp_path)
    best = best_epoch.BestEpoch(run, None, predict, checkpoint_every=1)
    with pytest.raises(FloatingPointError, match="not finite after epoch 1"):
        best.on_epoch_end(0, {})


def test_workers_choose_an_epoch_by_the_figures_of_the_chief(
    tmp_path, monkeypatch
):
    strategy, saved = tf.distribute.get_strategy(), []
    monkeypatch.setattr(distribute, "chief_values", lambda *_: np.ones(2) / 2)
    monkeypatch.setattr(
        checkpoints, "save", lambda *args, **_: saved.append(args[2].step)
    )
    best = best_epoch.BestEpoch(
        run_files.RunDirectory(tmp_path),
        None,
        lambda validation: (np.eye(2), np.arange(2)),
        checkpoint_every=1,
    )
    best.set_model(types.SimpleNamespace(distribute_strategy=strategy))
    logs = {}
    best.on_epoch_end(0, logs)
    assert logs == {"validation_accuracy": 0.5, "validation_loss": 0.5}
    assert saved == [1]


@pytest.mark.slow
def test_a_test_file_may_come_later(text_folder, tmp_path):
    run_dir = tmp_path / "run"
    settings = settings_of(text_folder, run_dir, epochs=1)
    test_file = settings.test_file
    settings = dataclasses.replace(settings, test_file=None)
    training.finetune_text(settings)
    with pytest.raises(ValueError, match="with a --test_file, which --resume"):
        runs.open_run(run_dir).source("test")
    training.finetune_text(
        dataclasses.replace(settings, test_file=test_file, resume=True)
    )
    assert runs.open_run(run_dir).source("test").num_examples == 12


def test_other_labels_are_refused(finished_text_run, tmp_path):
    """A training file that has changed would shift them."""
    run = catalogue.copy(finished_text_run.path, tmp_path / "run")
    before = run.recorded(config.FinetuneTextSettings).train_file
    train = tmp_path / "train.tsv"
    train.write_text(pathlib.Path(before).read_text() + "\na c\t-1\nb d\t-1")
    flags = run.settings_file.read_text()
    run.settings_file.write_text(flags.replace(before, str(train)))
    with pytest.raises(ValueError, match=r"classes of the data .* got \+-1"):
        runs.open_run(run.path).source("train")


def test_a_run_goes_on_with_the_validation_texts_that_it_had(
    finished_text_run, tmp_path
):
    """Epochs before and after an edit would be compared on other texts."""
    run = catalogue.copy(finished_text_run.path, tmp_path / "run")
    recorded = run.recorded(config.FinetuneTextSettings)
    tokenizer = text.load_tokenizer(recorded.model)
    _, validation = sentences.splits(recorded, tokenizer)
    held_out = int(validation.ids[0].rpartition(":")[2])
    lines = pathlib.Path(recorded.train_file).read_text().splitlines()
    train = tmp_path / "train.tsv"
    settings = dataclasses.replace(
        recorded, run_dir=str(run.path), train_file=str(train), resume=True
    )
    train.write_text("\n".join(lines))
    training.finetune_text(settings)
    lines[held_out - 1] = f"c d {lines[held_out - 1]}"
    train.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="got other validation examples"):
        training.finetune_text(settings)


def test_a_label_for_every_text_is_refused(text_folder, tmp_path):
    """As by columns that are confused."""
    file = tmp_path / "train.tsv"
    file.write_text("sentence\tlabel\na\tb c\na\tb d\na\tb e\n")
    settings = settings_of(text_folder, tmp_path / "run", train_file=str(file))
    with pytest.raises(ValueError, match="`train_file` must have a class of t"):
        training.finetune_text(settings)


def test_a_draw_that_leaves_a_label_out_is_refused(text_folder, tmp_path):
    file = tmp_path / "train.tsv"
    rows = (f"a\t{index % 3}\n" for index in range(9))
    file.write_text("sentence\tlabel\n" + "".join(rows))
    settings = settings_of(
        text_folder, tmp_path / "run", train_file=str(file), train_examples=2
    )
    with pytest.raises(ValueError, match="at least 3, one of each label, .*2"):
        training.finetune_text(settings)


def test_tools_for_images_refuse_texts(finished_text_run):
    run_dir = finished_text_run.path
    with pytest.raises(ValueError, match="must be a run on images, got .*/run"):
        training.train_linear(config.LinearSettings(str(run_dir)))
    assert training.load_encoder(run_dir).representation_dim == 16


def test_draws_are_balanced_and_without_validation_sentences(
    text_folder, tmp_path
):
    drawn_ids = {}
    for draw in (0, 0, 1):
        settings = settings_of(
            text_folder,
            tmp_path / "run",
            train_examples=6,
            draw=draw,
            batch_size=2,
            epochs=1,
            test_file=None,
            overwrite=True,
        )
        train, validation = sentences.splits(
            settings, text.load_tokenizer(text_folder)
        )
        assert np.bincount(train.labels).tolist() == [3, 3]
        assert np.bincount(validation.labels).tolist() == [4, 4]
        assert not {*train.ids} & {*validation.ids}
        assert drawn_ids.setdefault(draw, train.ids) == train.ids
    assert drawn_ids[0] != drawn_ids[1]


@pytest.mark.slow
def test_two_workers_learn_as_one_device(text_folder, tmp_path):
    """Processes of which the chief alone writes."""
    settings = settings_of(text_folder, tmp_path / "one", dropout=0.0, epochs=2)
    training.finetune_text(settings)
    flags = settings_module.to_flags(settings)
    flags += ["--strategy=multi_worker", f"--run_dir={tmp_path / 'two'}"]
    processes = [
        forks.Fork(TOOL, *flags, env=environment)
        for environment in workers.environments(2)
    ]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    single, distributed = (
        run_files.RunDirectory(tmp_path / name) for name in ("one", "two")
    )
    for a, b in zip(single.metrics(), distributed.metrics(), strict=True):
        for key in ("loss", "validation_loss"):
            assert b[key] == pytest.approx(a[key], rel=1e-3), key
    assert distributed.best_checkpoint()


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(text_folder, tmp_path):
    """With dropout, from inside an epoch, and without the model's files."""
    shutil.copytree(text_folder, tmp_path / "texts")
    settings = settings_of(
        tmp_path / "texts",
        tmp_path / "run",
        epochs=3,  # of 4 steps
        checkpoint_steps=1,
        keep_checkpoints=99,
    )
    training.finetune_text(settings)
    run = run_files.RunDirectory(tmp_path / "run")
    expected, figures = runs.open_run(run.path).encoder, run.metrics()
    for step in range(7, 13):
        run_files.path_of(run.checkpoints, step).rmtree()
    (tmp_path / "texts" / "config.json").unlink()
    training.finetune_text(dataclasses.replace(settings, resume=True))
    encoder = runs.open_run(run.path).encoder
    for weight, other in zip(expected.weights, encoder.weights, strict=True):
        np.testing.assert_allclose(weight, other, rtol=1e-4, atol=1e-5)
    for line, other in zip(figures, run.metrics(), strict=True):
        for name in ("loss", "validation_loss", "classifier_loss"):
            assert other[name] == pytest.approx(line[name], rel=1e-4)


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
def test_wrong_settings_begin_no_run(text_folder, tmp_path, overrides, message):
    run_dir = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        training.finetune_text(settings_of(text_folder, run_dir, **overrides))
    assert not run_dir.exists()
