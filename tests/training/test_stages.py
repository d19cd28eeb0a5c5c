"""Pretraining and the linear stage on image files."""

import contextlib
import dataclasses
import io
import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import supcon_tf
from supcon_tf import (
    config,
    data,
    distribute,
    evaluation,
    models,
    run_files,
    training,
)
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    devices,
    input_pipeline,
    jobs,
    runs,
    stages,
)
from tests import runs as shared_runs


def stored_parts(run):
    variables = tf.train.list_variables(f"{run.latest_checkpoint()}/variables")
    return {name.split("/")[0] for name, _ in variables}


def assert_equal_weights(network, other):
    for weight, expected in zip(network.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_a_run_has_the_files_of_later_tools(finished_run):
    run = finished_run
    assert run.class_names() == ("bright", "dark", "mid")
    figures = run.metrics()
    assert [line["epoch"] for line in figures] == [1, 2]
    names = {"loss", "loss/chance", "learning_rate", "examples/s", "data_wait"}
    assert names < figures[0].keys()
    assert run.latest_checkpoint().endswith("/step-00000006")
    progress = checkpoints.read_progress(run_files.path_of(run.checkpoints, 6))
    assert progress.epoch == 2 and progress.metrics == {}
    assert list(run.tensorboard.glob("*/events.*"))
    stage = run.stage("linear")
    assert stage.latest_checkpoint().endswith("/step-00000060")
    assert "data_wait" not in stage.metrics()[0]  # of constant views
    assert stored_parts(stage) >= {"classifier", "optimizer"}


def test_a_trained_encoder_loads_in_a_call(finished_run):
    encoder = supcon_tf.load_encoder(str(finished_run.path))
    other = training.load_encoder(finished_run.path)
    assert_equal_weights(encoder, other)
    with pytest.raises(ValueError, match="must be a run directory"):
        supcon_tf.load_encoder(finished_run.path / "none")


def job_of(settings, stage, images):
    return jobs.Job(settings, stage, tf.distribute.get_strategy(), images)


def test_both_ways_of_stage_2_train_a_classifier_on_a_frozen_encoder(
    finished_run,
):
    """On views and on representations; its batch norm does not move."""
    constant = shared_runs.linear_settings(
        finished_run.path, epochs=3, batch_size=48
    )
    assert constant.views_are_constant
    augmented = dataclasses.replace(constant, horizontal_flip=True)
    assert not augmented.views_are_constant
    pretrained = finished_run.recorded(config.PretrainSettings)
    images = input_pipeline.source(pretrained, "train")
    losses = []
    for fit in (stages._fit_on_views, stages._fit_on_representations):
        keras.utils.set_random_seed(0)
        stage = finished_run.stage(f"stage{len(losses)}")
        encoder = training.load_encoder(finished_run.path)
        classifier = models.LinearClassifier(encoder, 3)
        classifier.build((None, 16, 16, 3))
        before = [weight.numpy() for weight in encoder.weights]
        fit(job_of(constant, stage, images), classifier, 16, {})
        losses.append([line["loss"] for line in stage.metrics()])
        for weight, expected in zip(encoder.weights, before, strict=True):
            np.testing.assert_array_equal(weight, expected)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.fixture(scope="module")
def untrained(image_folder, tiny_settings, tmp_path_factory):
    """The run of no epochs on imperfect data, and its printed lines.

    Training and test images have different sizes. Among the test images are a
    copy of a training image and a bad file. The settings have a relative path.
    """
    folder = tmp_path_factory.mktemp("data")
    for path in image_folder.rglob("*.*g"):
        target = folder / path.relative_to(image_folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        side = 24 if "train" in path.parts else 40
        Image.open(path).resize([side, side]).save(target)
    test = folder / "test" / "dark"
    shutil.copy(folder / "train/dark/01.jpg", test / "copied.jpg")
    (test / "bad.png").write_bytes(b"no image")
    options = {"data_dir": folder.name, "image_size": None, "epochs": 0}
    pretraining = tiny_settings(
        folder.parent / "untrained" / "run", skip_bad_images=True, **options
    )
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
    ):
        patch.chdir(folder.parent)
        strict = dataclasses.replace(pretraining, skip_bad_images=False)
        with pytest.raises(ValueError, match="1 bad files of 23 .*dark/bad.pn"):
            training.pretrain(strict)
        assert not (folder.parent / "untrained").exists()
        run = training.pretrain(pretraining)
    return run, folder, printed.getvalue()


def test_a_run_records_the_resolved_settings(untrained):
    """Later stages run in any folder, and decide no size anew."""
    run, folder, _ = untrained
    recorded = run.recorded(config.PretrainSettings)
    assert recorded.data_dir == str(folder)
    assert recorded.image_size == 24  # of the training images


def test_a_run_records_its_images(untrained):
    run, _, _ = untrained
    record = json.loads(run.images_file.read_text())
    assert record["skipped"] == ["test/dark/bad.png"]
    assert len(record["trained_on"]) == len(record["digests"]) == 48


def test_a_run_of_no_epochs_has_the_initial_weights(untrained):
    run, _, _ = untrained
    recorded = run.recorded(config.PretrainSettings)
    keras.utils.set_random_seed(recorded.seed)
    initial = builders.model(recorded, 3).encoder
    assert_equal_weights(initial, training.load_encoder(run.path))
    assert not run.metrics_file.exists()


def test_duplicates_of_training_images_are_printed(untrained):
    _, _, printed = untrained
    (line,) = (
        line for line in printed.splitlines() if line.startswith("duplicates")
    )
    assert "1 of 22 test images are, byte for byte, training images" in line
    assert "test/dark/copied.jpg; --drop_duplicates leaves them out" in line


@pytest.mark.parametrize(
    ("stem", "size", "note"),
    [
        ("cifar", 72, "keeps images of 72 px at full size: --stem=imagenet"),
        ("imagenet", 32, "shrinks images of 32 px to 1: --stem=cifar"),
        ("cifar", 32, ""),
    ],
)
def test_an_unusual_stem_has_a_note(tiny_settings, capsys, stem, size, note):
    pretraining = tiny_settings(image_size=size)
    images = input_pipeline.source(pretraining, "train")
    encoder = types.SimpleNamespace(
        resolved_stem=stem, representation_dim=8, count_params=lambda: 1000
    )
    console.print_pretraining(
        jobs.resolved(pretraining, images),
        types.SimpleNamespace(encoder=encoder),
        images,
    )
    printed = capsys.readouterr().out
    assert f"stem {stem}, 1,000 parameters, 8-d" in printed
    assert note in printed
    assert ("\nnote " in printed) == bool(note)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_dir": "missing"}, "missing"),
        ({"batch_size": 1000}, "1000 for the 48"),
        ({"image_size": None}, "--image_size must be given"),
        ({"images_per_class": 2}, "has at most the 3 classes of folder"),
        ({"unsupervised_classes": ("x",)}, "must be some of bright, dark, mid"),
        (
            {"unsupervised_classes": ("mid",), "num_views": 1},
            "--num_views must be at least 2 with --unsupervised_classes",
        ),
    ],
)
def test_wrong_settings_begin_no_run(tiny_settings, tmp_path, options, message):
    path = tmp_path / "run"
    with pytest.raises((ValueError, OSError), match=message):
        training.pretrain(tiny_settings(path, **options))
    assert not path.exists()


