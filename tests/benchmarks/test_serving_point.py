"""Requests, clients and the check, without a model."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from supcon_tf.benchmarks import input_images, serving_models, serving_point
from tests.clock import Clock


def test_clients_send_at_the_same_time_and_wait_for_answers(monkeypatch):
    clock, taken = Clock(), []
    monkeypatch.setattr(serving_point, "time", clock)

    def pass_time():
        clock.now += 1 / 64

    together = threading.Barrier(2, pass_time, timeout=600)

    def predict(request):
        taken.append(request)
        together.wait()  # Passes two at a time.

    latencies, duration = serving_point.send(predict, [*range(8)], 2, 0.0)
    assert latencies == [1 / 64] * 6 and duration == 3 / 64
    # Each begins with another request.
    assert sorted(taken) == [0, 1, 1, 2, 2, 3]
    latencies, duration = serving_point.send(
        lambda request: pass_time(), [0], 1, 0.125
    )
    assert latencies == [1 / 64] * 8 and duration == 0.125


def test_a_failing_request_ends_the_measurement():
    def predict(request):
        raise RuntimeError(f"no {request}")

    with pytest.raises(RuntimeError, match="no first"):
        serving_point.send(predict, ["first"], 1, 60.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files and their views of 2 pixels."""
    monkeypatch.setattr(serving_models, "IMAGE_SIZE", 2)
    links = input_images.link_directory(tmp_path)
    links.mkdir(parents=True)
    for number in range(5):  # Again and again, as `prepare` links them.
        (links / f"{number}.jpg").write_bytes(b"%d" % (number % 3))
    views = np.arange(3, dtype=np.uint8)[:, None, None, None] * 51
    views = np.broadcast_to(views, [3, 2, 2, 3])
    np.save(input_images.array_path(tmp_path, 2), views)
    return str(tmp_path)


def test_requests_are_of_all_images_in_turn(folder):
    requests = serving_point.make_requests(folder, "files", 2)
    assert [list(request) for request in requests[:3]] == [
        *([b"0", b"1"], [b"2", b"0"], [b"1", b"2"])
    ]
    views = serving_point.make_requests(folder, "views", 4)
    assert views[0].shape == (4, 2, 2, 3) and views[0].dtype == np.uint8
    assert views[0][:, 0, 0, 0].tolist() == [0, 51, 102, 0]
    normalised = serving_point.make_requests(folder, "normalised", 3)[0]
    assert normalised.dtype == np.float32
    np.testing.assert_allclose(normalised[:, 1, 1, 2], [-1, -0.6, -0.2], 1e-6)


def test_the_check_sees_another_answer(folder):
    def answer(scale):
        return lambda request: {
            "probabilities": scale * np.asarray(request, float).reshape(8, -1)
        }

    models = {"serving_default": answer(1.0), "predict_images": answer(0.0)}
    assert serving_point.compare_inputs(models, folder) == 2.0
    models["serving_default"] = answer(0.0)
    assert serving_point.compare_inputs(models, folder) == 0.0
