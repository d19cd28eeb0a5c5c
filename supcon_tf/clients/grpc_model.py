"""A model behind the gRPC interface of TF Serving.

Reference: tensorflow_serving/apis/prediction_service.proto in
https://github.com/tensorflow/serving
"""

from __future__ import annotations

import dataclasses
import urllib.parse
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from supcon_tf import exceptions, proxies
from supcon_tf.clients import model

(
    grpc,
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
) = exceptions.import_extra(
    "serving",
    "grpc",
    *(
        f"tensorflow_serving.apis.{name}"
        for name in (
            "get_model_metadata_pb2",
            "model_pb2",
            "predict_pb2",
            "prediction_service_pb2_grpc",
        )
    ),
)

_ERRORS = {
    grpc.StatusCode.INVALID_ARGUMENT: model.Refused,
    grpc.StatusCode.OUT_OF_RANGE: model.Refused,
    # Too many requests, or too large a message.
    grpc.StatusCode.RESOURCE_EXHAUSTED: model.Overloaded,
    grpc.StatusCode.UNAVAILABLE: model.Unavailable,
}
# gRPC's own limit is 4 MiB, less than a batch of photographs.
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
)
Answer = TypeVar("Answer")


@dataclasses.dataclass(eq=False)
class GrpcModel(model.Served):
    """A model that is asked by remote procedure calls of HOST:PORT."""

    def __post_init__(self):
        host = urllib.parse.urlsplit(f"//{self.server}").hostname or ""
        self._host, options = host, _OPTIONS
        if proxies.is_this_machine(host):
            options += (("grpc.enable_http_proxy", 0),)
        channel = grpc.insecure_channel(self.server, options=options)
        weakref.finalize(self, channel.close)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._spec = model_pb2.ModelSpec(name=self.name)
        if self.version is not None:
            self._spec.version.value = self.version

    @property
    def through(self) -> str:
        """See `model.Served.through`."""
        return proxies.used_by_grpc(self._host)

    def _tensors(self) -> model.Tensors:
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=self._spec, metadata_field=["signature_def"]
        )
        answer = self._ask(self._stub.GetModelMetadata, request)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        for name, spec in signatures.signature_def.items():
            dtypes = {
                k: tf.as_dtype(x.dtype).name for k, x in spec.inputs.items()
            }
            yield name, dtypes, spec.outputs

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """See `model.Model.predict`."""
        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature.name
        images = tf.make_tensor_proto(contents, tf.string)
        request.inputs[signature.input].CopyFrom(images)
        outputs = self._ask(self._stub.Predict, request).outputs
        arrays = {n: tf.make_ndarray(tensor) for n, tensor in outputs.items()}
        return model.rows({n: array.tolist() for n, array in arrays.items()})

    def _ask(self, method: Callable[..., Answer], request: object) -> Answer:
        """What the server answers; an error becomes one of ours."""
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            code, why = error.code(), model.reason(error.details() or "")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise self._too_slow()
        kind = _ERRORS.get(code, exceptions.Failed)
        if kind is model.Unavailable:
            raise kind(f"{self.server} is not there: {why}{self.through}")
        if kind is not model.Refused:
            why = f"{self.server} answers {code.name}: {why}{self.through}"
        raise kind(why)