def test_labels_of_a_single_class_teach_nothing(
    image_folder, tiny_settings, tmp_path
):
    for split in ("train", "test"):
        shutil.copytree(image_folder / split / "mid", tmp_path / split / "mid")
    for objective in ("supcon", "ce"):
        options = {"data_dir": str(tmp_path), "objective": objective}
        with pytest.raises(ValueError, match="two classes or more .* got mid;"):
            training.pretrain(tiny_settings(**options))
    options = {"data_dir": str(tmp_path), "objective": "simclr"}
    assert jobs.prepare(tiny_settings(**options), stages._splits)


@pytest.mark.parametrize(
    "names, message",
    [
        ("ac", "arrays must have the same classes in both .*: - b$"),
        ("abd", "only in test.: - c, [+] d$"),
        ("acb", "a difference .*: the order$"),
    ],
)
def test_splits_of_other_classes_begin_no_run(monkeypatch, names, message):
    """As of a user's function that looks for the classes in each split."""

    def load(_, split, *options):
        split_names = [*(names if split == "test" else "abc")]
        images = np.zeros([len(split_names), 8, 8, 3], np.uint8)
        return data.from_arrays(images, range(len(split_names)), split_names)

    monkeypatch.setattr(input_pipeline, "source", load)
    settings = config.PretrainSettings("x", batch_size=2)
    with pytest.raises(ValueError, match=message):
        jobs.prepare(settings, stages._splits)
    names = "xy"  # entirely others: for retrieval
    assert stages._splits(settings, tf.distribute.get_strategy())


def test_a_linear_stage_that_cannot_begin_leaves_nothing(
    finished_run, tmp_path
):
    with pytest.raises(ValueError, match="must be a run directory of tools/p"):
        training.train_linear(config.LinearSettings(str(tmp_path / "none")))
    run_dir = str(finished_run.path)
    with pytest.raises(ValueError, match="holds a run already"):
        training.train_linear(config.LinearSettings(run_dir))
    large = config.LinearSettings(run_dir, name="large", batch_size=49)
    with pytest.raises(ValueError, match="must be in 1..num_examples, got 49"):
        training.train_linear(large)
    assert not finished_run.stage("large").path.exists()


