"""The model in this process."""

from __future__ import annotations

import pytest

from supcon_tf.clients import model, rest_model, saved_model


def test_the_answers_are_those_of_a_server(lengths, server):
    here = saved_model.SavedModel(lengths / "1")
    there = rest_model.RestModel(server.rest, "lengths")
    signatures = here.signatures()
    assert set(signatures) == set(there.signatures())
    for name in ("serving_default", "represent"):
        rows = here.predict(signatures[name], [b"abc", b"\xff" * 61])
        assert rows == there.predict(signatures[name], [b"abc", b"\xff" * 61])


def test_refused_files_are_those_of_a_server(lengths, server):
    here = saved_model.SavedModel(lengths / "1")
    there = rest_model.RestModel(server.rest, "lengths")
    represent = here.signatures()["represent"]
    reasons = []
    for asked in (here, there):
        with pytest.raises(model.Refused, match="^assertion failed") as caught:
            asked.predict(represent, [b"a", b""])
        reasons.append(str(caught.value))
    assert reasons[0] == reasons[1]
