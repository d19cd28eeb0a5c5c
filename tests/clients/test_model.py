"""One model, client in both ways: in this process and by REST."""

from __future__ import annotations

import shutil

import pytest
import tensorflow as tf

from supcon_tf.clients import model, rest_model, saved_model
from tests.clients import exports


@pytest.fixture(params=["process", "rest"])
def client(request, lengths, server):
    if request.param == "process":
        return saved_model.SavedModel(lengths / "1")
    return rest_model.RestModel(server.rest, "lengths", 1)


def test_the_same_signatures_and_answers(client):
    signatures = client.signatures()
    outputs = {name: sorted(s.outputs) for name, s in signatures.items()}
    assert outputs == {
        "serving_default": [
            *("class_names", "is_known", "predicted_class", "probabilities")
        ],
        "represent": ["representation"],
        "echo": ["all_bytes", "sizes"],
    }
    assert {s.input for s in signatures.values()} == {"image_bytes"}
    rows = client.predict(signatures["represent"], [b"abc", b"\xff" * 61])
    # As float32 has them, not as JSON does.
    assert rows[0] == {"representation": [3.0, 0.30000001192092896]}
    assert rows[1] == {"representation": [61.0, 6.099999904632568]}
    (row,) = client.predict(signatures["serving_default"], [b"a" * 60])
    assert row["class_names"] == exports.CLASS_NAMES
    assert row["predicted_class"] == "long, or so"
    assert row["probabilities"] == pytest.approx([1 / 3, 0.5, 1 / 6])


def test_what_a_gallery_does_not_know_is_unknown(client):
    signature = client.signatures()["serving_default"]
    rows = client.predict(signature, [b"a" * 60, b"a" * 80])
    assert [row["predicted_class"] for row in rows] == [
        *("long, or so", model.UNKNOWN)
    ]


def test_files_are_refused_for_the_same_reason(client):
    reason = r"^no image is empty, got one of 0$"
    with pytest.raises(model.Refused, match=reason):
        client.predict(client.signatures()["represent"], [b"a", b""])


def test_a_photograph_of_many_megabytes_is_sent(server):
    client = rest_model.RestModel(server.rest, "lengths")
    (row,) = client.predict(client.signatures()["represent"], [bytes(2**23)])
    assert row["representation"][0] == 2**23


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/*.index"])
@pytest.mark.parametrize("content", [b"", b"another file"])
def test_a_damaged_saved_model_is_named(lengths, tmp_path, file, content):
    copied = shutil.copytree(lengths / "1", tmp_path / "1")
    next(copied.glob(file)).write_bytes(content)
    with pytest.raises(ValueError, match="/1 must be a whole SavedModel .*, g"):
        saved_model.SavedModel(copied)


def test_outputs_without_a_row_for_each_input_are_refused(tmp_path):
    """A SavedModel of another program may have any signature."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def count(text):
        return {"count": tf.size(text)}

    tf.saved_model.save(tf.Module(), str(tmp_path), {"count": count})
    client = saved_model.SavedModel(tmp_path)
    with pytest.raises(ValueError, match=r"each input, 2, got count with cou"):
        client.predict(client.signatures()["count"], [b"a", b"b"])


def test_outputs_of_a_batch_are_rows():
    assert model.rows({"a": [1, 2], "b": [[b"\xc3\xbc"], [b"\xff"]]}) == [
        {"a": 1, "b": ["ü"]},
        {"a": 2, "b": ["\ufffd"]},
    ]
    with pytest.raises(ValueError, match="shorter"):
        model.rows({"a": [1, 2], "b": [1]})
