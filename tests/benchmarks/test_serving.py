"""Requests to SavedModels: of a small one, and what is sent and compared."""

from __future__ import annotations

import argparse
import pathlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import harness, results, serving
from benchmarks import input as inputs
from tests.clock import Clock


def test_a_small_model_from_files_to_the_table(tmp_path, monkeypatch, here):
    programs = {
        "input.make_arrays": inputs.make_arrays,
        "serving.make_models": serving.make_models,
        "serving.measure": serving.measure,
    }
    monkeypatch.setattr(
        harness,
        "run",
        lambda name, job: programs[name](argparse.Namespace(**job)),
    )

    def make_keras(**arguments):
        assert arguments == {"weights": None, "classes": 7}
        layers = [tf.keras.layers.GlobalMaxPooling2D()]
        return tf.keras.Sequential([tf.keras.Input([32, 32, 3]), *layers])

    monkeypatch.setattr(tf.keras.applications, "ResNet50", make_keras)
    for name, value in (
        ("ARCHITECTURE", "vgg8"),
        ("IMAGE_SIZE", 32),
        ("CLASSES", 7),
    ):
        monkeypatch.setattr(serving, name, value)
    bench = serving.ServingBench(
        str(tmp_path), images=(2,), concurrency=(2,), rounds=1, seconds=0.05
    )
    written = harness.measure_all(bench)
    for point in written["points"]:
        assert 0 < point["p50_ms"] <= point["p99_ms"] and point["cpu_ms"] > 0
    assert [row["case"] for row in written["table"]] == [
        "clients 2, images 2"
    ] * 3
    assert float(written["table"][0]["time/ours_images"]) > 0
    assert len(results.describe(bench, written).splitlines()) == 2 + 3


def test_what_cannot_be_prepared_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "run", lambda *_: {"error": "failed: gone"})
    bench = serving.ServingBench(str(tmp_path / "run"))
    with pytest.raises(RuntimeError, match="input.make_arrays failed: gone"):
        harness.measure_all(bench)
    assert not any(tmp_path.iterdir())


def test_clients_send_at_the_same_time_and_wait_for_answers(monkeypatch):
    clock, taken = Clock(), []
    monkeypatch.setattr(serving, "time", clock)

    def pass_time():
        clock.now += 1 / 64

    together = threading.Barrier(2, pass_time, timeout=600)

    def predict(request):
        taken.append(request)
        together.wait()  # Passes two at a time.

    latencies, duration = serving.send(predict, [*range(8)], 2, 0.0)
    assert latencies == [1 / 64] * 6 and duration == 3 / 64
    # Each begins with another request.
    assert sorted(taken) == [0, 1, 1, 2, 2, 3]
    latencies, duration = serving.send(
        lambda request: pass_time(), [0], 1, 0.125
    )
    assert latencies == [1 / 64] * 8 and duration == 0.125


def test_a_failing_request_ends_the_measurement():
    def predict(request):
        raise RuntimeError(f"no {request}")

    with pytest.raises(RuntimeError, match="no first"):
        serving.send(predict, ["first"], 1, 60.0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files and their views of 2 pixels."""
    monkeypatch.setattr(serving, "IMAGE_SIZE", 2)
    links = pathlib.Path(tmp_path, "train", "photographs")
    links.mkdir(parents=True)
    for number in range(5):  # Again and again, as `prepare` links them.
        (links / f"{number}.jpg").write_bytes(b"%d" % (number % 3))
    views = np.arange(3, dtype=np.uint8)[:, None, None, None] * 51
    np.save(tmp_path / "2.npy", np.broadcast_to(views, [3, 2, 2, 3]))
    return str(tmp_path)


def test_requests_are_of_all_images_in_turn(folder):
    requests = serving.make_requests(folder, "files", 2)
    assert [list(request) for request in requests[:3]] == [
        *([b"0", b"1"], [b"2", b"0"], [b"1", b"2"])
    ]
    views = serving.make_requests(folder, "views", 4)
    assert views[0].shape == (4, 2, 2, 3) and views[0].dtype == np.uint8
    assert views[0][:, 0, 0, 0].tolist() == [0, 51, 102, 0]
    normalised = serving.make_requests(folder, "normalised", 3)[0]
    assert normalised.dtype == np.float32
    np.testing.assert_allclose(normalised[:, 1, 1, 2], [-1, -0.6, -0.2], 1e-6)


def test_the_check_sees_another_answer(folder):
    def answer(scale):
        return lambda request: {
            "probabilities": scale * np.asarray(request, float).reshape(8, -1)
        }

    predicts = {"serving_default": answer(0.0), "predict_images": answer(0.0)}
    serving.compare_inputs(predicts, folder)
    for scale in (1.0, np.nan):
        predicts["serving_default"] = answer(scale)
        with pytest.raises(RuntimeError, match="a probability is off by"):
            serving.compare_inputs(predicts, folder)
