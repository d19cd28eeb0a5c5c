"""Exports of runs: a process without supcon_tf answers as evaluation did."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, evaluation, serving, training
from supcon_tf.clients import paths
from supcon_tf.serving import metadata
from supcon_tf.training import runs
from tests import model_server
from tests import runs as shared_runs

# Runs where supcon_tf cannot be imported: each file alone, and all at once.
FRESH_PROCESS = """
import json, pathlib, sys
sys.modules["supcon_tf"] = sys.modules["tensorflow_addons"] = None
import numpy as np
import tensorflow as tf
files = [pathlib.Path(path).read_bytes() for path in sys.argv[3:]]
loaded = tf.saved_model.load(sys.argv[1])
arrays = {}
for name, signature in loaded.signatures.items():
    if "image_bytes" not in signature.structured_input_signature[1]:
        continue
    for size in (1, len(files)):
        answers = [
            signature(image_bytes=tf.constant(files[i : i + size]))
            for i in range(0, len(files), size)
        ]
        for key in answers[0]:
            rows = np.concatenate([a[key].numpy() for a in answers])
            arrays[f"{name}/{size > 1}/{key}"] = (
                rows.astype(str) if rows.dtype == object else rows
            )
np.savez(sys.argv[2], **arrays)
"""


@pytest.fixture(scope="module")
def results(finished_run):
    """Those of the evaluation; the run is exported then."""
    path = str(finished_run.path)
    results = evaluation.evaluate(shared_runs.evaluation_settings(path))
    exported = serving.export(config.ExportSettings(path, prototypes=True))
    assert exported == finished_run.export / "1"
    return results


def test_a_version_is_a_number_that_tf_serving_reads():
    assert config.ExportSettings("run", version=2**63 - 1).version
    with pytest.raises(ValueError, match="--version must be at most 92233"):
        config.ExportSettings("run", version=2**63)


def test_the_record_describes_the_saved_model(finished_run, results):
    exported = finished_run.export / "1"
    record = json.loads((exported / metadata.FILE).read_text())
    signatures = model_server.read_signatures(exported)
    assert list(record["signatures"]) == sorted(signatures)
    for name, signature in signatures.items():
        for side in ("inputs", "outputs"):
            tensors = getattr(signature, side)
            assert record["signatures"][name][side] == {
                key: {
                    "dtype": tf.as_dtype(info.dtype).name,
                    "shape": tf.TensorShape(info.tensor_shape).as_list(),
                }
                for key, info in tensors.items()
            }
    reader = tf.train.load_checkpoint(f"{exported}/variables/variables")
    dtypes = reader.get_variable_to_dtype_map()
    assert record["parameters"] == sum(
        np.prod(shape)
        for name, shape in reader.get_variable_to_shape_map().items()
        if dtypes[name].is_floating
    )


def test_a_fresh_process_answers_as_evaluation_did(
    finished_run, results, tmp_path
):
    run, exported = finished_run, finished_run.export / "1"
    recorded = json.loads((exported / metadata.FILE).read_text())
    assert recorded["metrics"]["linear"]["top_1"] == results["linear"]["top_1"]
    assert recorded["classes"] == list(run.class_names())
    paths.check_files(exported)
    with np.load(run.stage("linear").predictions_file) as saved:
        expected, labels = saved["probabilities"], saved["labels"]
        root = run.recorded(config.PretrainSettings).data_dir
        images = [f"{root}/{identifier}" for identifier in saved["ids"]]
    file = tmp_path / "answers.npz"
    command = [sys.executable, "-c", FRESH_PROCESS, exported, file, *images]
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr[-2000:]
    answers = np.load(file)
    names = np.array(run.class_names())
    for is_batch in (False, True):
        part = f"serving_default/{is_batch}"
        np.testing.assert_allclose(
            answers[f"{part}/probabilities"], expected, atol=1e-5
        )
        predicted = answers[f"{part}/predicted_class"]
        assert (predicted == names[expected.argmax(axis=1)]).all()
        nearest = answers[f"classify_by_neighbours/{is_batch}/predicted_class"]
        top_1 = (nearest == names[labels]).mean()
        assert top_1 == pytest.approx(results["prototype"]["top_1"])
        represented = answers[f"represent/{is_batch}/representation"]
        lengths = np.linalg.norm(represented, axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=1e-5)


def test_versions_count_up(finished_run, results, monkeypatch):
    run = finished_run
    monkeypatch.setattr(
        serving.model,
        "write_version",
        lambda served, directory, finish: directory.mkdir(),
    )
    settings = config.ExportSettings(str(run.path), classifier="none")
    assert serving.export(settings).name == "2"
    for version in (1, 2):
        settings = config.ExportSettings(str(run.path), version=version)
        with pytest.raises(ValueError, match="--version must not exist in"):
            serving.export(settings)
    (run.export / "2").rmtree()


def test_a_directory_of_ones_own_is_new_and_may_begin_with_a_tilde(
    finished_run, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(
        serving.model,
        "write_version",
        lambda served, directory, finish: directory.mkdir(),
    )
    run = str(finished_run.path)
    settings = config.ExportSettings(run, classifier="none")
    assert serving.export(settings, "~/1") == tmp_path / "1"
    monkeypatch.setattr(runs, "open_run", None)  # refused before any work
    with pytest.raises(ValueError, match="`directory` must not exist, got"):
        serving.export(settings, tmp_path / "1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"linear_stage": "no"},
            "--linear_stage must be a stage of .*, got no",
        ),
        (
            {"classifier": "pretrained"},
            "--classifier must be linear or none, g",
        ),
    ],
)
def test_classifiers_that_the_run_lacks_are_refused(
    finished_run, options, message
):
    options = {"classifier": "linear"} | options
    settings = config.ExportSettings(str(finished_run.path), **options)
    with pytest.raises(ValueError, match=message):
        serving.export(settings)


@pytest.mark.slow
def test_the_classifier_of_stage_1_is_exported_without_another(tiny_settings):
    settings = {"objective": "max_margin", "epochs": 0, "warmup_epochs": 0.0}
    run = training.pretrain(tiny_settings(**settings))
    directory = serving.export(config.ExportSettings(str(run.path)))
    images = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), np.uint8)
    opened = runs.Run.open(run.path)
    logits = opened.classifier("pretrained")(opened.encoder(images))
    loaded = tf.saved_model.load(str(directory))
    answer = loaded.signatures["predict_images"](images=tf.constant(images))
    np.testing.assert_allclose(
        answer["probabilities"], tf.nn.softmax(logits), atol=1e-5
    )
    recorded = json.loads((directory / metadata.FILE).read_text())
    assert recorded["classifier"] == "pretrained"
    assert recorded["metrics"] is None  # was not evaluated
