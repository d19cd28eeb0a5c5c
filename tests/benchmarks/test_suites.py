"""Loss, step, search, serving: implementations agree, here and as processes."""

import argparse
import math
import pathlib
import re
import threading

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import knn, loss, serving, step, text
from supcon_tf import losses, models
from supcon_tf.keras_2 import keras
from tests.clock import Clock

PEER = """
import tensorflow as tf
from supcon_tf import losses

def contrastive_loss(features, labels, temperature):
    labels = tf.argmax(labels, axis=1)
    return losses.supcon_loss(features, labels, temperature=temperature)
"""


def measure_loss(name, folder):
    (folder / "official.py").write_text(PEER)
    job = argparse.Namespace(
        **{"implementation": name, "rows": 24, "views": 2, "dim": 8},
        **{"classes": 5, "temperature": 0.2, "seed": 3, "seconds": 0.0},
        **{"accuracy": True, "threads": 1, "positives_cap": None},
        **{"formulation": "out", "denominator": "all"},
        official_path=folder / "official.py",
        supcontrast_path=folder / "losses.py",
    )
    return loss.measure(job)


# He et al.'s 11,168,832 with this stem, and the head's 2048 and 128.
PARAMETERS = 11_168_832 + 513 * 2048 + 2048 * 128
STEP = {
    **{"implementation": "ours", "architecture": "resnet18", "chunks": 1},
    **{"batch_size": 4, "views": 3, "image_size": 8, "classes": 2, "steps": 1},
    **{"temperature": 0.1, "supcontrast_path": None, "seed": 1, "threads": 1},
}
SEARCH = {"bank": 90, "queries": 70, "dim": 6, "k": 5, "seed": 0, "threads": 1}


@pytest.mark.slow(but=["dense", "inf_cl", "jaccard", "official"])
@pytest.mark.parametrize(
    "name", ["looped", "dense", "inf_cl", "jaccard", "official", "supcontrast"]
)
def test_every_loss_is_the_same(name, local_process, supcontrast):
    if name == "supcontrast":
        pytest.importorskip("torch")
    ours, other = (measure_loss(of, supcontrast) for of in ("tiled", name))
    for key in loss.LossBench.AGREEING:
        assert other[key] == pytest.approx(ours[key], rel=1e-5)
    assert other["gradient_error"] < 1e-5 and other["seconds"] > 0


def test_the_floor_has_no_loss_but_all_products(local_process, tmp_path):
    assert measure_loss("floor", tmp_path).keys() == {"seconds", "peak_mb"}
    z = np.random.default_rng(0).standard_normal((30, 8), np.float32) / 3
    run = loss.floor_step(z)
    np.testing.assert_allclose(run()[1], np.exp(z @ z.T) @ z, rtol=1e-4)


