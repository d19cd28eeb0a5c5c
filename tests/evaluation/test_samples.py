"""The images that a report shows, their neighbours and their views."""

import dataclasses

import numpy as np
import pytest

from supcon_tf import augment, config, data, measures, run_files, training
from supcon_tf.data import subsets
from supcon_tf.evaluation import samples, splits
from supcon_tf.training import input_pipeline, runs

SIDE = 8
CLASSES = ("cat", "dog", "owl")


def encoded(count, split, seed, classes=3, side=SIDE):
    """Noise images with random representations; labels 0, 1, 2, 0, ..."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int32) % classes
    images = rng.integers(0, 256, [count, side, side, 3], np.uint8)
    points = rng.normal(size=[count, 4]).astype(np.float32)
    source = data.from_arrays(images, labels, CLASSES[:classes], split=split)
    return splits.EncodedSplit(source, points, labels, side), images


def predicting(test, predicted):
    """The split with a classifier that is sure of these classes."""
    probabilities = np.eye(len(CLASSES), dtype=np.float32)[predicted]
    predictions = measures.Predictions.of(probabilities, test.labels)
    return dataclasses.replace(test, predictions=predictions)


@pytest.fixture(scope="module")
def splits_and_images():
    return encoded(30, "test", 0), encoded(50, "train", 1)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes and reads both files, with views by settings of stage 1 alone."""

    def write(test, bank, options=None, count=8, plotted=2000, plane="pca"):
        if options is None:
            monkeypatch.setattr(samples, "_views", lambda *_: {})
        pretrained = config.PretrainSettings(
            "x",
            **{"image_size": SIDE, "augmentation": "identity"}
            | (options or {}),
        )
        run = runs.Run(training.RunDirectory(tmp_path), pretrained, "", {})
        samples.write_samples(run, run.files, test, bank, count)
        positions = subsets.evenly(len(test.labels), plotted)
        samples.write_representations(run.files, test, positions, plane)
        return [
            run_files.read_arrays(file)
            for file in (run.files.samples_file, run.files.representations_file)
        ]

    return write


def test_samples_are_images_and_their_neighbors(written, splits_and_images):
    (test, test_images), (bank, bank_images) = splits_and_images
    predicted = test.labels.copy()
    predicted[[3, 4, 16, 25]] = (predicted[[3, 4, 16, 25]] + 1) % 3
    npz, _ = written(predicting(test, predicted), bank, count=6)
    # Wrong 3 (class 0), 4, 16 and 25 (class 1); right, the class missing first.
    positions = [3, 4, 16, 2, 0, 5]
    np.testing.assert_array_equal(npz["images"], test_images[positions])
    np.testing.assert_array_equal(npz["labels"], test.labels[positions])
    np.testing.assert_array_equal(npz["predicted"], predicted[positions])
    queries, rows = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (test.representations[positions], bank.representations)
    )
    cosines = queries @ rows.T
    nearest = np.argsort(-cosines, axis=1)[:, :8]
    np.testing.assert_array_equal(npz["neighbors"], bank_images[nearest])
    np.testing.assert_array_equal(npz["neighbor_labels"], bank.labels[nearest])
    np.testing.assert_allclose(
        npz["neighbor_similarities"],
        np.take_along_axis(cosines, nearest, axis=1),
        atol=1e-6,
    )
    assert npz.pop("neighbor_similarities").dtype == np.float32
    images = {"images", "neighbors", "mistakes"}
    kinds = {name: array.dtype for name, array in npz.items()}
    assert kinds == {k: np.uint8 if k in images else np.int32 for k in kinds}
    assert images < set(kinds) and len(kinds) == 7


def test_the_surest_mistakes_are_stored(written, splits_and_images):
    (test, test_images), (bank, _) = splits_and_images
    confidence = np.linspace(0.5, 0.9, 30, dtype=np.float32)
    confidence[12] = 0.95
    predicted = test.labels.copy()
    predicted[2:24:2] += 1
    predicted %= 3
    probabilities = np.repeat((1 - confidence[:, None]) / 2, 3, axis=1)
    probabilities[np.arange(30), predicted] = confidence
    predictions = measures.Predictions.of(probabilities, test.labels)
    wrong = dataclasses.replace(test, predictions=predictions)
    npz, _ = written(wrong, bank)
    positions = [12, 22, 20, 18, 16, 14, 10, 8, 6, 4]  # of eleven
    assert npz["mistake_positions"].tolist() == positions
    np.testing.assert_array_equal(npz["mistakes"], test_images[positions])
    for unmistaken in (test, predicting(test, test.labels)):
        npz, _ = written(unmistaken, bank)
        assert "mistakes" not in npz


