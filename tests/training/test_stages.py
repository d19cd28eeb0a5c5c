"""Pretraining and the linear stage on real files."""

import dataclasses
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import (
    config,
    data,
    distribute,
    evaluation,
    models,
    run_files,
    settings,
    training,
)
from supcon_tf.host import trust
from supcon_tf.keras_2 import keras
from supcon_tf.training import (
    builders,
    checkpoints,
    console,
    input_pipeline,
    jobs,
    runs,
    stages,
)


def constant_views(run, **options):
    """Settings of stage 2 on representations that are computed once."""
    flips = {"crop_area": (), "horizontal_flip": False}
    return config.LinearSettings(
        str(run.path), **{"batch_size": 16, **flips, **options}
    )


def stored_parts(run):
    variables = tf.train.list_variables(f"{run.latest_checkpoint()}/variables")
    return {name.split("/")[0] for name, _ in variables}


def encoder_weights(run):
    reader = tf.train.load_checkpoint(f"{run.latest_checkpoint()}/variables")
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if name.startswith("encoder/") and "OPTIMIZER" not in name
    }


def test_a_run_leaves_what_later_tools_read(finished_run):
    run = finished_run
    assert run.class_names() == ("bright", "dark", "mid")
    figures = run.metrics()
    assert [f["epoch"] for f in figures] == [1, 2]
    assert {"loss", "loss/chance", "learning_rate", "examples/s"} < set(
        figures[0]
    )
    assert run.latest_checkpoint().endswith("/step-00000006")
    progress = checkpoints.read_progress(run_files.path_of(run.checkpoints, 6))
    assert progress.epoch == 2 and progress.metrics == {}
    assert list(run.tensorboard.glob("*/events.*"))
    assert run.stage("linear").latest_checkpoint().endswith("/step-00000060")


@pytest.mark.slow
def test_the_flagfile_of_a_run_repeats_it(finished_run, tmp_path):
    again = settings.from_flagfile(
        config.PretrainSettings,
        finished_run.settings_file,
        f"--run_dir={tmp_path / 'again'}",
    )
    run = training.pretrain(again)
    for before, after in zip(
        finished_run.metrics(), run.metrics(), strict=True
    ):
        assert after["loss"] == pytest.approx(before["loss"], rel=1e-3)
    before, after = encoder_weights(finished_run), encoder_weights(run)
    assert before.keys() == after.keys() and before
    for name, weight in before.items():
        np.testing.assert_allclose(after[name], weight, rtol=0.02, atol=2e-3)


def test_the_linear_stage_freezes_every_weight_and_statistic(
    finished_run, monkeypatch
):
    """Trains on augmented views, where batch norm would move if it could."""
    seen = {}
    restore = checkpoints.restore

    def spy(path, **parts):
        restore(path, **parts)
        seen.update(parts)
        weights = parts["encoder"].weights
        seen["before"] = {w.name: w.numpy() for w in weights}

    monkeypatch.setattr(checkpoints, "restore", spy)
    stage = training.train_linear(
        config.LinearSettings(
            str(finished_run.path), name="views", epochs=2, batch_size=16
        )
    )
    after = {w.name: w.numpy() for w in seen["encoder"].weights}
    assert any("moving_mean" in name for name in after)
    assert after.keys() == seen["before"].keys()
    for name, before in seen["before"].items():
        np.testing.assert_array_equal(before, after[name])  # bit-identical
    assert stage.metrics()[-1]["accuracy"] > 0.3
    for line in finished_run.metrics() + stage.metrics():
        assert 0 <= line["data_wait"] <= 1
    in_memory = finished_run.stage("linear").metrics()
    assert "data_wait" not in in_memory[0]
    assert "classifier" in stored_parts(stage)


def job_of(settings, stage, images):
    return jobs.Job(settings, stage, tf.distribute.get_strategy(), images)


def test_representations_computed_once_train_the_same_classifier(
    finished_run, tiny_settings
):
    """Without random views, both ways of stage 2 give the same training."""
    constant = constant_views(finished_run, epochs=3, batch_size=48)
    assert constant.views_are_constant
    assert not dataclasses.replace(
        constant, horizontal_flip=True
    ).views_are_constant
    pretrained = finished_run.recorded(config.PretrainSettings)
    images = input_pipeline.source(pretrained, "train")
    losses = []
    for fit in (stages._fit_on_views, stages._fit_on_representations):
        keras.utils.set_random_seed(0)
        stage = finished_run.stage(f"same{len(losses)}")
        classifier = models.LinearClassifier(
            training.load_encoder(finished_run.path), 3
        )
        classifier.build((None, 16, 16, 3))
        fit(job_of(constant, stage, images), classifier, 16, {})
        losses.append([f["loss"] for f in stage.metrics()])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_settings_are_recorded_as_resolved(
    tiny_settings, image_folder, tmp_path, monkeypatch
):
    """Later stages run from anywhere, and never guess the size anew.

    A run of no epochs keeps the initial weights.
    """
    from PIL import Image

    for path in image_folder.rglob("*.*g"):
        to = tmp_path / path.relative_to(image_folder)
        to.parent.mkdir(parents=True, exist_ok=True)
        side = 24 if "train" in path.parts else 40
        Image.open(path).resize([side, side]).save(to)
    monkeypatch.chdir(tmp_path.parent)
    relative = {"data_dir": tmp_path.name, "image_size": None}
    run = training.pretrain(
        tiny_settings("run-of-resolved", **relative, epochs=0)
    )
    recorded = run.recorded(config.PretrainSettings)
    assert recorded.data_dir == str(tmp_path)
    assert recorded.image_size == 24  # of the train images, not of the test
    keras.utils.set_random_seed(recorded.seed)
    initial = builders.model(recorded, 3).encoder
    trained = training.load_encoder(run.path)
    for expected, weight in zip(initial.weights, trained.weights, strict=True):
        np.testing.assert_array_equal(expected.numpy(), weight.numpy())
    assert not run.metrics_file.exists()


