"""Classifiers on corrupted test images: which images, which numbers."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds

from supcon_tf import config, data, measures
from supcon_tf.evaluation import (
    corrupted_sources,
    corruptions,
    reference_errors,
    robustness,
)

_MODULE = "tiny_sets"  # see tests/data/test_tfds_source.py
NAMES = ("gaussian_noise", "contrast")
CLASSES = ("dark", "mid", "bright")


def small_images(count=12, side=32):
    """Three gray levels with noise, and what class each is of."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    levels = np.array([60, 120, 180])[labels, None, None, None]
    images = rng.normal(levels, 20, [count, side, side, 3])
    return np.clip(images, 0, 255).astype(np.uint8), labels


@pytest.fixture(scope="module")
def test_split():
    return data.from_arrays(*small_images(), CLASSES, "small", "test")


@pytest.fixture(scope="module")
def pretrained():
    return config.PretrainSettings("unused", image_size=32)


def chosen_settings(**changed):
    return config.EvaluateSettings(
        "unused",
        **{
            "corruptions": "generated",
            "corruption_names": NAMES,
            "corruption_severities": (1, 5),
            **changed,
        },
    )


def read(source):
    batches = data.make_examples(source, 5, image_size=32).as_numpy_iterator()
    images, labels = zip(*batches, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def classify(source):
    """By the darker pixels, which noise lowers and less contrast raises."""
    images, labels = read(source)
    level = np.percentile(images, 10, axis=(1, 2, 3))
    near = np.exp(-np.abs(level[:, None] - [34, 74, 154]) / 20)
    sharp = np.eye(3)[labels] * 0.7 + 0.1
    linear = near / near.sum(axis=1, keepdims=True)
    return {"linear": linear, "pretrained": sharp}, labels


@pytest.fixture(scope="module")
def seen():
    """The images that were classified, in the order of the calls."""
    return []


@pytest.fixture(scope="module")
def results(test_split, pretrained, seen):
    def watched(source):
        assert (source.name, source.class_names) == ("small", CLASSES)
        seen.append(read(source))
        return classify(source)

    return robustness.evaluate_corruptions(
        chosen_settings(), pretrained, test_split, watched
    )


def test_the_clean_images_and_every_condition_are_classified(results, seen):
    images, labels = small_images()
    np.testing.assert_array_equal(seen[0][0], images)
    conditions = [(name, s) for name in NAMES for s in (1, 5)]
    assert len(seen) == 1 + len(conditions)
    for (name, severity), found in zip(conditions, seen[1:], strict=True):
        expected = corruptions.corrupt(images, name, severity, 0)
        np.testing.assert_array_equal(found[0], expected)
        np.testing.assert_array_equal(found[1], labels)


def test_results_are_the_measures_of_each_condition(results, seen, test_split):
    assert json.loads(json.dumps(results)) == results
    assert {k: v for k, v in results.items() if not isinstance(v, dict)} == {
        "source": "generated",
        "images": 12,
        "severities": [1, 5],
        "seed": 0,
        "reference": None,
    }
    images, labels = seen[4]  # contrast 5
    source = data.from_arrays(images, labels, CLASSES)
    probabilities = classify(source)[0]["linear"]
    assert results["linear"]["results"]["contrast"]["5"] == {
        "top_1": measures.top_k_accuracy(probabilities, labels, 1),
        "ece": measures.expected_calibration_error(probabilities, labels, 15),
    }
    assert set(results["linear"]["results"]) == set(NAMES)
    assert results["pretrained"]["clean"] == {
        "top_1": 1,
        "ece": pytest.approx(0.2),
    }


def test_means(results):
    linear = results["linear"]
    table = {
        (name, s): cell
        for name, row in linear["results"].items()
        for s, cell in row.items()
    }
    assert len({cell["top_1"] for cell in table.values()}) > 1
    for severity in ("1", "5"):
        for key in ("top_1", "ece"):
            mean = np.mean([table[name, severity][key] for name in NAMES])
            assert linear["by_severity"][severity][key] == pytest.approx(mean)
    errors = [1 - cell["top_1"] for cell in table.values()]
    plain = linear["mean_corruption_error_unnormalized"]
    assert plain == pytest.approx(np.mean(errors))
    calibration = np.mean([cell["ece"] for cell in table.values()])
    assert linear["mean_ece"] == pytest.approx(calibration)
    assert "mce" not in linear and "relative_mce" not in linear


def test_progress_is_a_line_per_corruption(test_split, pretrained, capfd):
    chosen = chosen_settings(corruption_severities=(3,))
    robustness.evaluate_corruptions(chosen, pretrained, test_split, classify)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert lines[0].endswith(", pretrained 1.0000")


def test_drawn_images_are_the_same_for_all_and_in_chunks(
    test_split, pretrained, results, seen, monkeypatch
):
    drawn = []

    def watched(source):
        drawn.append(read(source))
        return classify(source)

    chosen = chosen_settings(corruption_images=5)
    found = robustness.evaluate_corruptions(
        chosen, pretrained, test_split, watched
    )
    assert found["images"] == 5 and len(drawn) == 5
    everything = small_images()[0]
    at = [np.flatnonzero((everything == i).all((1, 2, 3))) for i in drawn[0][0]]
    at = np.concatenate(at)
    assert len(set(at)) == 5 and (np.diff(at) > 0).all()
    for subset, whole in zip(drawn, seen, strict=True):
        np.testing.assert_array_equal(subset[0], whole[0][at])
        np.testing.assert_array_equal(subset[1], whole[1][at])
    # Too many to hold: two chunks of a batch each, read every time.
    monkeypatch.setattr(corrupted_sources, "_HELD_BYTES", 4 * 3 * 32**2)
    monkeypatch.setattr(corrupted_sources, "_READ_BATCH", 4)
    whole, drawn[:] = drawn[:], []
    again = robustness.evaluate_corruptions(
        chosen, pretrained, test_split, watched
    )
    assert again == found and [len(i) for i, _ in drawn] == [4, 1] * 5
    for k, (images, _) in enumerate(whole):
        parts = [drawn[2 * k][0], drawn[2 * k + 1][0]]
        np.testing.assert_array_equal(np.concatenate(parts), images)


@pytest.fixture
def reference(results, tmp_path):
    """The file of a run that is evaluated like the one of the tests."""
    path = tmp_path / "evaluation.json"

    def write(change=lambda contents: None):
        contents = {
            "dataset": "small",
            "image_size": 32,
            "corruptions": json.loads(json.dumps(results)),
        }
        change(contents)
        path.write_text(json.dumps(contents))
        return str(path)

    return write


def test_a_run_against_itself_is_at_100(test_split, pretrained, reference):
    chosen = chosen_settings(reference_evaluation=reference())
    found = robustness.evaluate_corruptions(
        chosen, pretrained, test_split, classify
    )
    assert found["linear"]["mce"] == pytest.approx(100)
    assert found["linear"]["relative_mce"] == pytest.approx(100)
    # Never wrong: there is nothing to divide by.
    assert not {"mce", "relative_mce"} & set(found["pretrained"])


def test_each_classifier_has_its_reference(test_split, pretrained, reference):
    def change(contents):
        part = contents["corruptions"]["linear"]
        part["clean"]["top_1"] = 0.9
        for row in part["results"].values():
            for cell in row.values():
                cell["top_1"] = 0.5

    chosen = chosen_settings(reference_evaluation=reference(change))
    found = robustness.evaluate_corruptions(
        chosen, pretrained, test_split, classify
    )
    linear = found["linear"]
    errors = reference_errors.errors_of(linear["results"])
    expected = [np.mean(list(row.values())) / 0.5 for row in errors.values()]
    assert linear["mce"] == pytest.approx(100 * np.mean(expected))
    clean = 1 - linear["clean"]["top_1"]
    added = [
        (np.mean(list(row.values())) - clean) / 0.4 for row in errors.values()
    ]
    assert linear["relative_mce"] == pytest.approx(100 * np.mean(added))


def drop(*keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        del contents[keys[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("corruptions"), "must be alexnet or an evaluation.json made"),
        (drop("corruptions", "pretrained"), "with no pretrained$"),
        (
            drop("corruptions", "linear", "results", "contrast"),
            "with no linear contrast 1, no linear contrast 5$",
        ),
        (
            drop("corruptions", "pretrained", "results", NAMES[0], "5"),
            "with no pretrained gaussian_noise 5$",
        ),
        (
            lambda c: c.update(dataset="other", image_size=64),
            r"dataset other \(here small\), image_size 64 \(here 32\)$",
        ),
        (
            lambda c: c["corruptions"].update(images=3, seed=1),
            r"images 3 \(here 12\), seed 1 \(here 0\)$",
        ),
    ],
)
def test_references_that_do_not_fit(
    test_split, pretrained, reference, change, message
):
    chosen = chosen_settings(reference_evaluation=reference(change))
    with pytest.raises(ValueError, match=message):
        robustness.check_corruptions(
            chosen, pretrained, test_split, ("linear", "pretrained")
        )


def check(test_split, pretrained, classifiers=("linear",), **changed):
    robustness.check_corruptions(
        chosen_settings(**changed), pretrained, test_split, classifiers
    )


def test_checks_before_any_work(test_split, pretrained, tmp_path, monkeypatch):
    check(test_split, pretrained)
    with pytest.raises(ValueError, match="--corruptions must be none for a ru"):
        check(test_split, pretrained, ())
    with pytest.raises(ValueError, match="_images must be at most 12.*got 13"):
        check(test_split, pretrained, corruption_images=13)
    with pytest.raises(ValueError, match="_seed must be below 2.32, got 42949"):
        check(test_split, pretrained, corruption_seed=2**32)
    for name in ("none.json", "bad.json"):
        (tmp_path / "bad.json").write_text("{")
        with pytest.raises(ValueError, match=f"must be alexnet or.*{name}"):
            path = str(tmp_path / name)
            check(test_split, pretrained, reference_evaluation=path)
    with pytest.raises(ValueError, match="1000 classes of .*the 3 of small"):
        check(test_split, pretrained, reference_evaluation="alexnet")
    small = dataclasses.replace(pretrained, image_size=31)
    with pytest.raises(ValueError, match="at least 32 pixels, got 31"):
        check(test_split, small)
    monkeypatch.setitem(__import__("sys").modules, "imagecorruptions", None)
    with pytest.raises(ImportError, match=r"supcon_tf\[corruptions\]"):
        check(test_split, pretrained)


def test_alexnet_is_a_reference_of_1000_classes(test_split):
    names = [str(i) for i in range(1000)]
    imagenet = dataclasses.replace(test_split, class_names=tuple(names))
    settings = chosen_settings(reference_evaluation="alexnet")
    (errors, clean) = reference_errors.load_references(
        settings, None, imagenet, ("linear",)
    )["linear"]
    assert errors["contrast"]["5"] == 0.9927 and clean == 0.43478


class TinyCorrupted(tfds.core.GeneratorBasedBuilder):
    """Like imagenet2012_corrupted: a configuration each, only validation."""

    __module__ = _MODULE
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [
        tfds.core.BuilderConfig(name=f"{name}_{severity}")
        for name in NAMES
        for severity in (1, 5)
    ]
    CLASSES, LABELS = CLASSES, None

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(
                        shape=(None, None, 3), encoding_format="png"
                    ),
                    "label": tfds.features.ClassLabel(names=list(CLASSES)),
                }
            ),
            supervised_keys=("image", "label"),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {"validation": self._generate_examples()}

    def _generate_examples(self):
        images, labels = small_images()
        name, severity = self.builder_config.name.rsplit("_", 1)
        corrupted = corruptions.corrupt(images, name, int(severity), 0)
        for i, image in enumerate(corrupted):
            yield i, {"image": image, "label": int(labels[i])}


