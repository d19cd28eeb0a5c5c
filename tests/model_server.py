"""A TF Serving of this process: its gRPC and REST interfaces over loopback.

It loads a model as TF Serving does, with the Session loader of TF1 and tensors
by the names of the SignatureDef, and speaks

- gRPC: PredictionService.Predict, in the messages of tensorflow_serving.apis;
- REST: POST /v1/models/NAME[/versions/V]:predict in the row format with named
  files, GET /v1/models/NAME[/versions/V]/metadata.

Forms and status codes are those of
https://www.tensorflow.org/tfx/serving/api_rest and, in the repository
tensorflow/serving, util/json_tensor.cc, model_servers/http_server.cc and
model_servers/http_rest_api_util.cc. What neither our client nor
docs/serving/ uses is not here.

  with model_server.ModelServer(export, "digits") as server:
      server.grpc  # localhost:PORT
      server.rest  # http://localhost:PORT
      server.batch_sizes  # images of each Predict so far, also refused ones
      server.reset(delay=0.1)  # for what is asked next
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import inspect
import json
import pathlib
import re
import threading
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

_THREADS = 8
_HTTP_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/\w+)?")
_METHODS = {"GET": "/metadata", "POST": ":predict"}


class ServingError(Exception):
    """A status that is not OK."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def read_signatures(directory):
    """The signatures of a SavedModel that have inputs, by name."""
    file = pathlib.Path(directory, "saved_model.pb")
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    signatures = saved.meta_graphs[0].signature_def.items()
    return {
        name: signature for name, signature in signatures if signature.inputs
    }


def tensor_specs(directory):
    """Inputs and outputs of each signature, as `ServedModel.save` returns."""
    return {
        name: {
            side: {
                key: tf.TensorSpec(info.tensor_shape, info.dtype)
                for key, info in getattr(signature, side).items()
            }
            for side in ("inputs", "outputs")
        }
        for name, signature in read_signatures(directory).items()
    }


class Session:
    """A SavedModel as TF Serving runs it: a session, names of tensors."""

    def __init__(self, directory):
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(
                self._session, ["serve"], str(directory)
            )
        self.signatures = loaded.signature_def
        self.close = self._session.close

    def run(self, name, inputs):
        """Arrays by the names of inputs to arrays by those of outputs."""
        signature = self.signatures[name]
        assert set(inputs) == set(signature.inputs)
        return self._session.run(
            {key: info.name for key, info in signature.outputs.items()},
            {signature.inputs[key].name: v for key, v in inputs.items()},
        )


class ModelServer:
    """Both interfaces over the newest version of a model, on free ports.

    A context manager; in it, requests are served by threads.

    Args:
      export: directory of versions.
      name: by which the model is asked for.

    Attributes:
      grpc: localhost:PORT.
      rest: http://localhost:PORT.
      batch_sizes: images of each Predict so far, also of those that failed.
    """

    def __init__(self, export, name):
        self.name = name
        names = [child.name for child in pathlib.Path(export).iterdir()]
        self.version = max(int(n) for n in names if n.isdecimal())
        self._session = Session(pathlib.Path(export) / str(self.version))
        self._hurry = threading.Event()  # ends the delays
        self.batch_sizes = []
        self._lock = threading.Lock()
        self.reset()

    def reset(self, delay=0.0):
        """Forgets earlier requests, ends delays, and sets another delay.

        Args:
          delay: of each Predict, seconds.
        """
        self._hurry.set()
        self._hurry = threading.Event()
        self.batch_sizes.clear()
        self._delay = delay

    def check(self, name, version=None):
        """Raises NOT_FOUND for another model or version."""
        if name != self.name or version not in (None, self.version):
            request = f"Specific({name}, {version})"
            request = request if version else f"Latest({name})"
            raise ServingError(
                f"Servable not found for request: {request}",
                grpc.StatusCode.NOT_FOUND,
            )

    def predict(self, name, inputs):
        """Arrays by the names of inputs to arrays by those of outputs."""
        with self._lock:
            self.batch_sizes.append(min(map(len, inputs.values())))
        self._hurry.wait(self._delay)
        try:
            return self._session.run(name, inputs)
        except tf.errors.OpError as error:
            code = _CODES[error.error_code]
            raise ServingError(error.message, code) from error

    def signature_map(self):
        """The signatures as a message."""
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self._session.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        return signatures

    def __enter__(self):
        unlimited = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ]
        pool = futures.ThreadPoolExecutor(_THREADS)
        self._grpc = grpc.server(pool, options=unlimited)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            _GrpcService(self), self._grpc
        )
        port = self._grpc.add_insecure_port("localhost:0")
        self.grpc = f"localhost:{port}"
        self._grpc.start()
        handler = type("Handler", (_RestHandler,), {"model": self})
        self._rest = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        self._rest.daemon_threads = True
        self.rest = f"http://localhost:{self._rest.server_address[1]}"
        threading.Thread(
            target=self._rest.serve_forever, args=(0.05,), daemon=True
        ).start()
        return self

    def __exit__(self, *error):
        self._hurry.set()
        self._grpc.stop(None).wait()
        self._rest.shutdown()
        self._rest.server_close()
        self._session.close()


