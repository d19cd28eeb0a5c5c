"""A model behind the gRPC interface of TF Serving.

Reference: tensorflow_serving/apis/prediction_service.proto in
https://github.com/tensorflow/serving
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from supcon_tf import exceptions
from supcon_tf.clients import model

_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
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
        channel = grpc.insecure_channel(self.server, options=_OPTIONS)
        weakref.finalize(self, channel.close)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self._spec = model_pb2.ModelSpec(name=self.name)
        if self.version is not None:
            self._spec.version.value = self.version

    def signatures(self) -> dict[str, model.Signature]:
        """The signatures that take image files, by their names.

        Raises:
          Unavailable: the server does not answer.
          RuntimeError: it does not serve the model.
        """
        answer = self._ask(
            self._stub.GetModelMetadata,
            get_model_metadata_pb2.GetModelMetadataRequest(
                model_spec=self._spec, metadata_field=["signature_def"]
            ),
        )
        found = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(found)
        return {
            name: model.Signature(name, *spec.inputs, (*spec.outputs,))
            for name, spec in found.signature_def.items()
            if [i.dtype for i in spec.inputs.values()] == [tf.string]
        }

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """The outputs of each of the files.

        Raises:
          Refused: the model does not take them.
          Unavailable: the server does not answer.
          Overloaded: they are too much for it now.
          RuntimeError: any other error of the server.
        """
        request = predict_pb2.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature.name
        request.inputs[signature.input].CopyFrom(
            tf.make_tensor_proto(contents, tf.string)
        )
        answer = self._ask(self._stub.Predict, request)
        return model.rows(
            {
                name: model.as_text(tf.make_ndarray(tensor).tolist())
                for name, tensor in answer.outputs.items()
            }
        )

    def _ask(self, method: Callable[..., Answer], request: object) -> Answer:
        """What the server answers."""
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            raise self._error(error.code(), error.details() or "") from None

    def _error(self, code: grpc.StatusCode, details: str) -> Exception:
        """What an answer that is an error becomes."""
        why = model.reason(details)
        if code in _REFUSED:
            return model.Refused(why)
        if code == grpc.StatusCode.UNAVAILABLE:
            return model.Unavailable(f"{self.server} is not there: {why}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return self.too_slow()
        answers = f"{self.server} answers {code.name}: {why}"
        # Too many requests, or too large a message.
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return model.Overloaded(answers)
        return exceptions.Failed(answers)
