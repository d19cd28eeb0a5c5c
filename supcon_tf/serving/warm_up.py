"""Requests that TF Serving runs when it loads a model, before real ones.

The first request of a signature prunes and optimizes the graph and lets the
kernels choose their algorithms, which takes many times as long as an answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf
from etils import epath
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from supcon_tf.serving import metadata, request

# Where TF Serving looks; at most 1,000 records.
FILE = f"{metadata.EXTRAS}/tf_serving_warmup_requests"
# Images per request. Kernels choose for one image and for several; more than
# `max_batch_size` of a server that batches would keep it from loading.
BATCH_SIZES = (1, 8)


def write_warm_up(directory: epath.PathLike, image_size: int) -> None:
    """Writes assets.extra/tf_serving_warmup_requests.

    Per signature a request of one image and one of eight: image files as a
    photograph in JPEG and a small PNG, so that both decoders have run, arrays
    as gray images, which take a few bytes on disk. TF Serving refuses to load a
    version whose requests fail.

    Args:
      directory: a SavedModel that nobody reads yet.
      image_size: side of the encoder's images in pixels.

    Raises:
      ValueError: `directory` is no SavedModel.
    """
    directory = epath.Path(directory)
    signatures = metadata.read_signatures(directory)
    (directory / metadata.EXTRAS).mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(directory / FILE)) as writer:
        for name, signature in signatures.items():
            for log in _logs(name, signature, image_size):
                writer.write(log.SerializeToString(deterministic=True))


def _logs(
    name: str, signature: meta_graph_pb2.SignatureDef, image_size: int
) -> Iterator[prediction_log_pb2.PredictionLog]:
    """The requests of one signature."""
    ((key, info),) = signature.inputs.items()
    for batch_size in BATCH_SIZES:
        log = prediction_log_pb2.PredictionLog()
        sent = log.predict_log.request
        # Without the model's name, which the server decides on.
        sent.model_spec.signature_name = name
        images = _images(tf.as_dtype(info.dtype), batch_size, image_size)
        sent.inputs[key].CopyFrom(images)
        yield log


def _images(
    dtype: tf.DType, batch_size: int, image_size: int
) -> tensor_pb2.TensorProto:
    """A batch of images; whoever reads it repeats the last value given."""
    photograph = request.photograph(image_size)
    if dtype != tf.string:
        shape = [batch_size, *photograph.shape]
        return tf.make_tensor_proto(128, dtype, shape)
    png = tf.io.encode_png(photograph[::8, ::8]).numpy()
    jpeg = tf.io.encode_jpeg(photograph).numpy()
    contents = [png, jpeg] if batch_size > 1 else [jpeg]
    return tf.make_tensor_proto(contents, dtype, [batch_size])
