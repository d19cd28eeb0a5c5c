"""The REST client, on a server's answers and on what is none."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading

import pytest

from supcon_tf import exceptions
from supcon_tf.clients import model, rest_model


@contextlib.contextmanager
def answering(code, body, length=None):
    """A server that answers everything in the same way, and promises length."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            sent = int(self.headers["Content-Length"] or 0)
            requests.append((self.path, self.rfile.read(sent)))
            self.send_response(code)
            if length is not None:
                self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *args):
            pass

    requests = []
    with http.server.HTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(
            target=server.serve_forever, args=(0.02,), daemon=True
        ).start()
        yield f"http://localhost:{server.server_address[1]}/proxy/", requests
        server.shutdown()


REPRESENT = model.Signature("represent", "image_bytes", ("representation",))
ECHO = model.Signature("echo", "image_bytes", ("all_bytes", "sizes"))


def test_bytes_of_an_output_stay_as_json_has_them(server):
    client = rest_model.RestModel(server.rest, "lengths")
    first, second = client.predict(ECHO, [b"abc", b"\xff"])
    assert (first["sizes"], second["sizes"]) == (3.0, 1.0)
    assert second["all_bytes"] == {"b64": "/w=="}


def test_the_request_is_the_documented_row_format():
    answer = b'{"predictions": [[0.1], [1e300]]}'
    with answering(200, answer) as (url, requests):
        rows = rest_model.RestModel(url, "a/b", 3).predict(
            REPRESENT, [b"x", b"\xff"]
        )
    # As float32 has it, unless that has no such number.
    assert [row["representation"] for row in rows] == (
        [[0.10000000149011612], [1e300]]
    )
    ((path, body),) = requests
    assert path == "/proxy/v1/models/a%2Fb/versions/3:predict"
    assert json.loads(body) == {
        "signature_name": "represent",
        "instances": [
            {"image_bytes": {"b64": "eA=="}},
            {"image_bytes": {"b64": "/w=="}},
        ],
    }


@pytest.mark.parametrize(
    ("code", "body", "error", "message"),
    [
        (400, b'{"error": "no\\n\\t [[{{node x}}]]"}', model.Refused, "^no$"),
        # Early versions of TF Serving escape as C does.
        (400, b'{ "error": "isn\\\'t" }', model.Refused, r"isn\\'t"),
        (413, b"<html>too large</html>", model.Refused, "too large"),
        (504, b'{"error": "l"}', exceptions.Failed, "answers 504: l; .*fewer"),
        (503, b'{"error": "queue"}', exceptions.Failed, "answers 503: queue$"),
        (502, b"", exceptions.Failed, "answers 502"),
        (404, b'{"error": "Latest(m)"}', exceptions.Failed, "404: Latest.m.$"),
        (500, b"[]", exceptions.Failed, r"answers 500: \[\]$"),
        pytest.param(
            *(500, b"[" * 100_000, exceptions.Failed, r"answers 500: \["),
            id="brackets",
        ),
        (200, b"<html>", exceptions.Failed, "must answer as TF Serving does"),
    ],
)
def test_errors_say_what_to_do(code, body, error, message):
    with answering(code, body) as (url, _):
        with pytest.raises(error, match=message) as caught:
            rest_model.RestModel(url, "m").predict(REPRESENT, [b"x"])
    assert caught.type is error


@pytest.mark.parametrize("code", [200, 400, 500])
def test_an_answer_that_breaks_off_is_refused(code):
    with answering(code, b"{", length=9) as (url, _):
        with pytest.raises(exceptions.Failed, match="not there: Incomplete"):
            rest_model.RestModel(url, "m").predict(REPRESENT, [b"x"])


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"null", b'"text"', b'{"detail": "ok"}'),
        b'{"metadata": {}, "predictions": []}',
        b'{"metadata": [1], "predictions": {"x": 1}}',
        pytest.param(b"[" * 100_000, id="brackets"),
        *(
            b'{"metadata": {"signature_def": {"signature_def": %s}}}' % specs
            for specs in (b"[1]", b'{"a": 5}', b'{"a": {}}')
        ),
        b'{"metadata": {"signature_def": {"signature_def": '
        b'{"a": {"inputs": {"x": {"dtype": 3}}, "outputs": null}}}}}',
    ],
)
def test_json_of_another_server_is_refused(body):
    with answering(200, body) as (url, _):
        client = rest_model.RestModel(url, "m")
        for ask in (client.signatures, lambda: client.predict(ECHO, [b"x"])):
            with pytest.raises(
                exceptions.Failed, match="answer as TF Serving does, got "
            ):
                ask()


def test_a_server_that_is_away_or_slow(server):
    with answering(200, b"") as (url, _):
        pass
    with pytest.raises(exceptions.Failed, match="is not there: .*refused"):
        rest_model.RestModel(url, "m").signatures()
    server.reset(delay=60)
    client = rest_model.RestModel(server.rest, "lengths", timeout=0.1)
    with pytest.raises(exceptions.Failed, match="within --timeout=0.1 sec"):
        client.predict(REPRESENT, [b"x"])
