"""Runs and data in folders of any name."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import (
    clients,
    config,
    conversion,
    data,
    evaluation,
    models,
    reports,
    serving,
    settings,
    text,
    training,
)
from supcon_tf.conversion import checkpoint_files
from tests import forks, language_model, runs

# Patterns, blanks, quotes, what shells and flagfiles know, letters of others.
NAME = "lr=[0.1] *?{a}#'\"\\$~é"
ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def odd_folder(image_folder, tmp_path_factory):
    """A folder of an odd name, with images."""
    root = tmp_path_factory.mktemp("odd") / NAME
    shutil.copytree(image_folder, root / "data")
    return root


@pytest.fixture(scope="module")
def odd(odd_folder, tiny_settings):
    """A run on images, both in a folder of an odd name.

    A sweep in such a folder is in tests/sweeps/test_run.py.
    """
    root = odd_folder
    pretrain_settings = tiny_settings(
        root / "own", data_dir=str(root / "data"), epochs=1
    )
    return root, training.pretrain(pretrain_settings)


@pytest.mark.slow
def test_a_run_goes_on(odd, capsys):
    _, run = odd
    recorded = run.recorded(config.PretrainSettings)
    longer = vars(recorded) | {"epochs": 2, "resume": True}
    training.pretrain(config.PretrainSettings(**longer))
    assert f"resumed      {run.checkpoints}/step-" in capsys.readouterr().out
    assert [epoch["epoch"] for epoch in run.metrics()] == [1, 2]


@pytest.mark.slow
def test_a_run_is_used(odd):
    root, run = odd
    path = str(run.path)
    training.train_linear(runs.linear_settings(path, epochs=5))
    evaluation.evaluate(config.EvaluateSettings(path, plane="pca"))
    assert run.evaluated().evaluation()["linear"] and run.stages() == ["linear"]
    for _ in range(2):
        serving.export(config.ExportSettings(path))
    assert run.exports() == [1, 2]
    answers = root / "answers.jsonl"
    predict_settings = config.PredictSettings(
        path, images=(str(root / "data" / "test"),), output=str(answers)
    )
    assert clients.predict(predict_settings) == 0
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(rows) == 21
    hits = [
        row["predicted_class"] == pathlib.Path(row["path"]).parent.name
        for row in rows
    ]
    assert sum(hits) / 21 == run.evaluated().evaluation()["linear"]["top_1"]
    results = conversion.convert(
        config.ConvertSettings(path, formats=("tflite_float32",))
    )
    assert results["models"]["tflite_float32"]["agreement"] == 1.0
    page = reports.write_report([path], root / "report.html")
    assert page.read_text().count("lr=[0.1]") > 1
    for method, options in (
        ("linear", {"l2": 1.0}),
        ("finetune", {"steps": 1, "batch_size": 16}),
    ):
        evaluation.transfer_encoder(
            config.TransferSettings(
                path,
                name=f"by_{method}",
                method=method,
                data_dir=str(root / "data"),
                **options,
            )
        )
    assert run.stages() == ["by_finetune", "by_linear", "linear"]


def test_records_and_weights(odd_folder, copy_run, tiny_settings):
    """TFRecord files, written twice; a run and an export as beginnings."""
    root = odd_folder
    run = copy_run(root / "trained")
    records = str(root / "records")
    splits = {
        name: data.load("folder", name, str(root / "data"))
        for name in ("train", "test")
    }
    for _ in range(2):
        data.write_tfrecords(splits, records, shard_examples=40)
    (root / "records" / ".plan.json").unlink()
    with pytest.raises(ValueError, match="must be empty, or hold files of the"):
        data.write_tfrecords(splits, records)
    begun = training.pretrain(
        tiny_settings(
            root / "begun",
            dataset="tfrecord",
            data_dir=records,
            epochs=0,
            init_from=str(run.path),
        )
    )
    encoder = training.load_encoder(begun.path)
    serving.export_saved_model(encoder, root / "export[s]", image_size=16)
    restored = models.Encoder("vgg8", width=0.1)
    restored.build((None, 16, 16, 3))
    models.load_weights(restored, str(root / "export[s]"))
    trained = training.load_encoder(run.path)
    for weights in zip(
        *(part.get_weights() for part in (trained, encoder, restored)),
        strict=True,
    ):
        np.testing.assert_array_equal(weights[0], weights[1])
        np.testing.assert_array_equal(weights[0], weights[2])


def test_a_checkpoint_of_another_project(tmp_path):
    folder = tmp_path / NAME
    kernel = tf.Variable(tf.ones([2]), name="resnet/kernel")
    prefix = tf.train.Checkpoint(model=kernel).write(str(folder / "ckpt"))
    arrays = checkpoint_files.read(prefix, "simclr_tf2")
    assert arrays["resnet/kernel"].tolist() == [1, 1]


@pytest.mark.slow
def test_a_run_on_texts(tmp_path):
    root = tmp_path / NAME
    root.mkdir()
    language_model.write_model(root)
    for name in ("train", "test"):
        language_model.write_sentences(root / f"{name}.tsv", 12)
    finetune_settings = config.FinetuneTextSettings(
        str(root / "run"),
        model=str(root),
        train_file=str(root / "train.tsv"),
        test_file=str(root / "test.tsv"),
        validation_fraction=0.2,
        max_length=8,
        batch_size=4,
        epochs=1,
    )
    training.finetune_text(finetune_settings)
    evaluation.evaluate(runs.evaluation_settings(finetune_settings.run_dir))


@pytest.fixture
def home(image_folder, tmp_path, monkeypatch):
    """A home with photographs and nothing else, and a folder to work in."""
    home, cwd = tmp_path / "home", tmp_path / "here"
    shutil.copytree(image_folder, home / "photos")
    cwd.mkdir()
    forks.run("")  # the server of forks writes into the home that it begins in
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(cwd)
    yield home
    assert not any(cwd.iterdir())


def run(tool, *flags):
    """Runs a tool in the working directory; its last line of errors."""
    process = forks.run(ROOT / "tools" / f"{tool}.py", *flags)
    assert "Traceback" not in process.stderr, process.stderr
    assert bool(process.returncode) == bool(process.stderr), process.stderr
    return process.stderr.strip().rpartition("\n")[2]


@pytest.mark.slow
def test_a_tilde_is_the_home_in_every_tool(home, tiny_settings):
    options = vars(tiny_settings("~/runs/mine", data_dir="~/photos", epochs=0))
    options |= {"warmup_epochs": 0.0}
    flagfile = home / "own.flags"
    flagfile.write_text(
        settings.to_flagfile(config.PretrainSettings(**options))
    )
    where = "--run_dir=~/runs/mine"
    assert not run("pretrain", "--flagfile=~/own.flags", where)
    recorded = (home / "runs/mine/settings.flags").read_text()
    assert f"--run_dir={home}/runs/mine\n" in recorded
    assert f"--data_dir={home}/photos\n" in recorded
    assert not run("export", where)
    assert not run("predict", where, "~/photos/test", "--output=~/answers.csv")
    assert len((home / "answers.csv").read_text().splitlines()) == 22
    assert not run("report", "~/runs/mine", "--run_dir=~/report")
    assert (home / "report" / "report.html").exists()
    assert not run("make_tfrecords", "--data_dir=~/photos", "--run_dir=~/made")
    assert (home / "made" / "tfrecords.json").exists()
    for flag in ("run_dir", "data_dir"):
        flags = {"run_dir": "~/new", "data_dir": "~/photos", flag: "~nobody9/x"}
        error_line = run("pretrain", *(f"--{k}={v}" for k, v in flags.items()))
        assert error_line == (
            f"error: --{flag} must be of a user that there is, where it begins "
            "with ~, got ~nobody9/x"
        )


def test_a_tilde_is_the_home_in_python(home):
    splits = {
        part: data.load("folder", part, "~/photos")
        for part in ("train", "test")
    }
    assert splits["train"].num_examples == 48
    data.write_tfrecords(splits, "~/records")
    assert data.load("tfrecord", "test", "~/records").num_examples == 21
    lines = [
        f"photos/{split}/{name}/00.png,{name},{split}"
        for split in splits
        for name in ("mid", "dark")
    ]
    (home / "list.csv").write_text("\n".join(["path,label,split", *lines]))
    assert data.load("manifest", "test", "~/list.csv").num_examples == 2
    encoder = models.Encoder("vgg8", width=0.1)
    encoder.build((None, 32, 32, 3))
    serving.export_saved_model(encoder, "~/export", image_size=32)
    models.load_weights(encoder, "~/export")
    assert not training.RunDirectory("~/runs/none").exists()
    with pytest.raises(
        ValueError, match=f"{home}/none must be a run directory"
    ):
        training.load_encoder("~/none")
    with pytest.raises(ValueError, match=f"got {home}/none, which has no"):
        reports.write_report(["~/none"], "~/report.html")
    (home / "model").mkdir()
    language_model.write_model(home / "model")
    language_model.write_sentences(home / "train.tsv", 4)
    texts = text.read_texts("~/train.tsv", ["sentence"], "label")
    tokenizer = text.load_tokenizer("~/model")
    assert text.to_source(texts, tokenizer, 8).num_examples == 4
    assert text.TextEncoder.from_pretrained("~/model").representation_dim == 16


@pytest.mark.parametrize(
    "name",
    ["x" * 300, "a\nb", "a\udcffb"],  # the last: a byte that is no UTF-8
    ids=["long", "lines", "bytes"],
)
def test_what_cannot_be_a_run_is_one_line_at_once(home, name):
    error_line = run("pretrain", "--data_dir=~/photos", f"--run_dir=~/{name}")
    assert error_line.startswith("error: --run_dir must be ")
    assert {path.name for path in home.iterdir()} == {"photos"}


@pytest.mark.slow
def test_links_and_slashes(home, tiny_settings, capsys):
    (home / "disk" / "run").mkdir(parents=True)
    (home / "link").symlink_to("disk/run")
    (home / "images").symlink_to("photos")
    options = {"data_dir": "~/images/", "epochs": 0, "warmup_epochs": 0.0}
    for name in ("~/link/", "~/link", "~/disk/run//"):
        training.pretrain(tiny_settings(name, resume=True, **options))
        written = name.replace("~", str(home)).rstrip("/")
        printed = capsys.readouterr().out
        assert f"pretrained   {written}/checkpoints/step-00000000" in printed
        assert ("resumed " in printed) == (name != "~/link/")
    training.pretrain(tiny_settings("~/link", overwrite=True, **options))
    assert (home / "link").is_symlink()
    assert training.RunDirectory("~/disk/run").latest_checkpoint()
