"""Files of strangers run no code, except exports, which are programs."""

import io
import pickle

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf import models, reports, run_files
from supcon_tf.clients import saved_model
from supcon_tf.disk import files


class Program(tf.Module):
    """A SavedModel that writes a file when it is called."""

    def __init__(self, path):
        super().__init__()
        self.weights = [tf.Variable(np.zeros(3, np.float32))]
        self._path = path

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, image_bytes):
        tf.io.write_file(self._path, "ran")
        return {"representation": tf.zeros([tf.size(image_bytes), 2])}


@pytest.fixture
def program(tmp_path):
    module = Program(str(tmp_path / "ran"))
    folder = str(tmp_path / "model")
    tf.saved_model.save(module, folder, {"serving_default": module.serve})
    assert not (tmp_path / "ran").exists()
    return folder


def test_weights_of_a_saved_model_are_numbers(program, tmp_path):
    """Its graph is not read."""
    encoder = models.Encoder("vgg8", width=0.05)
    encoder.build((None, 32, 32, 3))
    with pytest.raises(ValueError, match="`weights` must be a file of all"):
        models.load_weights(encoder, program)
    assert not (tmp_path / "ran").exists()


def test_an_export_is_a_program(program, tmp_path):
    """See docs/security.md: the graph of an export runs here."""
    model = saved_model.SavedModel(program)
    (signature,) = model.signatures().values()
    assert not (tmp_path / "ran").exists()
    model.predict(signature, [b"image"])
    assert (tmp_path / "ran").read_text() == "ran"


class Unpickled:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return self._path.touch, ()


def test_arrays_of_a_run_are_not_unpickled(copy_run, tmp_path):
    run = copy_run(tmp_path / "run")
    pickled = np.array([Unpickled(tmp_path / "ran")], object)
    content = io.BytesIO()
    np.savez(content, ids=pickled, labels=pickled, probabilities=pickled)
    for owner in (run, run.stage("linear")):
        for file in (owner.predictions_file, owner.samples_file):
            file.write_bytes(content.getvalue())
            with pytest.raises(ValueError):
                run_files.read_arrays(file)
    folder = run.encoded / "train"
    folder.mkdir(parents=True)
    (folder / "labels.npy").write_bytes(pickle.dumps(pickled[0]))
    files.write_json(folder / "made_of.json", {"examples": 1, "most": None})
    with pytest.raises(ValueError):
        run.example_counts("train")
    with pytest.raises(ValueError):
        reports.write_report([run.path], tmp_path / "report.html")
    assert not (tmp_path / "ran").exists()
