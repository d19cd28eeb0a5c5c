"""What the graph of an export answers, in a session as TF Serving runs it.

And exports on disk: there whole or not at all, and what is refused. Their
signatures are in tests/test_serving_guide.py.
"""

from __future__ import annotations

import concurrent.futures
import io
import pathlib
import resource
import uuid

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.core.protobuf import saved_model_pb2

from supcon_tf import data, measures, models, serving
from supcon_tf.augment import geometry
from supcon_tf.keras_2 import keras
from supcon_tf.serving import requests
from tests import model_server, small_export

NAMES, SIZE = small_export.NAMES, small_export.SIZE
PICTURES = np.random.default_rng(0).integers(0, 256, (4, 20, 29, 3), np.uint8)


def encoded(image, kind="PNG", **options):
    """The bytes of an image file, from an array or an image."""
    file = io.BytesIO()
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    image.save(file, kind, **options)
    return file.getvalue()


FILES = [
    encoded(PICTURES[0], "JPEG"),
    encoded(PICTURES[1]),
    encoded(PICTURES[2][:SIZE, :SIZE]),
    encoded(PICTURES[3][..., 0], "JPEG"),
]
LARGE = encoded(np.zeros([2001, 1000], np.uint8))  # a row too many


def encode(views):
    return small_export.encoder_and_classifier()[0](views).numpy()


def classify(views):
    _, classifier = small_export.encoder_and_classifier()
    return tf.nn.softmax(classifier(encode(views))).numpy()


class Session(model_server.Session):
    """Asked for a signature by its only input."""

    def __call__(self, name, images):
        ((key, info),) = self.signatures[name].inputs.items()
        if info.dtype == tf.string:
            images = np.array(images, object)
        return self.run(name, {key: images})


@pytest.fixture(scope="module")
def ask(small_run):
    return Session(small_run / "export" / "1")


@pytest.fixture(scope="module")
def views():
    """What evaluation makes of the files: [4, size, size, 3]."""
    return tf.stack(
        [geometry.central_view(data.decode_image(f), SIZE) for f in FILES]
    )


def test_files_are_answered_as_evaluation_would(ask, views):
    answer = ask("serving_default", FILES)
    expected = classify(views)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)
    order = np.argsort(-expected, axis=1)
    names = np.array([name.encode() for name in NAMES], object)
    np.testing.assert_array_equal(answer["class_names"], [names] * len(FILES))
    np.testing.assert_array_equal(answer["predicted_class"], names[order[:, 0]])
    np.testing.assert_array_equal(answer["top_classes"], names[order[:, :2]])
    np.testing.assert_allclose(
        answer["top_probabilities"],
        np.take_along_axis(expected, order[:, :2], axis=1),
        atol=1e-6,
    )


def test_files_of_every_mode_are_answered_as_evaluation_would(ask):
    """tests/data/test_images.py compares the decoded pixels."""
    color = Image.fromarray(PICTURES[0])
    modes = ("1", "L", "LA", "P", "RGB", "RGBA", "I")  # I: 16 bits
    files = [encoded(color.convert(mode)) for mode in modes] + [
        encoded(color.convert("CMYK"), "JPEG"),
        encoded(color, "JPEG", progressive=True),
        encoded(color.resize((1, 1))),
        encoded(color.resize((700, 1)), "JPEG"),
    ]
    views = tf.stack([data.decode_central_view(file, SIZE) for file in files])
    answer = ask("serving_default", files)["probabilities"]
    np.testing.assert_allclose(answer, classify(views), atol=1e-6)


def test_arrays_are_answered_as_the_files_that_hold_them(ask):
    for rows in (PICTURES, PICTURES[:, :SIZE, :SIZE]):
        files = [encoded(image) for image in rows]
        expected = ask("serving_default", files)
        noisy = rows + np.random.default_rng(1).uniform(-0.4, 0.4, rows.shape)
        for name, images in (
            ("predict_images", rows),
            ("predict_images_float", np.clip(noisy, 0, 255)),
        ):
            answer = ask(name, images)
            assert set(answer) == set(expected)
            np.testing.assert_allclose(
                answer["probabilities"], expected["probabilities"], atol=1e-6
            )
        represented = ask("represent", files)["representation"]
        for name in ("represent_images", "represent_images_float"):
            np.testing.assert_allclose(
                ask(name, rows)["representation"], represented, atol=1e-6
            )


def test_representations_are_of_unit_length(ask, views):
    pooled = encode(views)
    lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
    assert abs(lengths - 1).min() > 0.01  # The encoder does not do it.
    answer = ask("represent", FILES)["representation"]
    np.testing.assert_allclose(answer, pooled / lengths, atol=1e-6)