@pytest.mark.parametrize(
    ("wrong", "count", "expected"),
    [
        ([], 4, [0, 1, 2, 3]),
        ([6], 4, [6, 1, 2, 0]),  # class 0 is shown already
        ([6, 7, 8], 4, [6, 7, 2, 0]),  # the class missing first
        ([*range(9)], 4, [0, 1, 2, 3]),  # none is right
        ([*range(8)], 4, [0, 1, 2, 8]),  # one is right
        ([1, 2], 99, [1, 2, 0, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_half_of_the_samples_are_wrong_where_there_are(wrong, count, expected):
    labels = np.arange(9) % 3
    predicted = labels.copy()
    predicted[wrong] = (labels[wrong] + 1) % 3
    positions = samples._sample_positions(labels, predicted, count)
    assert positions.tolist() == expected


def test_samples_of_many_classes_are_spread_over_them():
    labels = np.repeat(np.arange(100), 5)
    for predicted in (labels, np.full_like(labels, -1)):
        positions = samples._sample_positions(labels, predicted, 4)
        assert positions.tolist() == [0, 125, 250, 375]  # the first of each


def inverted(images, seeds):
    return 255 - images


def test_views_equal_the_first_of_stage_1(
    written, splits_and_images, monkeypatch
):
    """Neither a data service nor mixing nor the size of the batch matter."""
    # SimAugment takes seconds to trace.
    monkeypatch.setattr(augment, "SimAugment", lambda **_: inverted)
    (test, _), (bank, bank_images) = splits_and_images
    options = dict(
        augmentation="simaugment",
        objective="ce",
        mixing="cutmix",
        data_service="grpc://localhost:1",
        batch_size=32,
        num_views=2,
        seed=3,
        crop_area=(0.3, 1.0),
    )
    npz, _ = written(test, bank, options)
    plain = {**options, "data_service": None, "mixing": "none"}
    views, labels = next(
        input_pipeline.views(
            config.PretrainSettings("x", **plain), bank.source, SIDE, 2
        ).as_numpy_iterator()
    )
    assert npz["views"].shape == (4, 6, SIDE, SIDE, 3)
    assert set(npz["view_labels"]) == {0, 1, 2}
    rows = [
        next(i for i, view in enumerate(views) if (view == example[:2]).all())
        for example in npz["views"]
    ]
    assert rows == sorted(set(rows)) and max(rows) < 16
    np.testing.assert_array_equal(npz["view_labels"], labels[rows])
    assert (npz["views"][:, 2] != npz["views"][:, 0]).any((1, 2, 3)).all()
    assert (npz["predicted"] == -1).all()


def test_large_images_are_reduced_by_area(written):
    (test, images), (bank, _) = (
        encoded(3, split, 0, side=192) for split in ("test", "train")
    )
    uncropped = {"crop_area": (), "horizontal_flip": False}
    npz, _ = written(test, bank, {"image_size": 192, **uncropped})
    means = images.reshape(3, 96, 2, 96, 2, 3).mean(axis=(2, 4))
    np.testing.assert_allclose(npz["images"], means, atol=0.51)
    assert npz["neighbors"].shape == (3, 3, 96, 96, 3)  # all of the bank
    assert npz["views"].shape == (3, 6, 96, 96, 3)  # likewise
    np.testing.assert_array_equal(npz["neighbors"][:, 0], npz["images"])


def test_pixels_beyond_black_and_white_are_shown_as_these():
    images = np.float32([-3, 300]).reshape(1, 1, 2, 1).repeat(2, axis=1)
    reduced = splits.reduced(images, 2)
    assert reduced[0, 0].tolist() == [[0, 0, 0], [255, 255, 255]]


def test_representations_are_evenly_from_the_test_images(
    written, splits_and_images
):
    (test, _), (bank, _) = splits_and_images
    names = tuple(f"test/{i}.png" for i in range(30))
    source = dataclasses.replace(test.source, ids=names)
    test = dataclasses.replace(test, source=source)
    _, npz = written(test, bank, plotted=12, plane="tsne")
    positions = np.arange(12) * 30 // 12
    expected = test.representations[positions]
    np.testing.assert_array_equal(npz["representations"], expected)
    np.testing.assert_array_equal(npz["labels"], test.labels[positions])
    assert npz["ids"].tolist() == [names[i] for i in positions]
    assert npz["class_names"].tolist() == list(CLASSES)
    assert npz["plane_method"] == "tsne" and npz["plane"].dtype == np.float32
    assert npz["plane"].shape == (12, 2) and np.ptp(npz["plane"], 0).min() > 0


def test_every_image_is_plotted_where_they_are_few(written, splits_and_images):
    (test, _), (bank, _) = splits_and_images
    first, second = written(test, bank), written(test, bank)
    for before, after in zip(first, second, strict=True):
        for name, array in before.items():
            np.testing.assert_array_equal(array, after[name])
    assert first[1]["ids"].tolist() == [str(i) for i in range(30)]
    # The two directions of largest variance, so that lengths are known.
    centered = test.representations - test.representations.mean(0)
    variances = np.linalg.svd(centered, compute_uv=False)[:2] ** 2
    spread = np.ptp(test.representations, axis=0).max()
    np.testing.assert_allclose(
        (first[1]["plane"] ** 2).sum(0), variances / spread**2, rtol=1e-4
    )


@pytest.mark.parametrize("count", [2, 6])
def test_a_collapsed_encoder_and_few_images_have_files_too(written, count):
    (test, _), (bank, _) = encoded(count, "test", 0), encoded(3, "train", 1)
    if count > 2:
        same = np.ones_like(test.representations)
        test = dataclasses.replace(test, representations=same)
    npz, points = written(test, bank, plane="tsne")
    assert len(npz["images"]) == count
    np.testing.assert_array_equal(points["plane"], np.zeros([count, 2]))
