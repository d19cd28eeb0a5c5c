"""The runs of the suite, each trained once, and the files that they read.

A test that says nothing about training takes a run from here, by the fixtures
of conftest.py: `finished_run`, `copy_run`, `copy_evaluated_run`,
`finished_text_run`.
"""

import fcntl
import os
import shutil

import numpy as np
from PIL import Image

from supcon_tf import config, evaluation, run_files, training
from tests import language_model


def shared_folder(tmp_path_factory, name, make):
    """A folder that one worker of the suite makes, for all of them to read."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / name).exists():
            try:
                make(root / name)
            except BaseException:  # a skip, too: nobody reads half of it
                shutil.rmtree(root / name, ignore_errors=True)
                raise
    return root / name


def copy(source, path):
    """Copies a run to a path, which its settings then name."""
    shutil.copytree(source, path)
    for file in path.rglob("settings.flags"):
        file.write_text(file.read_text().replace(str(source), str(path)))
    return run_files.RunDirectory(path)


def write_images(folder):
    """Real image files: three classes of coloured noise.

    JPEG and PNG, grey and RGB, none of them square; the classes differ in
    brightness, so that a tiny encoder can tell them apart.
    """
    rng = np.random.default_rng(0)
    for split, count in (("train", 16), ("test", 7)):
        for level, name in ((40, "dark"), (120, "mid"), (210, "bright")):
            directory = folder / split / name
            directory.mkdir(parents=True)
            for index in range(count):
                shape = [20, 24] if index % 4 == 0 else [20, 24, 3]
                pixels = np.clip(rng.normal(level, 25, shape), 0, 255)
                suffix = ("png", "jpg")[index % 2]
                Image.fromarray(pixels.astype(np.uint8)).save(
                    directory / f"{index:02}.{suffix}"
                )


def image_settings(run_dir, data_dir, **overrides):
    """A pretraining that takes seconds.

    Without a policy, which would take longest to trace.
    """
    return config.PretrainSettings(
        **{
            "run_dir": str(run_dir),
            "dataset": "folder",
            "data_dir": data_dir and str(data_dir),
            "image_size": 16,
            "architecture": "vgg8",
            "width": 0.1,
            "hidden_dims": (16,),
            "projection_dim": 8,
            "batch_size": 16,
            "epochs": 2,
            "warmup_epochs": 1.0,
            "learning_rate": 1.0,
            "augmentation": "identity",
            "crop_area": (0.5, 1.0),
            **overrides,
        }
    )


def linear_settings(run_dir, **overrides):
    """A stage 2 on representations that are computed once."""
    views = {"crop_area": (), "horizontal_flip": False}
    options = {"batch_size": 16, **views, **overrides}
    return config.LinearSettings(str(run_dir), **options)


def evaluation_settings(run_dir, **overrides):
    """An evaluation of numbers alone: pictures take longest."""
    pictures = {"sample_images": 0, "plotted_images": 0}
    return config.EvaluateSettings(str(run_dir), **pictures, **overrides)


def train_on_images(path, data_dir):
    """Both stages."""
    training.pretrain(image_settings(path, data_dir))
    training.train_linear(linear_settings(path, epochs=20))


def evaluate_images(path, source):
    """A copy of a run on images with its evaluation, but without figures."""
    copy(source, path)
    evaluation.evaluate(config.EvaluateSettings(str(path), plotted_images=0))


def write_texts(folder):
    """A language model, and sentences to train and to test by."""
    folder.mkdir()
    language_model.write_model(folder)
    language_model.write_sentences(folder / "train.tsv", 40)
    language_model.write_sentences(folder / "test.tsv", 12)


def text_settings(run_dir, folder, **overrides):
    """A fine-tuning on `write_texts`."""
    options = {
        "model": str(folder),
        "train_file": str(folder / "train.tsv"),
        "test_file": str(folder / "test.tsv"),
        "validation_fraction": 0.2,
        "max_length": 8,
        "batch_size": 8,
    }
    return config.FinetuneTextSettings(str(run_dir), **options | overrides)


def train_on_texts(path, folder):
    """A run that has learned."""
    options = {"objective": "ce", "epochs": 8, "learning_rate": 5e-3}
    training.finetune_text(text_settings(path, folder, **options))
