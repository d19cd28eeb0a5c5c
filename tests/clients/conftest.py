"""A small model and its servers, shared by the tests of this folder."""

from __future__ import annotations

import pytest

from tests import model_server
from tests.clients import exports


@pytest.fixture(scope="session")
def lengths(tmp_path_factory):
    """Directory of versions of a model that counts bytes."""
    return exports.write_lengths(tmp_path_factory.mktemp("lengths"))


@pytest.fixture(scope="session")
def loaded_server(lengths):
    with model_server.ModelServer(lengths, "lengths") as server:
        yield server


@pytest.fixture
def server(loaded_server):
    """A server without delays, which has answered nothing so far."""
    loaded_server.reset()
    yield loaded_server
    loaded_server.reset()