def test_similarities_to_prototypes_are_those_of_evaluation(ask, views):
    bank = small_export.prototypes()[[0, 2]]  # an image for each
    expected = measures.prototype_predict(
        encode(views), bank, [0, 2], num_classes=3
    )
    answer = ask("classify_by_neighbours", FILES)
    np.testing.assert_allclose(answer["similarities"], expected, atol=1e-6)
    assert (answer["similarities"][:, 1] == -1).all()  # no image, no prototype
    names = np.array([name.encode() for name in NAMES], object)
    np.testing.assert_array_equal(
        answer["predicted_class"], names[expected.argmax(axis=1)]
    )
    assert answer["top_similarities"].shape == (len(FILES), 2)


@pytest.mark.parametrize(
    ("name", "images", "message"),
    [
        ("serving_default", [], "image_bytes must not be empty, got 0"),
        ("classify_by_neighbours", [], "image_bytes must not be empty, got 0"),
        ("predict_images", np.zeros([0, 4, 4, 3]), "images must not be empty"),
        ("predict_images", np.zeros([1, 0, 4, 3]), "have pixels, got 0 x 4"),
        ("predict_images_float", np.full([1, 4, 4, 3], 0.5), "at most 0.5"),
        ("represent_images_float", np.full([1, 4, 4, 3], -1.0), "got -1.0+ to"),
        ("predict_images_float", np.full([1, 4, 4, 3], np.nan), "0..255, got"),
        ("serving_default", [FILES[0], b"no image"], "must be JPEG or PNG"),
        ("represent", [encoded(PICTURES[0], "GIF")], "JPEG or PNG, .*GIF does"),
        ("serving_default", [FILES[0][:-40]], "JPEG"),
        ("serving_default", [LARGE], "1 to 2000000 pixels, got 2001 x 1000"),
    ],
)
def test_a_bad_request_is_refused_and_the_next_is_answered(
    ask, name, images, message
):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(name, images)
    assert len(ask("serving_default", FILES)["probabilities"]) == len(FILES)


def test_black_and_white_floats_are_images(ask):
    images = np.random.default_rng(0).integers(0, 2, (2, SIZE, SIZE, 3))
    answer = ask("predict_images_float", images.astype(np.float32))
    expected = ask("predict_images", images.astype(np.uint8))
    np.testing.assert_array_equal(
        answer["predicted_class"], expected["predicted_class"]
    )


def test_the_graph_has_no_operations_but_those_of_tensorflow(small_run):
    file = small_run / "export" / "1" / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    (graph,) = model.meta_graphs
    parts = {part.name: value for part, value in graph.graph_def.ListFields()}
    functions = parts["library"].function
    names = {function.signature.name for function in functions}
    operations = {node.op for node in parts["node"]} | {
        node.op for function in functions for node in function.node_def
    }
    assert {"DecodeJpeg", "DecodePng"} <= operations
    assert not {"DecodeGif", "DecodeBmp", "DecodeImage"} & operations
    assert not [op for op in operations - names if "Py" in op or ">" in op]
    kinds = {node.WhichOneof("kind") for node in graph.object_graph_def.nodes}
    assert "variable" in kinds
    users = [
        object_node.user_object.identifier
        for object_node in graph.object_graph_def.nodes
    ]
    assert not [user for user in users if "keras" in user], users


def test_requests_are_batched_after_they_are_decoded(ask, tmp_path):
    encoder, classifier = small_export.encoder_and_classifier()
    options = {"class_names": ("crane", "dog", "crane"), "image_size": SIZE}
    options |= {"max_batch_size": 3, "batch_timeout": 0.1}
    directory = tmp_path / "1"
    serving.export_saved_model(
        encoder, directory, classifier=classifier, **options
    )
    lines = (directory / "assets" / "class_names.txt").read_text().splitlines()
    assert lines == ["crane [0]", "dog", "crane [2]"]
    batched = Session(directory)
    outputs = batched.signatures["serving_default"].outputs
    for name, info in outputs.items():
        shape = [-1] if name == "predicted_class" else [-1, 3]
        assert [dim.size for dim in info.tensor_shape.dim] == shape, name
    expected = ask("serving_default", FILES)["probabilities"]

    def answer(index):
        if index % 5 == 4:  # is refused alone
            with pytest.raises(tf.errors.InvalidArgumentError, match="JPEG"):
                batched("serving_default", [FILES[0], b"no image"])
            return expected[index % 4]
        request = [FILES[index % 4]]
        return batched("serving_default", request)["probabilities"][0]

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        rows = [*pool.map(answer, range(40))]
    np.testing.assert_allclose(rows, np.tile(expected, [10, 1]), atol=1e-5)
    # More than the 64 batches of small requests that may wait.
    probabilities = batched("serving_default", FILES * 60)["probabilities"]
    np.testing.assert_allclose(
        probabilities, np.tile(expected, [60, 1]), atol=1e-5
    )