@pytest.mark.parametrize(
    ("stem", "size", "note"),
    [
        ("cifar", 72, "keeps images of 72 px at full size: --stem=imagenet"),
        ("imagenet", 32, "shrinks images of 32 px to 1: --stem=cifar"),
        ("cifar", 32, ""),
    ],
)
def test_a_stem_that_does_not_fit_the_images_is_noted(
    tiny_settings, capsys, stem, size, note
):
    settings = tiny_settings(image_size=size)
    images = input_pipeline.source(settings, "train")
    encoder = types.SimpleNamespace(
        resolved_stem=stem, representation_dim=8, count_params=lambda: 1000
    )
    console.print_pretraining(
        jobs.resolved(settings, images),
        types.SimpleNamespace(encoder=encoder),
        images,
    )
    printed = capsys.readouterr().out
    assert f"stem {stem}, 1,000 parameters, 8-d" in printed
    assert note in printed
    assert ("\nnote " in printed) == bool(note)


def test_wrong_input_leaves_no_trace(tiny_settings, tmp_path):
    path = tmp_path / "run"
    for overrides, message in (
        ({"data_dir": str(tmp_path / "no")}, "no"),
        ({"batch_size": 1000}, "1000 for the 48"),
        ({"image_size": None}, "--image_size must be given"),
        ({"images_per_class": 2}, "has at most the 3 classes of folder"),
        (
            {"unsupervised_classes": ("x",)},
            "must be some of bright, dark, mid, g",
        ),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            training.pretrain(tiny_settings(path, **overrides))
        assert not path.exists()


def test_duplicates_of_training_images_are_said_before(
    tiny_settings, image_folder, tmp_path, capsys
):
    shutil.copytree(image_folder, tmp_path / "data")
    test = tmp_path / "data/test/dark"
    shutil.copy(tmp_path / "data/train/dark/01.jpg", test / "copied.jpg")
    options = {"data_dir": str(tmp_path / "data"), "epochs": 0}
    training.pretrain(tiny_settings(tmp_path / "said", **options))
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if line.startswith("duplicates"))
    assert "1 of 22 test images are, byte for byte, training images" in line
    assert "test/dark/copied.jpg; --drop_duplicates leaves them out" in line


@pytest.mark.slow
def test_a_bad_test_image_of_records_is_said_before(
    tiny_settings, image_folder, tmp_path
):
    shutil.copytree(image_folder, tmp_path / "data")
    test = tmp_path / "data/test/dark"
    (test / "00.png").write_bytes(b"no image")
    splits = {
        split: data.load(
            "folder", split, str(tmp_path / "data"), check_images=False
        )
        for split in ("train", "test")
    }
    data.write_tfrecords(splits, tmp_path / "records")
    options = {"data_dir": str(tmp_path / "records"), "dataset": "tfrecord"}
    with pytest.raises(
        ValueError, match=r"1 bad ones of 21: test-00000-of-00001:\d+ "
    ):
        training.pretrain(tiny_settings(tmp_path / "run", **options))
    assert not (tmp_path / "run").exists()


def test_stages_in_the_wrong_order_are_refused(tmp_path, finished_run):
    with pytest.raises(ValueError, match="must be a run directory of tools/p"):
        training.train_linear(config.LinearSettings(str(tmp_path / "none")))
    with pytest.raises(ValueError, match="holds a run already"):
        training.train_linear(config.LinearSettings(str(finished_run.path)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        {},
        {"objective": "supcon+ce", "mixing": "mixup", "mixing_alpha": 1.0},
        {"mixing": "cutmix", "positives": "cosine"},
    ],
    ids=str,
)
def test_two_replicas_train_like_one_device(
    mirrored_strategy, tiny_settings, monkeypatch, objective
):
    """The same global batch, batch norm and loss over both replicas."""
    overrides = {"epochs": 1, "learning_rate": 0.2, **objective}
    overrides["projection_batch_norm"] = False  # see `FLAGS` in test_loop.py
    single = training.pretrain(tiny_settings(**overrides))
    monkeypatch.setattr(
        distribute, "make_strategy", lambda *_: mirrored_strategy
    )
    mirrored = training.pretrain(
        tiny_settings(**overrides, strategy="mirrored")
    )
    (a,), (b,) = single.metrics(), mirrored.metrics()
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    if "objective" in objective:
        loss = a["classifier_loss"]
        assert b["classifier_loss"] == pytest.approx(loss, rel=1e-3)
    for name in ("uniformity", "mean_cosine"):  # over all replicas
        assert a[name] == pytest.approx(b[name], abs=0.01), name


