"""SavedModels, loaded by a process that does not know supcon_tf."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import config, evaluation, serving

# Runs where `import supcon_tf` fails; prints what it got as JSON.
FRESH_PROCESS = """
import json, pathlib, sys
sys.modules["supcon_tf"] = None  # from here on its import is an error
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
files = [pathlib.Path(path).read_bytes() for path in sys.argv[2:]]
classify = model.signatures["serving_default"]
represent = model.signatures["represent"]
try:
    classify(image_bytes=tf.constant([files[0], b"not an image"]))
    error = "none"
except tf.errors.InvalidArgumentError as raised:
    error = type(raised).__name__
answer = classify(image_bytes=tf.constant(files))  # the next request works
print(json.dumps({
    "error": error,
    "probabilities": answer["probabilities"].numpy().tolist(),
    "class_names": answer["class_names"].numpy().astype(str).tolist(),
    "predicted_class": answer["predicted_class"].numpy().astype(str).tolist(),
    "representation": represent(
        image_bytes=tf.constant(files[:3])
    )["representation"].numpy().tolist(),
}))
"""


@pytest.fixture(scope="module")
def exported(finished_run):
    return serving.export(config.ExportSettings(str(finished_run.path)))


def test_a_fresh_process_gives_the_probabilities_of_evaluation(
    exported, finished_run, tmp_path
):
    evaluation.evaluate(config.EvaluateSettings(str(finished_run.path)))
    with np.load(finished_run.predictions_file) as saved:
        expected = saved["probabilities"]
        ids = saved["ids"]
    root = finished_run.pretrain_settings().data_dir
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FRESH_PROCESS,
            str(exported),
            *(f"{root}/{identifier}" for identifier in ids),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["error"] == "InvalidArgumentError"
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    names = finished_run.class_names()
    assert answer["class_names"] == [list(names)] * len(ids)
    assert answer["predicted_class"] == [names[i] for i in expected.argmax(1)]
    lengths = np.linalg.norm(answer["representation"], axis=1)
    np.testing.assert_allclose(lengths, 1, rtol=1e-5)


def test_signatures_are_the_documented_ones(exported):
    signatures = tf.saved_model.load(str(exported)).signatures
    assert set(signatures) == {"serving_default", "represent"}
    inputs = signatures["serving_default"].structured_input_signature[1]
    assert inputs == {
        "image_bytes": tf.TensorSpec([None], tf.string, "image_bytes")
    }
    assert set(signatures["serving_default"].structured_outputs) == {
        "probabilities",
        "logits",
        "class_names",
        "predicted_class",
    }


def test_versions_count_up_and_are_never_replaced(exported, finished_run):
    assert exported == finished_run.export / "1"
    chosen = config.ExportSettings(str(finished_run.path))
    assert serving.export(chosen).name == "2"
    taken = config.ExportSettings(str(finished_run.path), version=2)
    with pytest.raises(ValueError, match="`directory` must not exist, got"):
        serving.export(taken)
    names = sorted(path.name for path in finished_run.export.iterdir())
    assert names == ["1", "2"], "no partial directory is left"


def test_an_interrupted_export_is_not_seen_by_the_server(
    finished_run, monkeypatch
):
    def save(module, path, **arguments):
        pathlib.Path(path).mkdir()
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match="disk full"):
        serving.export(
            config.ExportSettings(str(finished_run.path), version=77)
        )
    versions = [p.name for p in finished_run.export.iterdir()]
    assert "77" not in versions  # TF Serving loads numbers only


def test_export_needs_a_linear_stage(finished_run):
    with pytest.raises(ValueError, match="must hold a checkpoint, but has no"):
        serving.export(
            config.ExportSettings(str(finished_run.path), linear_stage="no")
        )