def test_bad_requests_keep_no_memory(ask):
    expected = ask("serving_default", FILES)["probabilities"]
    broken = [b"", b"no image", FILES[0][:-40], FILES[1][:60], LARGE]
    memory = []
    for index in range(400):
        if index % 10 == 7:
            with pytest.raises(tf.errors.InvalidArgumentError):
                ask("serving_default", [FILES[0], broken[index // 10 % 5]])
            continue
        row = index % len(FILES)
        answer = ask("serving_default", [FILES[row]])["probabilities"]
        np.testing.assert_allclose(answer[0], expected[row], atol=1e-5)
        if index % 100 == 99:
            pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
            memory.append(int(pages) * resource.getpagesize())
    assert memory[-1] - memory[1] < 10e6, memory


def export(directory, **options):
    encoder, _ = small_export.encoder_and_classifier()
    serving.export_saved_model(encoder, directory, image_size=16, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"class_names": ("a",)}, "`class_names` must be 0 names, got 1"),
        ({"max_pixels": 971}, "`max_pixels` must be at least 972"),
        *(
            ({"class_names": names, "classifier": True}, message)
            for names, message in (
                (("a", "b"), "`class_names` must be 3 names, got 2"),
                (("a", "b", "c\nd"), r"a line of text each, got 'c\\nd'"),
                (("a", "b", ""), "a line of text each, got ''"),
                (("a", "b", "\udcff"), r"a line of text each, got '\\udcff'"),
                (("a", "b", 3), "a line of text each, got 3"),
                ("abc", "a sequence of names, got 'abc'"),
                ({"a", "b", "c"}, "a sequence of names, got {'"),  # no order
            )
        ),
        ({"top_k": 0}, "`top_k` must be positive, got 0"),
        ({"threshold": 50}, "`threshold` must be None, or above 0 and below 1"),
        ({"max_batch_size": 1.5}, "`max_batch_size` must be an integer, 0 or"),
        ({"max_batch_size": -1}, "`max_batch_size` must be an integer, 0 or"),
        ({"batch_timeout": -1}, "`batch_timeout` must be 0 or more, got -1"),
        ({"prototypes": np.eye(3)}, r"`prototypes` must be \[classes, 26\], g"),
        ({"prototypes": 5 * np.eye(3, 26)}, "length 1, .* a row of length 5"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, options, message):
    if "classifier" in options:
        _, classifier = small_export.encoder_and_classifier()
        options = options | {"classifier": classifier}
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "1", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_a_classifier_of_probabilities_is_refused(tmp_path, activation):
    dense = keras.layers.Dense(3, activation)
    dense.build((None, 26))
    for classifier in (dense, keras.Sequential([dense])):
        with pytest.raises(ValueError, match="logits, got probabilities: leav"):
            export(
                tmp_path / "1", classifier=classifier, class_names=tuple("abc")
            )


def test_a_function_that_holds_variables_is_no_classifier(tmp_path):
    kernel = tf.Variable(np.eye(26, 3), dtype=tf.float32, name="mine")
    with pytest.raises(ValueError, match="as attributes, got .* reads mine:0"):
        export(
            tmp_path / "1",
            classifier=lambda inputs: inputs @ kernel,
            class_names=tuple("abc"),
        )


def test_a_classifier_of_zeros_is_one_of_logits():
    dense = keras.layers.Dense(3, kernel_initializer="zeros")
    dense.build((None, 26))
    models.layers.check_logits(dense, 26)


def test_a_directory_that_exists_is_refused(tmp_path, monkeypatch):
    def write_requests(*_):  # meanwhile, another export ends
        (tmp_path / "7" / "theirs").mkdir(parents=True)

    monkeypatch.setattr(requests, "write_requests", write_requests)
    with pytest.raises(ValueError, match="7 must not exist, but does by now"):
        export(tmp_path / "7")
    with pytest.raises(ValueError, match="`directory` must not exist, got"):
        export(tmp_path / "7")
    assert [path.name for path in tmp_path.iterdir()] == ["7"]
    assert [path.name for path in (tmp_path / "7").iterdir()] == ["theirs"]


def test_an_interrupted_export_is_not_seen_by_the_server(tmp_path, monkeypatch):
    def save(module, path, **arguments):
        (pathlib.Path(path) / "saved_model.pb").touch()
        assert not path.rpartition("/")[2].isdecimal()  # a version
        raise OSError("disk full")

    # What an export leaves that was killed.
    (tmp_path / f".7.{uuid.uuid4()}.partial").mkdir()
    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(OSError, match="disk full"):
        export(tmp_path / "7")
    assert not list(tmp_path.iterdir())
