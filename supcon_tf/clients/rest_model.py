"""A model behind the REST interface of TF Serving.

The client needs the standard library alone, no TensorFlow.
Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import base64
import ctypes
import dataclasses
import http.client
import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence

from supcon_tf import exceptions
from supcon_tf.clients import model
from supcon_tf.host import proxies

# Errors on JSON of another server; thousands of brackets are a RecursionError.
_OTHER_JSON = ValueError, LookupError, TypeError, AttributeError, RecursionError
_REFUSED = (400, 413)  # proxies answer 413: fewer images may pass
_TOO_SLOW = 504


@dataclasses.dataclass(eq=False)
class RestModel(model.Model):
    """A model at a server, by HTTP.

    Attributes:
      server: http://HOST:PORT or https://HOST:PORT; a path behind it is kept.
      name: of the model.
      version: None for the newest that is served.
      timeout: seconds without an answer.
    """

    server: str
    name: str
    version: int | None = None
    timeout: float = 60.0

    def __post_init__(self):
        quoted_name = urllib.parse.quote(self.name, safe="")
        self.url = f"{self.server.rstrip('/')}/v1/models/{quoted_name}"
        if self.version is not None:
            self.url += f"/versions/{self.version}"
        # Not urlopen, whose proxies are those of its first call.
        host = urllib.parse.urlsplit(self.url).hostname or ""
        proxy_urls = {} if proxies.is_this_machine(host) else None
        handler = urllib.request.ProxyHandler(proxy_urls)
        self._opener = urllib.request.build_opener(handler)

    @property
    def through(self) -> str:
        """The words of an error on the proxy between; "" without one."""
        return proxies.used_by_urllib(self.url)

    def _tensors(self) -> model.Tensors:
        metadata = self._ask("/metadata", "metadata")
        try:
            specs = metadata["signature_def"]["signature_def"]
            return [
                (name, _dtypes(spec["inputs"]), [*spec["outputs"]])
                for name, spec in specs.items()
            ]
        except _OTHER_JSON:
            raise self._of_another_server(metadata) from None

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """See `model.Model.predict`."""
        instances = [
            {signature.input: {"b64": base64.b64encode(file).decode()}}
            for file in contents
        ]
        body = {"signature_name": signature.name, "instances": instances}
        rows = self._ask(":predict", "predictions", json.dumps(body).encode())
        # A row of several outputs is an object, of a single output its value.
        if len(signature.outputs) == 1 and isinstance(rows, list):
            rows = [{signature.outputs[0]: value} for value in rows]
        if (
            not isinstance(rows, list)
            or len(rows) != len(contents)
            or not all(isinstance(row, dict) for row in rows)
        ):
            raise self._of_another_server(rows)
        return model.mark_unknown(rows)

    def _ask(
        self, method: str, field: str, body: bytes | None = None
    ) -> object:
        """A field of the answer, to POST if there is a body, else to GET."""
        request = urllib.request.Request(
            self.url + method, body, {"Content-Type": "application/json"}
        )
        try:
            try:
                answer = self._opener.open(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, TimeoutError):
                raise exceptions.Failed(
                    f"{self.server} must answer within "
                    f"--timeout={self.timeout:g} seconds{self.through}; fewer "
                    "images per request take less"
                ) from None
            raise exceptions.Failed(
                f"{self.url} is not there: {cause}{self.through}"
            ) from None
        if isinstance(answer, urllib.error.HTTPError):
            raise self._error(answer.code, content.decode("utf-8", "replace"))
        try:
            return json.loads(content, parse_float=_float32)[field]
        except _OTHER_JSON:
            raise self._of_another_server(content) from None

    def _of_another_server(self, answer: object) -> exceptions.Failed:
        """The error for an answer that TF Serving does not give."""
        shown = answer[:80] if isinstance(answer, bytes) else repr(answer)[:80]
        return exceptions.Failed(
            f"{self.url} must answer as TF Serving does, got "
            f"{shown}{self.through}"
        )

    def _error(self, code: int, text: str) -> Exception:
        """The exception for an answer of this HTTP status."""
        try:
            text = str(json.loads(text)["error"])
        except _OTHER_JSON:
            pass  # text of a proxy, or the C escapes of early TF Serving
        if code in _REFUSED:
            return model.Refused(exceptions.reason(text))
        reason = exceptions.reason(text)
        message = f"{self.url} answers {code}: {reason}{self.through}"
        if code == _TOO_SLOW:
            message += (
                "; that is its own limit of time, not --timeout: fewer images "
                "per request take less"
            )
        return exceptions.Failed(message)


def _dtypes(inputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The types of inputs in metadata, in the words of TensorFlow."""
    return {
        name: tensor["dtype"].removeprefix("DT_").lower()
        for name, tensor in inputs.items()
    }


def _float32(text: str) -> float:
    """The float32 number whose decimals JSON has."""
    number = float(text)
    rounded = ctypes.c_float(number).value
    # A number beyond float32 is a float64 of another model.
    return rounded if math.isfinite(rounded) else number