def test_constant_views_are_the_same_on_several_replicas(
    finished_run, mirrored_strategy, monkeypatch
):
    monkeypatch.setattr(
        distribute, "make_strategy", lambda *_: mirrored_strategy
    )
    settings = shared_runs.linear_settings(
        finished_run.path, name="replicas", strategy="mirrored", epochs=20
    )
    (*_, actual) = training.train_linear(settings).metrics()
    (*_, expected) = finished_run.stage("linear").metrics()
    assert actual["loss"] == pytest.approx(expected["loss"], rel=1e-3)


def test_workers_of_constant_views_do_the_same_and_the_chief_saves(
    finished_run, monkeypatch
):
    """Each trains alone, so that its own files would not do."""
    monkeypatch.setattr(devices, "file_shard", lambda *_: (0, 2))
    images = types.SimpleNamespace(
        name="images", class_names="ab", is_multi_label=False
    )
    shards = []
    run = types.SimpleNamespace(
        check_split=lambda: None,
        checkpoint="",
        source=lambda split, shard: shards.append(shard) or images,
    )
    path = str(finished_run.path)
    for settings in (
        config.LinearSettings(path, auto_shard="file"),
        shared_runs.linear_settings(path, auto_shard="file"),
    ):
        assert stages._linear_images(run, settings, None) == {"train": images}
    assert shards == [(0, 2), None]
    monkeypatch.setattr(distribute, "is_chief", lambda strategy: False)
    worker = shared_runs.linear_settings(path, name="of_a_worker", epochs=1)
    with pytest.raises(ValueError, match="of_a_worker must hold a checkpoint"):
        training.train_linear(worker)


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        {"objective": "supcon+ce", "mixing": "mixup", "mixing_alpha": 1.0},
        {"mixing": "cutmix", "positives": "cosine"},
    ],
    ids=str,
)
def test_two_replicas_train_like_one_device(
    mirrored_strategy, tiny_settings, monkeypatch, objective
):
    """The same global batch, batch norm and loss over both replicas."""
    options = {"epochs": 1, "learning_rate": 0.2, **objective}
    options["projection_batch_norm"] = False  # see `FLAGS` in test_saving.py
    single = training.pretrain(tiny_settings(**options))
    monkeypatch.setattr(
        distribute, "make_strategy", lambda *_: mirrored_strategy
    )
    mirrored = training.pretrain(tiny_settings(**options, strategy="mirrored"))
    (expected,), (actual,) = single.metrics(), mirrored.metrics()
    names = {"loss"} | ({"classifier_loss"} & expected.keys())
    for name in names:
        assert actual[name] == pytest.approx(expected[name], rel=1e-3)
    for name in ("uniformity", "mean_cosine"):  # over all replicas
        assert actual[name] == pytest.approx(expected[name], abs=0.01), name


def check_the_classifier_of_stage_1(run):
    """The restored classifier gives the logits of the whole model."""
    recorded = run.recorded(config.PretrainSettings)
    opened = runs.Run.open(run.path)
    model = builders.model(recorded, 3)
    parts = builders.checkpointed(model)
    assert ("pretrained" in opened.classifiers) == ("classifier" in parts)
    if "pretrained" not in opened.classifiers:
        return
    restored = opened.classifier("pretrained")
    checkpoints.restore(run.latest_checkpoint(), **parts)
    views = np.random.default_rng(0).integers(0, 256, [5, 1, 16, 16, 3])
    views = views.astype(np.uint8)
    if isinstance(model, models.ClassifierModel):
        expected = model(views) * (30.0 if model.cosine else 1.0)
    else:
        expected = model._outputs(views, training=False)[1]
    logits = restored(model.encoder(views[:, 0]))
    assert logits.shape == (5, 3) and logits.dtype == tf.float32
    np.testing.assert_allclose(logits, expected[:, 0], rtol=1e-4, atol=1e-4)


def test_stage_2_after_cross_entropy_begins_anew(tiny_settings, capsys):
    """Suppl. Table 3: the last layer is re-initialised, the rest is frozen."""
    smoothed = {"objective": "ce", "label_smoothing": 0.1}
    run = training.pretrain(
        tiny_settings(**smoothed, epochs=0, warmup_epochs=0.0)
    )
    assert ", label smoothing 0.1\n" in capsys.readouterr().out
    one_stage = runs.Run.open(run.path).classifier("pretrained")
    linear = shared_runs.linear_settings(
        run.path, epochs=0, label_smoothing=0.2
    )
    training.train_linear(linear)
    assert "cross-entropy, label smoothing 0.2\n" in capsys.readouterr().out
    model = keras.Sequential()
    images = input_pipeline.source(
        run.recorded(config.PretrainSettings), "train"
    )
    stages._compile(job_of(linear, run, images), model, 1)
    assert model.loss.label_smoothing == 0.2
    initial = runs.Run.open(run.path).classifier("linear")
    assert not initial.bias.numpy().any()
    # Other weights than the initial ones of stage 1, which hardly move.
    assert np.abs(initial.kernel - one_stage.kernel).max() > 0.1


