"""A TF Serving of this process: its gRPC and REST interfaces over loopback.

`ModelServer(export, "digits")` loads the newest version below `export` as TF
Serving does, with the Session loader of TF1 and tensors by the names of the
SignatureDef, and speaks

- gRPC: PredictionService.Predict and .GetModelMetadata,
  ModelService.GetModelStatus, in the messages of tensorflow_serving.apis;
- REST: POST /v1/models/NAME[/versions/V]:predict in the row and the column
  format, GET /v1/models/NAME[/versions/V][/metadata].

Forms and status codes are those of
https://www.tensorflow.org/tfx/serving/api_rest and, in the repository
tensorflow/serving, util/json_tensor.cc, model_servers/http_server.cc and
model_servers/http_rest_api_util.cc. What TF Serving has besides is not here:
other models, batching, reloading, labels.

  with model_server.ModelServer(export, "digits") as server:
      server.grpc  # grpc://localhost:PORT
      server.rest  # http://localhost:PORT
      server.batch_sizes  # images of each Predict so far, also refused ones
      server.reset(fail_first=2, delay=0.1)  # faults, for what is asked next
"""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import re
import threading
from concurrent import futures

import grpc
import tensorflow as tf
from google.protobuf import json_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests import rest_forms

_THREADS = 8
_HTTP_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/\w+)?")


