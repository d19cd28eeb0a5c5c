"""The loopback server, by the forms of TF Serving's documentation."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import grpc
import pytest
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)


def ask(url, body=None):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_rows_and_columns_as_documented(server):
    predict = f"{server.rest}/v1/models/lengths/versions/1:predict"
    for signature, instances, predictions in (
        ("double", [[1, 2], [3, 4]], [[2.0, 4.0], [6.0, 8.0]]),
        ("double", [{"x": [1, 2]}], [[2.0, 4.0]]),
        (
            "echo",
            ["ab", {"b64": "/w=="}],
            [
                {"all_bytes": {"b64": "YWI="}, "sizes": 2.0},
                {"all_bytes": {"b64": "/w=="}, "sizes": 1.0},
            ],
        ),
    ):
        body = {"signature_name": signature, "instances": instances}
        assert ask(predict, body) == (200, {"predictions": predictions})
    for inputs in ([[1, 2]], {"x": [[1, 2]]}):
        body = {"signature_name": "double", "inputs": inputs}
        assert ask(predict, body) == (200, {"outputs": [[2.0, 4.0]]})
    body = {"signature_name": "echo", "inputs": {"image_bytes": ["ab"]}}
    assert ask(predict, body)[1] == {
        "outputs": {"all_bytes": [{"b64": "YWI="}], "sizes": [2.0]}
    }


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        (":predict", {"instances": []}, 400, "No values in 'instances'"),
        (":predict", {"instances": ["a"], "inputs": ["a"]}, 400, "one of"),
        (":predict", {"instances": [{"b65": "x"}]}, 400, "keys must be equal"),
        (":predict", {"instances": [{"b64": "x"}]}, 400, "Failed to process"),
        (":predict", {"instances": ["a", 1]}, 400, "Failed to process"),
        (
            ":predict",
            {"instances": ["a"], "signature_name": "no"},
            400,
            'name: "no" not found in signature def',
        ),
        (":classify", {"instances": ["a"]}, 400, "Malformed request: POST"),
        ("/versions/2", None, 404, "request: Specific(lengths, 2)"),
        ("s", None, 404, "Servable not found for request: Latest(lengthss)"),
    ],
)
def test_errors_have_codes_and_bodies(server, path, body, code, message):
    answered, text = ask(f"{server.rest}/v1/models/lengths{path}", body)
    assert (answered, list(text)) == (code, ["error"])
    assert message in text["error"]


def test_status_and_metadata_in_both_interfaces(server):
    url = f"{server.rest}/v1/models/lengths"
    assert ask(url)[1]["model_version_status"] == [
        {
            "version": "1",
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
    ]
    metadata = ask(f"{url}/metadata")[1]
    assert metadata["model_spec"]["version"] == "1"
    spec = metadata["metadata"]["signature_def"]["signature_def"]["double"]
    assert spec["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert spec["method_name"] == "tensorflow/serving/predict"
    with grpc.insecure_channel(server.grpc.removeprefix("grpc://")) as channel:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "lengths"
        status = model_service_pb2_grpc.ModelServiceStub(channel)
        (version,) = status.GetModelStatus(request).model_version_status
        assert version.state == version.AVAILABLE
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=request.model_spec
        )
        with pytest.raises(grpc.RpcError) as caught:
            stub.GetModelMetadata(request)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
