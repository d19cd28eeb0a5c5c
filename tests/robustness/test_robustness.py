"""Classifiers on corrupted test images: which images, which numbers."""

import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow_datasets as tfds

from supcon_tf import config, data, measures
from supcon_tf.robustness import corruptions, robustness
from tests import score_rows

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


def small_split():
    return data.from_arrays(*small_images(), CLASSES, "small", "test")


def make_run(test=None, classifiers=("linear", "pretrained"), **settings):
    """A run by the attributes that are read."""
    test = test or small_split()
    pretraining = config.PretrainSettings(
        "unused", **{"image_size": 32, **settings}
    )
    return types.SimpleNamespace(
        settings=pretraining,
        data_settings=pretraining,
        source=lambda split: test,
        classifiers=classifiers,
    )


def prepared(run=None, **changed):
    settings = config.EvaluateSettings(
        "unused",
        **{
            "corruptions": "generated",
            "corruption_names": NAMES,
            "corruption_severities": (1, 5),
            **changed,
        },
    )
    return robustness.Robustness(settings, run or make_run())


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
    probabilities = {"linear": linear, "pretrained": sharp}
    return {
        name: measures.Predictions.of(rows, labels)
        for name, rows in probabilities.items()
    }


def corrupted(images, name, severity):
    with corruptions.Corruptor(0) as corruptor:
        return corruptor.corrupt(
            images, np.arange(len(images)), name, severity, 0
        )


@pytest.fixture(scope="module")
def classified():
    """The images that were classified, in the order of the calls."""
    return []


@pytest.fixture(scope="module")
def results(classified):
    def record(source):
        assert (source.name, source.class_names) == ("small", CLASSES)
        classified.append(read(source))
        return classify(source)

    return prepared().measure(record)


def test_clean_images_and_all_conditions_are_classified(results, classified):
    images, labels = small_images()
    np.testing.assert_array_equal(classified[0][0], images)
    conditions = [(name, s) for name in NAMES for s in (1, 5)]
    assert len(classified) == 1 + len(conditions)
    for condition, got in zip(conditions, classified[1:], strict=True):
        np.testing.assert_array_equal(got[0], corrupted(images, *condition))
        np.testing.assert_array_equal(got[1], labels)


def test_results_are_the_measures_of_each_condition(results, classified):
    assert json.loads(json.dumps(results)) == results
    score_rows.check({"corruptions": results})
    assert {k: v for k, v in results.items() if not isinstance(v, dict)} == {
        "source": "generated",
        "images": 12,
        "severities": [1, 5],
        "seed": 0,
        "reference": None,
    }
    images, labels = classified[4]  # contrast 5
    source = data.from_arrays(images, labels, CLASSES)
    linear = classify(source)["linear"]
    assert results["linear"]["results"]["contrast"]["5"] == {
        "top_1": np.mean(linear.predicted == labels),
        "ece": linear.calibration_error(15),
    }
    assert set(results["linear"]["results"]) == set(NAMES)
    ece = pytest.approx(0.2)
    assert results["pretrained"]["clean"] == {"top_1": 1, "ece": ece}


def test_means(results):
    linear = results["linear"]
    table = {  # [corruptions, severities]
        key: np.array(
            [[linear["results"][n][s][key] for s in "15"] for n in NAMES]
        )
        for key in ("top_1", "ece")
    }
    assert len(np.unique(table["top_1"])) > 1
    for key, values in table.items():
        means = [linear["by_severity"][severity][key] for severity in "15"]
        np.testing.assert_allclose(means, values.mean(axis=0))
    plain = linear["mean_corruption_error_unnormalized"]
    assert plain == pytest.approx(1 - table["top_1"].mean())
    assert linear["mean_ece"] == pytest.approx(table["ece"].mean())
    assert "mce" not in linear and "relative_mce" not in linear


def test_progress_is_a_line_per_corruption(capfd):
    prepared(corruption_severities=(3,)).measure(classify)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert lines[0].endswith(", stage 1 1.0000")


