"""The loopback server, by the forms of TF Serving's documentation."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest


def ask(url, body=None):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(url, data) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_rows_as_documented(server):
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


@pytest.mark.parametrize(
    ("path", "body", "code", "message"),
    [
        (":predict", {"instances": []}, 400, "No values in 'instances'"),
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
        ("/versions/2/metadata", None, 404, "request: Specific(lengths, 2)"),
        ("s/metadata", None, 404, "not found for request: Latest(lengthss)"),
    ],
)
def test_errors_have_codes_and_bodies(server, path, body, code, message):
    answered, text = ask(f"{server.rest}/v1/models/lengths{path}", body)
    assert (answered, list(text)) == (code, ["error"])
    assert message in text["error"]


def test_metadata_as_documented(server):
    url = f"{server.rest}/v1/models/lengths"
    metadata = ask(f"{url}/metadata")[1]
    assert metadata["model_spec"]["version"] == "1"
    spec = metadata["metadata"]["signature_def"]["signature_def"]["double"]
    assert spec["inputs"]["x"]["dtype"] == "DT_FLOAT"
    assert spec["method_name"] == "tensorflow/serving/predict"