class ServingError(Exception):
    """A status that is not OK."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code


class LoadedModel:
    """A SavedModel in a session of TF1, and what is asked of it.

    Args:
      export: directory of versions; the newest is loaded.
      name: by which it is asked for.
      fail_first: how many of the first Predicts fail.
      fail_with: the status of those.
      delay: seconds that each Predict takes longer.
    """

    def __init__(
        self,
        export,
        name,
        fail_first=0,
        fail_with=grpc.StatusCode.UNAVAILABLE,
        delay=0.0,
    ):
        self.name = name
        self.version = max(
            int(child.name)
            for child in pathlib.Path(export).iterdir()
            if child.name.isdecimal()
        )
        self.fail_first = fail_first
        self.fail_with = fail_with
        self.delay = delay
        self.batch_sizes = []
        self.hurry = threading.Event()  # ends the delays
        self._lock = threading.Lock()
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            loaded = tf.compat.v1.saved_model.loader.load(
                self.session, ["serve"], str(export / str(self.version))
            )
        self.signatures = loaded.signature_def

    def check(self, name, version=None):
        """Raises NOT_FOUND for what is not served."""
        if name == self.name and version in (None, self.version):
            return
        asked = f"Specific({name}, {version})" if version else f"Latest({name})"
        raise ServingError(
            grpc.StatusCode.NOT_FOUND,
            f"Servable not found for request: {asked}",
        )

    def signature(self, name):
        """The signature of a request that names it, or names none."""
        name = name or "serving_default"
        if name not in self.signatures:
            raise ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f'Serving signature name: "{name}" not found in signature def',
            )
        return self.signatures[name]

    def predict(self, signature, inputs):
        """Arrays by the names of inputs to arrays by those of outputs."""
        if set(inputs) != set(signature.inputs):
            raise ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"input keys must be {sorted(signature.inputs)}, got "
                f"{sorted(inputs)}",
            )
        with self._lock:
            self.batch_sizes.append(min(map(len, inputs.values())))
            fails = len(self.batch_sizes) <= self.fail_first
        if fails:
            raise ServingError(self.fail_with, "queue is full")
        self.hurry.wait(self.delay)
        try:
            return self.session.run(
                {name: out.name for name, out in signature.outputs.items()},
                {signature.inputs[name].name: v for name, v in inputs.items()},
            )
        except tf.errors.OpError as error:
            code = _CODES[error.error_code]
            raise ServingError(code, error.message) from error
        except (TypeError, ValueError) as error:  # Session's own checks
            code = grpc.StatusCode.INVALID_ARGUMENT
            raise ServingError(code, str(error)) from error

    def metadata(self):
        """The answer to GetModelMetadata."""
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        answer.model_spec.name = self.name
        answer.model_spec.version.value = self.version
        answer.metadata["signature_def"].Pack(self.signature_map())
        return answer

    def signature_map(self):
        """The signatures as a message."""
        found = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self.signatures.items():
            found.signature_def[name].CopyFrom(signature)
        return found

    def status(self):
        """The answer to GetModelStatus."""
        answer = get_model_status_pb2.GetModelStatusResponse()
        version = answer.model_version_status.add(version=self.version)
        version.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        version.status.error_code = 0
        return answer


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


class _GrpcService(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """The gRPC interface."""

    def __init__(self, model):
        self.model = model

    @_answering
    def Predict(self, request):
        name = request.model_spec.signature_name
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        outputs = self.model.predict(self.model.signature(name), inputs)
        answer = predict_pb2.PredictResponse(model_spec=request.model_spec)
        answer.model_spec.version.value = self.model.version
        for name, value in outputs.items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return answer

    @_answering
    def GetModelMetadata(self, request):
        if list(request.metadata_field) != ["signature_def"]:
            raise ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                "GetModelMetadataRequest must specify at least one "
                "metadata_field",
            )
        return self.model.metadata()

    @_answering
    def GetModelStatus(self, request):
        return self.model.status()


class _RestHandler(http.server.BaseHTTPRequestHandler):
    """The REST interface; `model` is set by the server."""

    model = None
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer(self._get)

    def do_POST(self):
        # Also of what is refused: the connection may go on.
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self._post)

    def _get(self, method):
        if method == "/metadata":
            return {
                "model_spec": {
                    "name": self.model.name,
                    "signature_name": "",
                    "version": str(self.model.version),
                },
                "metadata": {
                    "signature_def": _as_json(self.model.signature_map())
                },
            }
        return _as_json(self.model.status())

    def _post(self, method):
        try:
            request = json.loads(self.body)
            signature = self.model.signature(request.get("signature_name"))
            inputs = rest_forms.inputs_of(request, signature)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServingError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Failed to process JSON: {error}",
            ) from error
        outputs = self.model.predict(signature, inputs)
        return rest_forms.answer_to(request, outputs)

    def _answer(self, make):
        """Sends what `make` makes of the method in the path."""
        try:
            found = _PATH.fullmatch(self.path)
            allowed = {"GET": (None, "/metadata"), "POST": (":predict",)}
            if not found or found[3] not in allowed[self.command]:
                raise ServingError(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Malformed request: {self.command} {self.path}",
                )
            self.model.check(found[1], int(found[2]) if found[2] else None)
            code, body = 200, make(found[3])
        except ServingError as error:
            code, body = _HTTP_CODES.get(error.code, 500), {"error": str(error)}
        text = json.dumps(body, indent=4).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        # Of a client that has gone.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(text)

    def log_message(self, *args):
        """Keeps stderr clean."""


def _as_json(message):
    """A message as TF Serving prints it."""
    return json_format.MessageToDict(
        message,
        including_default_value_fields=True,
        preserving_proto_field_name=True,
    )


class ModelServer:
    """Both interfaces over one loaded model, on free ports.

    A context manager; in it, requests are served by threads. Arguments are
    those of LoadedModel.

    Attributes:
      grpc: grpc://localhost:PORT.
      rest: http://localhost:PORT.
      model: the LoadedModel.
    """

    def __init__(self, export, name, **faults):
        self.model = LoadedModel(pathlib.Path(export), name, **faults)

    @property
    def batch_sizes(self):
        """Images of each Predict so far, also of those that failed."""
        return self.model.batch_sizes

    def reset(
        self,
        fail_first=0,
        fail_with=grpc.StatusCode.UNAVAILABLE,
        delay=0.0,
    ):
        """Forgets what was asked, ends delays, and takes other faults."""
        self.model.hurry.set()
        self.model.hurry = threading.Event()
        self.model.batch_sizes.clear()
        self.model.fail_first = fail_first
        self.model.fail_with = fail_with
        self.model.delay = delay

    def __enter__(self):
        service = _GrpcService(self.model)
        unlimited = [
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
        ]
        pool = futures.ThreadPoolExecutor(_THREADS)
        self._grpc = grpc.server(pool, options=unlimited)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            service, self._grpc
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            service, self._grpc
        )
        port = self._grpc.add_insecure_port("localhost:0")
        self.grpc = f"grpc://localhost:{port}"
        self._grpc.start()
        handler = type("Handler", (_RestHandler,), {"model": self.model})
        self._rest = http.server.ThreadingHTTPServer(("localhost", 0), handler)
        self._rest.daemon_threads = True
        self.rest = f"http://localhost:{self._rest.server_address[1]}"
        threading.Thread(
            target=self._rest.serve_forever, args=(0.05,), daemon=True
        ).start()
        return self

    def __exit__(self, *error):
        self.model.hurry.set()
        self._grpc.stop(None).wait()
        self._rest.shutdown()
        self._rest.server_close()
        self.model.session.close()
