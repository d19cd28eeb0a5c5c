"""A model behind the REST interface of TF Serving.

Of the standard library alone: a client without TensorFlow.
Reference: https://www.tensorflow.org/tfx/serving/api_rest
"""

from __future__ import annotations

import base64
import http.client
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

from supcon_tf.clients import model

# Of TF Serving RESOURCE_EXHAUSTED, and of proxies before it a body that is too
# large: fewer images may pass.
_REFUSED = (400, 413, 429)
_UNAVAILABLE = (502, 503, 504)
_FLOAT32 = struct.Struct("f")


class RestModel:
    """A model that is asked by HTTP.

    Args:
      server: http://HOST:PORT or https://HOST:PORT; a path behind it is kept.
      name: of the model.
      version: None for the newest that is served.
      timeout: seconds without an answer.
    """

    def __init__(
        self,
        server: str,
        name: str,
        version: int | None = None,
        timeout: float = 60.0,
    ):
        quoted = urllib.parse.quote(name, safe="")
        self.url = f"{server.rstrip('/')}/v1/models/{quoted}"
        if version is not None:
            self.url += f"/versions/{version}"
        self.timeout = timeout

    def signatures(self) -> dict[str, model.Signature]:
        """The signatures that take image files, by their names.

        Raises:
          Unavailable: the server does not answer.
          RuntimeError: it does not serve the model.
        """
        metadata = self._ask("/metadata")["metadata"]
        return {
            name: model.Signature(name, *spec["inputs"], (*spec["outputs"],))
            for name, spec in metadata["signature_def"]["signature_def"].items()
            if [i["dtype"] for i in spec["inputs"].values()] == ["DT_STRING"]
        }

    def predict(
        self, signature: model.Signature, contents: Sequence[bytes]
    ) -> list[model.Row]:
        """The outputs of each of the files.

        In the row format: of a signature with one output the answer has plain
        values, of several one object per row.

        Raises:
          Refused: the model does not take them.
          Unavailable: the server does not answer.
          RuntimeError: any other error of the server.
        """
        instances = [
            {signature.input: {"b64": base64.b64encode(file).decode()}}
            for file in contents
        ]
        body = {"signature_name": signature.name, "instances": instances}
        rows = self._ask(":predict", json.dumps(body).encode())["predictions"]
        if len(signature.outputs) == 1:
            return [{signature.outputs[0]: value} for value in rows]
        return rows

    def _ask(self, method: str, body: bytes | None = None) -> dict:
        """What the server answers, by POST if there is a body."""
        request = urllib.request.Request(
            self.url + method, body, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as file:
                answer = file.read()
        except urllib.error.HTTPError as error:
            raise self._error(error) from None
        except TimeoutError:
            raise self._no_answer() from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            if isinstance(why, TimeoutError):
                raise self._no_answer() from None
            raise model.Unavailable(f"{self.url} is not there: {why}") from None
        try:
            return json.loads(answer, parse_float=_float32)
        except ValueError:
            raise RuntimeError(
                f"{self.url} must answer as TF Serving does, got {answer[:80]}"
            ) from None

    def _error(self, error: urllib.error.HTTPError) -> Exception:
        """What an answer that is an error becomes."""
        text = error.read().decode("utf-8", "replace")
        try:
            text = json.loads(text)["error"]
        except (ValueError, KeyError, TypeError):
            pass  # of a proxy; or with C's escapes, as early versions have
        if error.code in _REFUSED:
            return model.Refused(model.reason(text))
        answers = f"{self.url} answers {error.code}: {model.reason(text)}"
        if error.code in _UNAVAILABLE:
            return model.Unavailable(answers)
        return RuntimeError(answers)

    def _no_answer(self) -> RuntimeError:
        """Of a request that took too long; another would too."""
        return RuntimeError(
            f"{self.url} must answer within --timeout={self.timeout:g} "
            "seconds; fewer images per request take less"
        )


def _float32(text: str) -> float:
    """The number that the server means: it has float32, and JSON decimals."""
    return _FLOAT32.unpack(_FLOAT32.pack(float(text)))[0]