OBJECTIVES = {  # with its text in the header
    "supcon": "supcon: L_out, temperature 0.1; chance level 0.3434",
    "simclr": "simclr: temperature 0.1; chance level 0.3434",
    "npairs": "npairs: temperature 1\n",
    "triplet": "triplet: semi_hard triplets, squared distance, margin 0.2\n",
    "bcl": "bcl: a centre for each class, temperature 0.1\n",
    "paco": "paco: a centre for each class, temperature 0.1, alpha 0.05\n",
    "ce": "ce: classifier on the representation\n",
    "max_margin": "cosine classifier on the representation, margin 0.35, sca",
}


@pytest.mark.slow(but=["ce"])
# The objective of a function is in tests/tools/test_your_own.py.
@pytest.mark.parametrize(
    "objective", [name for name in config.OBJECTIVES if name != trust.FUNCTION]
)
def test_every_objective_falls_and_later_stages_take_its_encoder(
    objective, tiny_settings, capsys
):
    # Cosines times 30 diverge at 1.
    rate = 0.1 if objective == "max_margin" else 1.0
    options = {"objective": objective, "learning_rate": rate}
    run = training.pretrain(
        tiny_settings(epochs=5, warmup_epochs=0.0, **options)
    )
    assert OBJECTIVES[objective] in capsys.readouterr().out
    figures = run.metrics()
    assert figures[-1]["loss"] < figures[0]["loss"]
    has_chance = "chance level" in OBJECTIVES[objective]
    assert all(("loss/chance" in line) == has_chance for line in figures)
    if objective == "simclr":  # whatever the classes
        assert {line["positives_per_anchor"] for line in figures} == {1.0}
    on_logits = "classifier on" in OBJECTIVES[objective]
    tops = {"classifier"} if on_logits else {"projection_head"}
    if "a centre for" in OBJECTIVES[objective]:
        tops.add("centres")
    parts = {"encoder", "optimizer", "classifier", "projection_head", "centres"}
    assert stored_parts(run) & parts == {"encoder", "optimizer", *tops}
    check_the_classifier_of_stage_1(run)
    if not on_logits:
        return
    stage = training.train_linear(
        shared_runs.linear_settings(run.path, epochs=20)
    )
    assert stage.metrics()[-1]["accuracy"] > 0.4
    results = evaluation.evaluate(
        shared_runs.evaluation_settings(run.path, knn_neighbors=5)
    )
    assert results["linear"]["top_1"] > 0.4
    assert results["pretrained"]["top_1"] > 0.2


SCALED = [  # settings, text in the header, figures of an epoch
    (
        {"objective": "ce", "mixing": "cutmix", "mixing_alpha": 0.3},
        ["representation, cutmix of images"],
        {"loss"},
    ),
    (
        {
            "objective": "supcon+ce",
            "classifier_weight": 0.25,
            "images_per_class": 4,
            "batch_size": 12,
            "gradient_cache_chunks": 2,
            "knn_every": 2,
            "augmentation": "simaugment",
            "precision": "mixed_float16",
        },
        ["12 images per replica, 4 of each of 3 classes, in 2 chunks; 4 steps"],
        {"classifier_loss", "classifier_accuracy", "knn_accuracy"},
    ),
    (
        {
            "queue_size": 64,
            "online_classifier": True,
            "optimizer": "lars",
            "precision": "mixed_bfloat16",
            "jit_compile": True,
        },
        [
            "chance level 0.4554",  # tau * log(32 - 1 + 64)
            "queue of 64 by a momentum encoder, 0.999",
            "XLA on",
        ],
        {"classifier_loss", "classifier_accuracy"},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "texts", "figures"), SCALED)
def test_options_of_large_trainings_work_together(
    tiny_settings, capsys, float32_policy, options, texts, figures
):
    run = training.pretrain(tiny_settings(**options))
    printed = capsys.readouterr().out
    assert all(text in printed for text in texts)
    first, last = run.metrics()
    assert figures <= last.keys()
    assert np.isfinite([last[name] for name in figures]).all()
    assert "knn_accuracy" not in first
    # Soft labels have no accuracy.
    assert "accuracy" not in last
    check_the_classifier_of_stage_1(run)
    stage = training.train_linear(
        config.LinearSettings(
            str(run.path),
            epochs=1,
            batch_size=6,
            optimizer="rmsprop",
            schedule="exponential",
            images_per_class=2,
        )
    )
    assert stage.metrics()[-1]["accuracy"] > 0.2