def _answering(method):
    """Makes a ServingError the status of a remote procedure call."""

    def answer(self, request, context):
        try:
            spec = request.model_spec
            version = spec.version.value if spec.HasField("version") else None
            self.model.check(spec.name, version)
            return method(self, request)
        except ServingError as error:
            context.abort(error.code, str(error))

    return answer


class _GrpcService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The gRPC interface."""

    def __init__(self, model):
        self.model = model

    @_answering
    def Predict(self, request):
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        outputs = self.model.predict(request.model_spec.signature_name, inputs)
        answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
        answer.model_spec.version.value = self.model.version
        for name, value in outputs.items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return answer


class _RestHandler(http.server.BaseHTTPRequestHandler):
    """The REST interface; `model` is set by the server."""

    model = None
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(self._metadata)

    def do_POST(self):
        # Read for refused requests too: the connection may go on.
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self._predictions)

    def _metadata(self):
        # protobuf 5 gave the first of these another name.
        options = inspect.signature(json_format.MessageToDict).parameters
        defaults = {
            "including_default_value_fields",
            "always_print_fields_with_no_presence",
        } & options.keys()
        signatures = json_format.MessageToDict(
            self.model.signature_map(),
            preserving_proto_field_name=True,
            **dict.fromkeys(defaults, True),
        )
        spec = {"name": self.model.name, "version": str(self.model.version)}
        metadata = {"signature_def": signatures}
        return {"model_spec": spec, "metadata": metadata}

    def _predictions(self):
        request = json.loads(self.body)
        files = {}
        for row in request["instances"]:
            for key, value in row.items():
                content = base64.b64decode(value["b64"], validate=True)
                files.setdefault(key, []).append(content)
        inputs = {
            key: np.array(contents, object) for key, contents in files.items()
        }
        outputs = self.model.predict(request["signature_name"], inputs)
        outputs = {key: _plain(key, array) for key, array in outputs.items()}
        if len(outputs) == 1:
            return {"predictions": next(iter(outputs.values()))}
        rows = zip(*outputs.values(), strict=True)
        rows = [dict(zip(outputs, row, strict=True)) for row in rows]
        return {"predictions": rows}

    def _answer(self, make):
        """Sends the result of `make` as JSON."""
        try:
            name, version, method = _PATH.fullmatch(self.path).groups()
            assert method == _METHODS[self.command]
            self.model.check(name, int(version) if version else None)
            code, body = 200, make()
        except ServingError as error:
            code, body = _HTTP_CODES.get(error.code, 500), {"error": str(error)}
        text = json.dumps(body, indent=4).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        # The client may be gone.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(text)

    def log_message(self, *args):
        """Keeps stderr clean."""


def _plain(name, array):
    """An array of outputs as JSON values."""
    if array.dtype == np.float32:  # the shortest text of each
        texts = [float(str(value)) for value in array.ravel()]
        return np.array(texts).reshape(array.shape).tolist()
    if array.dtype == bool:
        return array.tolist()

    def text(value):
        is_text = not name.endswith("_bytes")
        encoded = {"b64": base64.b64encode(value).decode()}
        return value.decode() if is_text else encoded

    return np.vectorize(text, otypes=[object])(array).tolist()