def test_drawn_images_are_the_same_for_all_and_in_chunks(
    results, classified, monkeypatch
):
    drawn = []

    def record(source):
        drawn.append(read(source))
        return classify(source)

    five = prepared(corruption_images=5)
    measured = five.measure(record)
    assert measured["images"] == 5 and len(drawn) == 5
    images, _ = small_images()
    positions = np.concatenate(
        [np.flatnonzero((images == i).all((1, 2, 3))) for i in drawn[0][0]]
    )
    assert len(set(positions)) == 5 and (np.diff(positions) > 0).all()
    for subset, whole in zip(drawn, classified, strict=True):
        np.testing.assert_array_equal(subset[0], whole[0][positions])
        np.testing.assert_array_equal(subset[1], whole[1][positions])
    # Too many to hold: two chunks of a batch each, read every time.
    monkeypatch.setattr(corruptions, "_HELD_BYTES", 4 * 3 * 32**2)
    monkeypatch.setattr(corruptions, "_READ_BATCH", 4)
    whole, drawn[:] = drawn[:], []
    assert five.measure(record) == measured
    assert [len(i) for i, _ in drawn] == [4, 1] * 5
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


def test_each_classifier_has_its_reference(reference):
    """A run against itself is at 100."""
    measured = prepared(reference_evaluation=reference()).measure(classify)
    assert measured["linear"]["mce"] == pytest.approx(100)
    assert measured["linear"]["relative_mce"] == pytest.approx(100)
    # Never wrong: there is nothing to divide by.
    assert not {"mce", "relative_mce"} & set(measured["pretrained"])

    def change(contents):
        part = contents["corruptions"]["linear"]
        part["clean"]["top_1"] = 0.9
        for row in part["results"].values():
            for cell in row.values():
                cell["top_1"] = 0.5

    measured = prepared(reference_evaluation=reference(change)).measure(
        classify
    )
    linear = measured["linear"]
    errors = [
        np.mean([1 - cell["top_1"] for cell in row.values()])
        for row in linear["results"].values()
    ]
    assert linear["mce"] == pytest.approx(100 * np.mean(errors) / 0.5)
    added = np.mean(errors) - (1 - linear["clean"]["top_1"])
    assert linear["relative_mce"] == pytest.approx(100 * added / 0.4)


def drop(*keys):
    def change(contents):
        for key in keys[:-1]:
            contents = contents[key]
        del contents[keys[-1]]

    return change


def be_of_other_images(contents):
    contents["dataset"] = "other"
    contents["corruptions"]["seed"] = 1


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
            be_of_other_images,
            r"dataset other \(here small\), seed 1 \(here 0\)$",
        ),
        (
            lambda contents: contents["corruptions"]["test_split"].update(
                classes="0" * 64
            ),
            "with other test classes$",
        ),
        (
            lambda contents: contents["corruptions"]["test_split"].update(
                images="0" * 64
            ),
            "with other test images$",
        ),
    ],
)
def test_references_that_do_not_fit(reference, change, message):
    checked = dataclasses.replace(small_split(), digests=np.arange(12))
    with pytest.raises(ValueError, match=message):
        prepared(make_run(checked), reference_evaluation=reference(change))


@pytest.mark.parametrize("content", ["3", '"corruptions"', "[]", "no JSON"])
def test_a_reference_of_another_kind_is_named(tmp_path, content):
    path = tmp_path / "reference.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"reference\.json .*Name another"):
        prepared(reference_evaluation=str(path))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("corruption_images", 13, "_images must be at most 12.*got 13"),
        ("reference_evaluation", "no.json", "must be alexnet or.*no.json"),
        ("reference_evaluation", "alexnet", "1000 classes of .*the 3 of smal"),
    ],
)
def test_checks_before_any_work(name, value, message):
    with pytest.raises(ValueError, match=message):
        prepared(**{name: value})