def check_the_classifier_of_stage_1(run):
    """Restored alone, it gives the logits that it gave in training."""
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
    if isinstance(model, models.ClassifierModel):
        expected = model(views.astype(np.uint8))
    else:
        expected = model._outputs(views.astype(np.uint8), training=False)[1]
    if model.name == "classifier_model" and model.cosine:
        expected *= 30.0
    logits = restored(model.encoder(views[:, 0].astype(np.uint8)))
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
    linear = constant_views(run, epochs=0, label_smoothing=0.2)
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
    # Not the weights that stage 1 began with, which an epoch hardly moves.
    assert np.abs(initial.kernel - one_stage.kernel).max() > 0.1


OBJECTIVES = {  # and what the header says of it
    "supcon": "supcon: L_out, temperature 0.1; chance level 0.3434",
    "simclr": "simclr: temperature 0.1; chance level 0.3434",
    "npairs": "npairs: temperature 1\n",
    "triplet": "triplet: semi_hard triplets, squared distance, margin 0.2\n",
    "bcl": "bcl: a centre for each class, temperature 0.1\n",
    "paco": "paco: a centre for each class, temperature 0.1, alpha 0.05\n",
    "ce": "ce: classifier on the representation\n",
    "max_margin": "cosine classifier on the representation, margin 0.35, sca",
}


@pytest.mark.slow(but=["ce", "paco"])
# That of a function is in tests/tools/test_your_own.py.
@pytest.mark.parametrize(
    "objective", [name for name in config.OBJECTIVES if name != trust.FUNCTION]
)
def test_every_objective_falls_and_later_stages_take_its_encoder(
    objective, tiny_settings, capsys
):
    # Cosines times 30 go astray at 1.
    rate = 0.1 if objective == "max_margin" else 1.0
    run = training.pretrain(
        tiny_settings(
            objective=objective,
            epochs=5,
            warmup_epochs=0.0,
            learning_rate=rate,
        )
    )
    assert OBJECTIVES[objective] in capsys.readouterr().out
    figures = run.metrics()
    assert figures[-1]["loss"] < figures[0]["loss"]
    has_chance = "chance level" in OBJECTIVES[objective]
    assert all(("loss/chance" in f) == has_chance for f in figures)
    on_logits = "classifier on" in OBJECTIVES[objective]
    tops = {"classifier"} if on_logits else {"projection_head"}
    if "a centre for" in OBJECTIVES[objective]:
        tops.add("centres")
    parts = {"encoder", "optimizer", "classifier", "projection_head", "centres"}
    assert stored_parts(run) & parts == {"encoder", "optimizer", *tops}
    check_the_classifier_of_stage_1(run)
    if not on_logits:
        return
    stage = training.train_linear(constant_views(run, epochs=20))
    assert stage.metrics()[-1]["accuracy"] > 0.4
    results = evaluation.evaluate(
        config.EvaluateSettings(
            str(run.path), knn_neighbors=5, sample_images=0, plotted_images=0
        )
    )
    assert results["linear"]["top_1"] > 0.4
    assert results["pretrained"]["top_1"] > 0.2


@pytest.mark.slow
def test_cross_entropy_learns_from_mixed_images(tiny_settings, capsys):
    mixing = {"objective": "ce", "mixing": "cutmix", "mixing_alpha": 0.3}
    run = training.pretrain(
        tiny_settings(**mixing, epochs=6, warmup_epochs=0.0)
    )
    assert "representation, cutmix of images" in capsys.readouterr().out
    figures = run.metrics()
    assert "accuracy" not in figures[0]  # of soft labels there is none
    assert figures[-1]["loss"] < figures[0]["loss"] - 0.05
    assert run.recorded(config.PretrainSettings).mixing_alpha == 0.3


EVERYTHING = [  # settings, what the header says of them, figures in the log
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
@pytest.mark.parametrize(("options", "said", "figures"), EVERYTHING)
def test_what_training_at_scale_adds(
    tiny_settings, capsys, float32_policy, options, said, figures
):
    """Together, as a user would, and later stages take the encoder."""
    run = training.pretrain(tiny_settings(**options))
    printed = capsys.readouterr().out
    for text in said:
        assert text in printed
    last = run.metrics()[-1]
    assert figures <= set(last)
    assert np.isfinite([last[name] for name in figures]).all()
    if "knn_accuracy" in figures:
        assert "knn_accuracy" not in run.metrics()[0]
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
