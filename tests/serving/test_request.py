"""request.json, read as TF Serving's REST interface reads it."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import tensorflow as tf

from supcon_tf.serving import request

FILES = tf.TensorSpec([None], tf.string, "image_bytes")


class Server(tf.Module):
    """Answers with the heights of images."""

    @tf.function(input_signature=[FILES])
    def heights(self, image_bytes):
        return {
            "height": tf.map_fn(
                lambda file: tf.shape(tf.io.decode_jpeg(file))[0],
                image_bytes,
                fn_output_signature=tf.int32,
            )
        }


@pytest.mark.parametrize(
    "signatures", [("represent", "serving_default"), ("represent",)]
)
def test_the_body_is_a_request_in_row_format(signatures, tmp_path):
    server = Server()
    tf.saved_model.save(
        server, str(tmp_path), dict.fromkeys(signatures, server.heights)
    )
    request.write_request(tmp_path, 224)
    file = tmp_path / "assets.extra" / "request.json"
    assert file.stat().st_size < 20_000
    body = json.loads(file.read_text())
    assert set(body) == {"signature_name", "instances"}
    assert body["signature_name"] == signatures[-1]
    loaded = tf.saved_model.load(str(tmp_path))
    signature = loaded.signatures[body["signature_name"]]
    (names,) = {tuple(row) for row in body["instances"]}
    assert set(names) == set(signature.structured_input_signature[1])
    columns = {
        name: tf.constant(
            [
                base64.b64decode(row[name]["b64"], validate=True)
                for row in body["instances"]
            ]
        )
        for name in names
    }
    assert signature(**columns)["height"].numpy().tolist() == [375]


@pytest.mark.parametrize("size, shape", [(8, (14, 18)), (224, (375, 500))])
def test_the_image_is_as_large_beside_the_view_as_photographs(size, shape):
    image = request.photograph(size)
    assert image.shape == (*shape, 3)
    assert image.dtype == np.uint8
    assert min(image.std(axis=(0, 1))) > 30, "a flat image shows nothing"
    np.testing.assert_array_equal(image, request.photograph(size))


def test_a_directory_without_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`directory` must be a SavedModel"):
        request.write_request(tmp_path, 224)
    assert not any(tmp_path.iterdir())
