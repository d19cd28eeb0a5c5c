"""Requests that lie in an export: those of the warm-up, and one for curl."""

from __future__ import annotations

import base64
import json

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from etils import epath

from supcon_tf import exceptions, files
from supcon_tf.serving import metadata

(prediction_log_pb2,) = exceptions.import_extra(
    "serving", "tensorflow_serving.apis.prediction_log_pb2"
)

# Where TF Serving looks; at most 1,000 records.
WARM_UP_FILE = f"{metadata.EXTRAS}/tf_serving_warmup_requests"
FILE = f"{metadata.EXTRAS}/request.json"
# Images per request. Kernels choose for one image and for several; more than
# `max_batch_size` of a server that batches would keep it from loading.
BATCH_SIZES = (1, 8)

_PHOTOGRAPH = (375, 500)  # height, width: the usual one of ImageNet
_REFERENCE_SIZE = 224  # the views of such photographs, pixels


def write_requests(directory: epath.PathLike, image_size: int) -> None:
    """Writes assets.extra/tf_serving_warmup_requests and request.json there.

    TF Serving runs the first when it loads a model, since the first request of
    a signature takes many times as long as an answer, and refuses to load a
    version whose requests fail. Per signature there is a request of one image
    and one of eight: files as a photograph in JPEG and a small PNG, so that
    both decoders have run, arrays as gray images, a few bytes on disk.

    The second is the body of a REST request with one small JPEG file, for
    `serving_default` or, without a classifier, `represent`:

      curl -d @request.json http://localhost:8501/v1/models/NAME:predict

    Nobody reads the SavedModel in `directory` yet; ValueError if it is none.
    """
    directory = epath.Path(directory)
    signatures = metadata.read_signatures(directory)
    (directory / metadata.EXTRAS).mkdir(parents=True, exist_ok=True)
    image = photograph(image_size)
    png = tf.io.encode_png(image[::8, ::8]).numpy()
    jpeg = tf.io.encode_jpeg(image).numpy()
    with tf.io.TFRecordWriter(str(directory / WARM_UP_FILE)) as writer:
        for name, signature in signatures.items():
            ((key, info),) = signature.inputs.items()
            for size in BATCH_SIZES:
                log = prediction_log_pb2.PredictionLog()
                sent = log.predict_log.request
                sent.model_spec.signature_name = name
                # Whoever reads a batch repeats the last value given.
                values, shape = [png, jpeg] if size > 1 else [jpeg], [size]
                if info.dtype != tf.string:
                    values, shape = 128, [size, *image.shape]
                batch = tf.make_tensor_proto(values, info.dtype, shape)
                sent.inputs[key].CopyFrom(batch)
                writer.write(log.SerializeToString(deterministic=True))
    name = next(n for n in ("serving_default", "represent") if n in signatures)
    contents = tf.io.encode_jpeg(image, quality=75).numpy()
    encoded = base64.b64encode(contents).decode()
    body = {
        "signature_name": name,
        "instances": [{"image_bytes": {"b64": encoded}}],
    }
    files.write_atomically(directory / FILE, json.dumps(body) + "\n")


def photograph(image_size: int) -> npt.NDArray[np.uint8]:
    """An image to send: colours that run into each other, always the same.

    [height, width, 3] uint8, as large beside the encoder's images as
    photographs are: 375 x 500 pixels for an `image_size` of 224.
    """
    height, width = (
        -(-side * image_size // _REFERENCE_SIZE) for side in _PHOTOGRAPH
    )
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = (np.sin(9 * x + 4 * y), np.sin(5 * y - 7 * x), np.cos(8 * x * y))
    return np.rint(127.5 + 127.5 * np.stack(waves, axis=-1)).astype(np.uint8)
