"""The requests in an export: those of the warm-up, and one for curl."""

from __future__ import annotations

import json
from collections.abc import Mapping

import tensorflow as tf
from etils import epath

from supcon_tf import exceptions
from supcon_tf.disk import files
from supcon_tf.serving import inputs
from supcon_tf.training import console

EXTRAS = "assets.extra"  # the directory that SavedModels have for such files
# Where TF Serving looks; at most 1,000 records.
WARM_UP_FILE = f"{EXTRAS}/tf_serving_warmup_requests"
FILE = f"{EXTRAS}/request.json"
# Examples per request. Kernels choose for one and for several; more than
# `max_batch_size` of a server that batches would keep it from loading.
BATCH_SIZES = (1, 8)


def write_requests(
    directory: epath.Path,
    content: inputs.Images | inputs.Texts,
    signatures: Mapping[str, dict[str, dict[str, tf.TensorSpec]]],
) -> None:
    """Writes assets.extra/tf_serving_warmup_requests and request.json there.

    TF Serving runs the first when it loads a model, since the first request of
    a signature takes many times as long as an answer, and refuses to load a
    version whose requests fail. Per signature there is a request of one example
    and one of eight.

    The second is the body of a REST request with one example, for
    `serving_default` or, without a classifier, `represent`:

      curl -d @request.json http://localhost:8501/v1/models/NAME:predict

    Nobody reads the SavedModel in `directory` yet.

    Args:
      directory: of the SavedModel.
      content: makes the examples.
      signatures: what `ServedModel.save` returned.
    """
    (directory / EXTRAS).mkdir(parents=True, exist_ok=True)
    try:
        (prediction_log_pb2,) = exceptions.import_extra(
            "serving", "tensorflow_serving.apis.prediction_log_pb2"
        )
    except exceptions.MissingPackage as error:
        console.print_line("warm-up", f"no requests for TF Serving: {error}")
    else:
        with tf.io.TFRecordWriter(str(directory / WARM_UP_FILE)) as writer:
            for name, signature in signatures.items():
                ((key, spec),) = signature["inputs"].items()
                for size in BATCH_SIZES:
                    log = prediction_log_pb2.PredictionLog()
                    request = log.predict_log.request
                    request.model_spec.signature_name = name
                    batch = content.example(spec.dtype, size)
                    request.inputs[key].CopyFrom(batch)
                    writer.write(log.SerializeToString(deterministic=True))
    name = next(n for n in ("serving_default", "represent") if n in signatures)
    body = {"signature_name": name, "instances": [content.instance()]}
    files.write_atomically(directory / FILE, json.dumps(body) + "\n")
