"""The warm-up requests, run as TF Serving runs them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from supcon_tf import models, serving
from supcon_tf.serving import metadata, warm_up

SIZE = 16


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An export with every signature, and its warm-up."""
    encoder = models.Encoder("vgg8", width=0.05)
    encoder.build((None, SIZE, SIZE, 3))
    dim = encoder.representation_dim
    classifier = tf.keras.layers.Dense(2)
    classifier.build((None, dim))
    directory = tmp_path_factory.mktemp("export") / "1"
    serving.export_saved_model(
        encoder,
        directory,
        image_size=SIZE,
        class_names=("dark", "bright"),
        classifier=classifier,
        prototypes=np.eye(2, dim, dtype=np.float32),
    )
    return directory


def requests_in(directory):
    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        yield log.predict_log.request


def test_every_request_is_answered_by_a_session(saved):
    requests = []
    for request in requests_in(saved):
        ((key, sent),) = request.inputs.items()
        # Not tf.make_ndarray: the server reads messages in C++.
        value = tf.io.parse_tensor(sent.SerializeToString(), sent.dtype)
        requests.append((request.model_spec.signature_name, key, value.numpy()))
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        loaded = tf.compat.v1.saved_model.loader.load(
            session, ["serve"], str(saved)
        )
        for name, key, value in requests:
            signature = loaded.signature_def[name]
            assert set(signature.inputs) == {key}
            answer = session.run(
                {k: info.name for k, info in signature.outputs.items()},
                {signature.inputs[key].name: value},
            )
            for found in answer.values():
                assert len(found) == len(value)
                assert found.dtype == object or np.isfinite(found).all()


def test_every_signature_has_a_request_of_one_image_and_of_several(saved):
    found = {}
    for request in requests_in(saved):
        assert not request.model_spec.name
        ((_, sent),) = request.inputs.items()
        sizes = found.setdefault(request.model_spec.signature_name, [])
        sizes.append(sent.tensor_shape.dim[0].size)
    assert found == dict.fromkeys(metadata.read_signatures(saved), [1, 8])
    assert len(found) == 7


def test_files_are_both_kinds_and_arrays_small_on_disk(saved):
    request = [
        r
        for r in requests_in(saved)
        if r.model_spec.signature_name == "serving_default"
    ][1]
    sent = tf.make_ndarray(request.inputs["image_bytes"])
    jpegs = [bool(tf.io.is_jpeg(contents)) for contents in sent]
    assert jpegs == [False] + [True] * 7
    assert tf.io.decode_png(sent[0]).shape == [4, 5, 3]
    assert tf.io.decode_jpeg(sent[1]).shape == [27, 36, 3]
    assert (saved / warm_up.FILE).stat().st_size < 20_000