def test_runs_that_cannot_be_corrupted_are_refused_before_any_work(monkeypatch):
    with pytest.raises(ValueError, match="--corruptions must be none for a r"):
        prepared(make_run(classifiers=()))
    with pytest.raises(ValueError, match="at least 32 pixels, got 31"):
        prepared(make_run(image_size=31))
    prepared()
    monkeypatch.setitem(__import__("sys").modules, "imagecorruptions", None)
    with pytest.raises(ImportError, match=r"pip install 'supcon_tf\[corrupti"):
        prepared()


def test_alexnet_is_a_reference_of_1000_classes():
    names = tuple(str(i) for i in range(1000))
    imagenet = dataclasses.replace(small_split(), class_names=names)
    settings = config.EvaluateSettings(
        "x", corruptions="generated", reference_evaluation="alexnet"
    )
    (errors, clean) = robustness.load_references(settings, make_run(imagenet))[
        "linear"
    ]
    assert errors["contrast"]["5"] == 0.9927 and clean == 0.43478


OF_TFDS = {"corruption_names": ("contrast",), "corruption_severities": (5,)}


class TinyCorrupted(tfds.core.GeneratorBasedBuilder):
    """Like imagenet2012_corrupted: a configuration each, only validation."""

    __module__ = _MODULE
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="contrast_5")]
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
        for i, image in enumerate(corrupted(images, name, int(severity))):
            yield i, {"image": image, "label": int(labels[i])}


@pytest.fixture(scope="module")
def tfds_settings(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("tfds"))
    for tfds_config in TinyCorrupted.BUILDER_CONFIGS:
        builder = TinyCorrupted(data_dir=root, config=tfds_config)
        builder.download_and_prepare()
    return {"dataset": "tfds:small", "data_dir": root}


@pytest.mark.slow(but=["5-:1.0.0"])
@pytest.mark.parametrize("version", ["", ":1.0.0"])
@pytest.mark.parametrize("images", [None, 5])
def test_tfds_images_give_the_generated_results(tfds_settings, images, version):
    """Bytes of the right size reach the classifier as they are."""
    options = {**OF_TFDS, "corruption_images": images}
    generated = prepared(**options).measure(classify)
    name = "tfds:tiny_corrupted" + version
    run = make_run(**tfds_settings)
    measured = prepared(run, corruptions=name, **options).measure(classify)
    assert measured == {**generated, "source": name}


@pytest.mark.not_quick
def test_tfds_sets_that_are_not_the_runs(tfds_settings):
    images, labels = small_images()

    def prepared_on(*arrays, **changed):
        test = data.from_arrays(*arrays, split="test")
        options = {**OF_TFDS, **changed}
        run = make_run(test, **tfds_settings)
        return prepared(run, corruptions="tfds:tiny_corrupted", **options)

    with pytest.raises(ValueError, match="other classes in tfds:tiny_corrupt"):
        prepared_on(images, labels, ("a", "b", "c"))
    with pytest.raises(ValueError, match="the 9 test images of small, got 12"):
        prepared_on(images[:9], labels[:9], CLASSES, "small")
    with pytest.raises(ValueError, match="must name a TFDS set, got .*/fog_5"):
        prepared_on(images, labels, CLASSES, corruption_names=("fog",))
    reverse = images[::-1], labels[::-1], CLASSES
    prepared_on(*reverse).measure(classify)
    with pytest.raises(ValueError, match="the same order, got other labels in"):
        prepared_on(*reverse, corruption_images=5).measure(classify)


def test_cifar_configurations_are_named_as_in_tfds(monkeypatch):
    from tensorflow_datasets.image_classification import cifar10_corrupted

    names = {c.name for c in cifar10_corrupted._make_builder_configs()}
    loaded = []

    def load(name, split, data_dir):
        loaded.append(name.removeprefix("tfds:cifar10_corrupted/"))
        assert (split, data_dir) == ("test", None)
        return small_split()

    monkeypatch.setattr(data, "load", load)
    prepared(
        corruptions="tfds:cifar10_corrupted",
        corruption_names=config.CORRUPTIONS,
        corruption_severities=(1, 2, 3, 4, 5),
    )
    assert len(set(loaded)) == 75 and set(loaded) <= names