@pytest.fixture(scope="module")
def of_tfds(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("tfds"))
    for tfds_config in TinyCorrupted.BUILDER_CONFIGS:
        builder = TinyCorrupted(data_dir=root, config=tfds_config)
        builder.download_and_prepare()
    return config.PretrainSettings(
        "unused", image_size=32, dataset="tfds:small", data_dir=root
    )


@pytest.mark.parametrize("images", [None, 5])
def test_tfds_gives_what_is_generated(
    of_tfds, test_split, pretrained, results, images
):
    """Bytes of the right size reach the classifier as they are."""
    for version in ("", ":1.0.0"):
        chosen = chosen_settings(
            corruptions="tfds:tiny_corrupted" + version,
            corruption_images=images,
        )
        robustness.check_corruptions(chosen, of_tfds, test_split, ("linear",))
    found = robustness.evaluate_corruptions(
        chosen, of_tfds, test_split, classify
    )
    generated = robustness.evaluate_corruptions(
        chosen_settings(corruption_images=images),
        pretrained, test_split, classify,
    )  # fmt: skip
    assert found.pop("source") == "tfds:tiny_corrupted:1.0.0"
    del generated["source"]
    assert found == generated


def test_tfds_sets_that_are_not_the_runs(of_tfds, test_split):
    images, labels = small_images()
    options = {"corruptions": "tfds:tiny_corrupted"}
    renamed = data.from_arrays(images, labels, ("a", "b", "c"))
    with pytest.raises(ValueError, match="other classes in tfds:tiny_corrupt"):
        check(renamed, of_tfds, **options)
    fewer = data.from_arrays(images[:9], labels[:9], CLASSES, "small", "test")
    with pytest.raises(ValueError, match="the 9 test images of small, got 12"):
        check(fewer, of_tfds, **options)
    with pytest.raises(ValueError, match="must name a TFDS set, got .*/fog_1"):
        check(test_split, of_tfds, **options, corruption_names=("fog",))
    reverse = data.from_arrays(images[::-1], labels[::-1], CLASSES)
    whole, drawn = (
        chosen_settings(**options, corruption_images=n) for n in (None, 5)
    )
    robustness.evaluate_corruptions(whole, of_tfds, reverse, classify)
    with pytest.raises(ValueError, match="the same order, got other labels in"):
        robustness.evaluate_corruptions(drawn, of_tfds, reverse, classify)


def test_cifar_names_of_tfds_are_its_own(monkeypatch, test_split, pretrained):
    from tensorflow_datasets.image_classification import cifar10_corrupted

    known = {c.name for c in cifar10_corrupted._make_builder_configs()}
    asked = []

    def load(name, split, data_dir):
        asked.append(name.removeprefix("tfds:cifar10_corrupted/"))
        assert (split, data_dir) == ("test", None)
        return test_split

    monkeypatch.setattr(data, "load", load)
    check(
        test_split,
        pretrained,
        corruptions="tfds:cifar10_corrupted",
        corruption_names=config.CORRUPTIONS,
        corruption_severities=(1, 2, 3, 4, 5),
    )
    assert len(set(asked)) == 75 and set(asked) <= known
