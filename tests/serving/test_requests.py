"""The requests of an export, run as TF Serving runs them."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from supcon_tf.serving import requests
from tests import model_server


@pytest.fixture
def exported(small_run):
    return small_run / "export" / "1"


def read_warm_up(directory):
    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        yield log.predict_log.request


def test_a_session_answers_one_image_and_several_of_every_signature(exported):
    session, sizes = model_server.Session(exported), {}
    for request in read_warm_up(exported):
        assert not request.model_spec.name
        name = request.model_spec.signature_name
        ((key, sent),) = request.inputs.items()
        # Not tf.make_ndarray: the server reads messages in C++.
        value = tf.io.parse_tensor(sent.SerializeToString(), sent.dtype).numpy()
        sizes.setdefault(name, []).append(len(value))
        for answer in session.run(name, {key: value}).values():
            assert len(answer) == len(value)
            assert answer.dtype == object or np.isfinite(answer).all()
    session.close()
    assert sizes == dict.fromkeys(
        model_server.read_signatures(exported), [1, 8]
    )
    assert len(sizes) == 7


def test_files_are_both_kinds_and_arrays_small_on_disk(exported):
    _, request = (
        r
        for r in read_warm_up(exported)
        if r.model_spec.signature_name == "serving_default"
    )
    sent = tf.make_ndarray(request.inputs["image_bytes"])
    jpegs = [bool(tf.io.is_jpeg(contents)) for contents in sent]
    assert jpegs == [False] + [True] * 7
    assert tf.io.decode_png(sent[0]).shape == [4, 5, 3]
    assert tf.io.decode_jpeg(sent[1]).shape == [27, 36, 3]
    assert (exported / requests.WARM_UP_FILE).stat().st_size < 20_000


def test_the_body_for_curl_is_a_request_in_row_format(exported):
    body = json.loads((exported / "assets.extra" / "request.json").read_text())
    assert set(body) == {"signature_name", "instances"}
    assert body["signature_name"] == "serving_default"
    ((row,),) = [body["instances"]]
    assert set(row) == {"image_bytes"} and set(row["image_bytes"]) == {"b64"}
    contents = base64.b64decode(row["image_bytes"]["b64"], validate=True)
    assert tf.io.decode_jpeg(contents).shape == [27, 36, 3]