# With one view and many classes some anchors have no positives.
@pytest.mark.parametrize(("views", "classes"), [(2, 4), (3, 2), (1, 30)])
def test_the_oracle_is_the_gradient_of_the_loss(views, classes):
    generator = np.random.default_rng(3)
    z = generator.standard_normal((24 // views, views, 8), np.float32)
    z = tf.constant(z / np.linalg.norm(z, axis=2, keepdims=True))
    labels = generator.integers(0, classes, len(z), np.int32)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = tf.reduce_mean(losses.supcon_loss(z, labels, temperature=0.2))
    oracle = loss.oracle_gradient(z.numpy(), labels, 0.2)
    np.testing.assert_allclose(tape.gradient(value, z), oracle, atol=1e-7)


def test_peers_are_measured_in_processes(run_benchmark):
    """As a user does; of peers that import no TensorFlow."""
    names = "sklearn_cosine", "sklearn_euclidean"
    output, written = run_benchmark(
        "knn",
        *(f"--implementations={','.join(names)}", "--rounds=1"),
        *("--bank=90", "--queries=70", "--dim=6", "--k=5", "--device=gpu"),
    )
    assert [point["job"]["implementation"] for point in written["points"]] == [
        *names
    ]
    for point in written["points"]:
        assert point["seconds"] > 0 and point["peak_mb"] >= 0
        assert point["libraries"].keys() == {"sklearn"}
    assert re.search(r"\| +bank 90 \| +sklearn_cosine \| +\d+\.\d+ \|", output)


def test_ours_is_measured_in_chunks():
    bench = step.StepBench(
        architectures=("resnet18",), batch_sizes=(16, 64), chunk_size=16
    )
    jobs = bench.jobs(["ours", "torch_nchw"])
    assert [(job["label"], job["chunks"], job["at_once"]) for job in jobs] == [
        *(("ours", 1, 16), ("torch_nchw", 1, 16)),
        *(("ours", 1, 64), ("ours, 16 at once", 4, 16)),
        ("torch_nchw", 1, 64),
    ]
    points = [
        {"job": jobs[0], "peak_mb": 2000.0},
        {"job": jobs[1], "error": "failed: gone"},
    ]
    # Memory grows with the images that pass the encoder at a time.
    expected = [bench.expected_gb(job, points) for job in jobs[2:]]
    assert expected == [8.0, 2.0, 0.0]
    deeper = jobs[2] | {"architecture": "resnet50"}
    assert bench.expected_gb(deeper, points) == 0.0


def test_a_loss_that_is_not_finite_is_an_error(monkeypatch, local_process):
    results = iter([9.0, 9.0, 0.5, 9.0, 9.0, math.nan])
    training_step = (lambda: next(results)), 42
    monkeypatch.setattr(step, "our_step", lambda *arguments: training_step)
    measured = step.measure(argparse.Namespace(**STEP))
    assert measured["loss"] == 0.5 and measured["views"] == 12
    with pytest.raises(RuntimeError, match="the loss is nan"):
        step.measure(argparse.Namespace(**STEP))


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50"])
def test_the_network_in_pytorch_is_ours(architecture):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    generator = np.random.default_rng(0)
    views = generator.integers(0, 256, (4, 2, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 0, 2], np.int32)
    encoder = models.Encoder(architecture, "cifar")
    ours = models.SupConModel(encoder, models.ProjectionHead())
    ours.build((None, *views.shape[1:]))
    theirs = step.make_network(architecture)
    weights = list(theirs.parameters())
    for variable, weight in zip(ours.trainable_variables, weights, strict=True):
        if "gamma" in variable.name:
            variable.assign(generator.uniform(0.5, 1.5, variable.shape))
        value = variable.numpy()
        value = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T
        assert value.shape == tuple(weight.shape), variable.name
        weight.data = torch.from_numpy(np.ascontiguousarray(value))
    z = ours(views, training=True)
    images = torch.from_numpy(views).flatten(0, 1).permute(0, 3, 1, 2)
    projections = theirs(2 * images.float() / 255 - 1).unflatten(0, (4, 2))
    np.testing.assert_allclose(projections.detach(), z, atol=1e-4)
    loss = step.plain_loss(projections, torch.from_numpy(labels), 0.1)
    expected = tf.reduce_mean(losses.supcon_loss(z, labels, temperature=0.1))
    assert loss.item() == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", step._TORCH)
def test_pytorch_trains(name, local_process):
    pytest.importorskip("torchvision")
    job = argparse.Namespace(**STEP | {"implementation": name})
    measured = step.measure(job)
    assert measured["parameters"] == PARAMETERS
    assert 0 <= measured["loss"] < 0.1 * math.log(11)


@pytest.mark.slow
def test_the_training_step_is_measured(measure):
    output, written = measure(
        "step",
        **{"architectures": ("resnet18",), "implementations": ("ours",)},
        **{"batch_sizes": (4,), "image_size": 8, "chunk_size": 2},
        **{"rounds": 1, "steps": 1},
    )
    whole, point = written["points"]
    assert whole["job"]["chunks"] == 1 and point["job"]["chunks"] == 2
    assert point["parameters"] == PARAMETERS and point["seconds"] > 0
    # Equal projections have tau * log 7 = 0.195; these have been trained.
    assert 0 <= point["loss"] < 0.195
    assert "batch_size 4 | ours, 2 at once | " in output


def test_the_check_sees_another_neighbour_and_another_number():
    bank, queries = knn.make_representations(argparse.Namespace(**SEARCH))
    search = knn.make_prepare("sklearn_cosine", 1)(bank)
    similarities, indices = search(queries, 5)
    assert knn.check(queries, bank, (similarities, indices)) == 1
    cosines = queries @ bank.T
    far_rows, far_cosines = indices.copy(), similarities.copy()
    far_rows[:, 0] = cosines.argmin(axis=1)
    far_cosines[:, 0] = cosines.min(axis=1)
    agreement = knn.check(queries, bank, (far_cosines, far_rows))
    assert agreement == pytest.approx(4 / 5)
    for wrong in (similarities + 0.5, np.full_like(similarities, np.nan)):
        with pytest.raises(RuntimeError, match="a similarity is off by"):
            knn.check(queries, bank, (wrong, indices))


@pytest.mark.slow
def test_the_search_is_measured(measure):
    _, written = measure("knn", bank=(90,), queries=70, dim=6, k=5, rounds=1)
    table = written["table"]
    assert [row[""] for row in table] == list(knn.KnnBench.NEEDS)
    assert all(float(row["time/ours"]) > 0 for row in table)
    assert {row["agreement"] for row in table} == {"1.00000"}


def test_a_gallery_is_measured(measure):
    _, written = measure("gallery", rows=(90,), queries=7, dim=6)
    exact, approximate = written["points"]
    for point in (exact, approximate):
        assert point["disk_mb"] > 90 * 6 * 4e-6
        for name in ("seconds", "write", "open", "queries", "add"):
            assert point[name] > 0
    assert "recall" not in exact and 0.9 < approximate["recall"] <= 1


@pytest.mark.slow
def test_a_small_model_from_files_to_the_table(monkeypatch, measure):
    def make_keras(**arguments):
        assert arguments == {"weights": None, "classes": 7}
        layers = [keras.layers.GlobalMaxPooling2D()]
        return keras.Sequential([keras.Input([32, 32, 3]), *layers])

    monkeypatch.setattr(keras.applications, "ResNet50", make_keras)
    monkeypatch.setattr(serving, "ARCHITECTURE", "vgg8")
    monkeypatch.setattr(serving, "IMAGE_SIZE", 32)
    monkeypatch.setattr(serving, "CLASSES", 7)
    _, written = measure(
        "serving",
        images=(2,),
        concurrency=(2,),
        rounds=1,
        seconds=0.05,
        gallery_rows=20,
    )
    for point in written["points"]:
        assert 0 < point["p50_ms"] <= point["p99_ms"] and point["cpu_ms"] > 0
    first, *_ = written["table"]
    assert first["case"] == "clients 2, images 2" and first["time/ours_images"]


def test_clients_send_at_the_same_time_and_wait_for_answers(monkeypatch):
    clock, requests = Clock(), []
    monkeypatch.setattr(serving, "time", clock)

    def pass_time():
        clock.now += 1 / 64

    together = threading.Barrier(2, pass_time, timeout=600)

    def predict(request):
        requests.append(request)
        together.wait()  # Passes two at a time.

    latencies, duration = serving.send(predict, [*range(8)], 2, 0.0)
    assert latencies == [1 / 64] * 6 and duration == 3 / 64
    # Each begins with another request.
    assert sorted(requests) == [0, 1, 1, 2, 2, 3]
    sent = serving.send(lambda request: pass_time(), [0], 1, 0.125)
    assert sent == ([1 / 64] * 8, 0.125)
    with pytest.raises(ZeroDivisionError):
        serving.send(lambda request: 1 / 0, [0], 1, 60.0)


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
    first, second, *_ = serving.make_requests(folder, "files", 2)
    assert [*first, *second] == [b"0", b"1", b"2", b"0"]
    views = serving.make_requests(folder, "views", 4)[0]
    assert views[:, 0, 0, 0].tolist() == [0, 51, 102, 0]
    normalised = serving.make_requests(folder, "normalised", 3)[0]
    np.testing.assert_allclose(normalised[:, 1, 1, 2], [-1, -0.6, -0.2], 1e-6)


def test_the_check_sees_another_answer(folder):
    def answer(request, scale=0.0):
        values = scale * np.asarray(request, float).reshape(8, -1)
        return {"probabilities": values}

    predicts = {"serving_default": answer, "predict_images": answer}
    serving.compare_inputs(predicts, folder)
    for scale in (1.0, np.nan):
        predicts["serving_default"] = lambda of, by=scale: answer(of, by)
        with pytest.raises(RuntimeError, match="a probability is off by"):
            serving.compare_inputs(predicts, folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours_supcon", "transformers"])
def test_a_step_on_texts_learns(name, local_process, monkeypatch):
    """Ours and theirs, of a network that takes no time."""
    small = {"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 30_000}
    sizes = {"intermediate_size": 24, "num_hidden_layers": 1}
    monkeypatch.setattr(text, "_CONFIG", text._CONFIG | small | sizes)
    monkeypatch.setattr(text, "_RATE", 1e-2)
    job = {"implementation": name, "batch_size": 4, "length": 8, "seed": 0}
    first, last = (
        text.measure(argparse.Namespace(**job, steps=steps, threads=1))
        for steps in (1, 9)
    )
    assert last["tokens"] == 32 and last["seconds"] > 0
    assert last["loss"] < first["loss"]
