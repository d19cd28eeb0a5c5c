"""Evaluation of a finished run."""

import contextlib
import dataclasses
import json
import shutil
import types

import numpy as np
import pytest

from supcon_tf import (
    config,
    data,
    distribute,
    evaluation,
    measures,
    reports,
    run_files,
    training,
)
from supcon_tf.data import subsets
from supcon_tf.disk import files
from supcon_tf.evaluation import clean, splits
from supcon_tf.training import representations, runs
from tests import runs as shared_runs
from tests import score_rows


@pytest.fixture(scope="module")
def results(finished_run):
    return evaluation.evaluate(
        config.EvaluateSettings(
            str(finished_run.path),
            batch_size=5,
            knn_neighbors=9,
            knn_leave_one_out=True,
            sample_images=2,
            plane="pca",
        )
    )


def numbers_alone(run, **options):
    settings = shared_runs.evaluation_settings(run.path, **options)
    return evaluation.evaluate(settings)


def test_results_equal_the_file(results, finished_run):
    stage = finished_run.stage("linear")
    assert json.loads(stage.evaluation_file.read_text()) == results
    score_rows.check(results)
    assert results["settings"]["knn_neighbors"] == "9"
    assert results["test_examples"] == 21 and results["bank_examples"] == 48
    probability_scores = {"top_1", "top_5", "ece", "nll", "brier"}
    for group in ("linear", "knn", "knn_majority"):
        assert probability_scores < set(results[group])
        assert np.sum(results[group]["confusion_matrix"]) == 21
        assert sum(results[group]["calibration_bins"]["count"]) == 21
    for group in ("linear", "knn", "prototype"):
        assert 1 / 3 < results[group]["top_1"] <= results[group]["top_5"] == 1
    names = {"top_1", "top_5", "majority_top_1"}
    assert set(results["knn_leave_one_out"]) == names
    assert set(results["retrieval"]["recall_at"]) == {"1", "5", "10"}
    assert "pretrained" not in results and "corruptions" not in results
    samples = run_files.read_arrays(stage.samples_file)
    assert samples["images"].shape == (2, 16, 16, 3)
    assert stage.representations_file.exists()
    assert (stage.projector / "projector_config.pbtxt").exists()
    assert not stage.issues_list.exists()
    assert not finished_run.evaluation_file.exists()
    assert not finished_run.projector.exists()


def test_an_image_that_was_replaced_is_encoded_anew(
    copy_run, image_folder, tmp_path
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    copied = copy_run(tmp_path / "run")
    text = copied.settings_file.read_text().replace(
        str(image_folder), str(photos)
    )
    copied.settings_file.write_text(text)
    run, encoded = runs.Run.open(copied.path), []

    def represent(source, positions, into):
        encoded.append(source.split)
        into[:] = 0
        return into, source.labels

    for _ in range(2):
        splits.encode(run, "test", represent)
    assert encoded == ["test"]
    image = photos / run.source("test").ids[0]
    image.write_bytes(image.read_bytes() + b" ")
    splits.encode(run, "test", represent)
    assert encoded == ["test", "test"]


def test_images_that_may_have_changed_without_a_sign_are_encoded_anew(tmp_path):
    """A user's source without a fingerprint, and a part of such a source."""
    images = np.zeros([4, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 1, 0, 1])
    without = dataclasses.replace(source, fingerprint=str)
    encoded = []

    def represent(source, positions, into):
        encoded.append(source.num_examples)
        into[:] = 0
        return into, source.labels

    for split in (source, without, subsets.subset(without, [0, 1])):
        run = encodable_run(tmp_path, split)
        for _ in range(2):
            splits.encode(run, "train", represent)
    assert encoded == [4, 4, 4, 2, 2]


def encodable_run(path, source):
    return types.SimpleNamespace(
        files=run_files.RunDirectory(path),
        source=lambda split: source,
        identity={},
        image_size=8,
        encoder=types.SimpleNamespace(representation_dim=2),
    )


def test_another_evaluation_may_replace_what_was_just_encoded(
    tmp_path, monkeypatch
):
    images = np.zeros([5, 8, 8, 3], np.uint8)
    source = data.from_arrays(images, [0, 1, 0, 1, 0])
    run = encodable_run(tmp_path, source)
    make = files.make_atomically

    @contextlib.contextmanager
    def then_replaced(path, overwrite):
        with make(path, overwrite) as partial:
            yield partial
        (path / run_files.ENCODED_RECORD).write_text("{}")

    monkeypatch.setattr(files, "make_atomically", then_replaced)

    def represent(source, positions, into):
        into[:] = positions[:, np.newaxis]
        return into, source.labels[positions]

    encoded = splits.encode(run, "train", represent, max_examples=2)
    assert encoded.representations.tolist() == [[0, 0], [2, 2]]
    assert encoded.labels.tolist() == [0, 0]


def test_representations_are_encoded_once_and_bounded(
    results, finished_run, monkeypatch
):
    """A second evaluation encodes nothing, as long as nothing has changed."""
    again = numbers_alone(finished_run, knn_neighbors=9)
    encoded = []

    def representer(*args, **options):
        represent = make_represent(*args, **options)

        def recording(source, *arrays):
            encoded.append(source.split)
            return represent(source, *arrays)

        return recording

    make_represent = representations.representer
    monkeypatch.setattr(representations, "representer", representer)
    for limit in (None, 48):  # all
        same = numbers_alone(finished_run, knn_neighbors=9, bank_images=limit)
        assert same == again | {"settings": same["settings"]}
    assert not encoded
    fewer = numbers_alone(finished_run, knn_neighbors=9, bank_images=12)
    assert fewer["bank_examples"] == 12 and encoded == ["train"]
    bank = np.load(finished_run.encoded / "train" / "representations.npy")
    assert len(bank) == 12
    assert fewer["knn"]["k"] == 9
    by_default = numbers_alone(finished_run, bank_images=21)  # 7 of a class
    assert by_default["knn"]["k"] == by_default["knn_majority"]["k"] == 7
    none = numbers_alone(finished_run, bank_images=0)
    assert encoded == ["train"] * 2
    assert none["linear"] == again["linear"] and "knn" not in none
    assert none["bank_examples"] == 0 and "prototype" not in none
    assert "linear top-1" in evaluation.results_table({"run": none})
    record = finished_run.encoded / "test" / "made_of.json"
    record.write_text(record.read_text().replace("step-", "step-1"))
    anew = numbers_alone(finished_run, bank_images=0)["linear"]
    assert anew["nll"] == pytest.approx(none["linear"]["nll"], abs=1e-5)
    assert encoded == ["train", "train", "test"]
    for count in (0, 1):
        message = f"--label_issues must be .* with --bank_images={count}, got 3"
        with pytest.raises(ValueError, match=message):
            numbers_alone(finished_run, bank_images=count, label_issues=3)


def test_classifiers_without_training_are_those_of_the_measures(
    results, finished_run
):
    run = runs.Run.open(finished_run.path)
    (queries, labels), (bank, bank_labels) = (
        training.represent(
            run.encoder, run.source(split), batch_size=5, image_size=16
        )
        for split in ("test", "train")
    )
    options = {"num_classes": 3, "k": 9}
    for name, weighted in (("knn", True), ("knn_majority", False)):
        options["weighted"] = weighted
        votes = measures.knn_predict(queries, bank, bank_labels, **options)
        expected = measures.classification_summary(votes, labels)
        for key in ("nll", "brier"):
            assert results[name][key] == pytest.approx(expected[key], abs=0.01)
        assert results[name]["k"] == 9
    votes = measures.knn_predict(
        bank, bank, bank_labels, leave_one_out=True, **options
    )
    expected = measures.top_k_accuracy(votes, bank_labels, 1)
    measured = results["knn_leave_one_out"]["majority_top_1"]
    assert measured == pytest.approx(expected, abs=1.5 / 48)  # an image
    scores = measures.prototype_predict(
        queries, bank, bank_labels, num_classes=3
    )
    expected = measures.top_k_accuracy(scores, labels, 1)
    measured = results["prototype"]["top_1"]
    assert measured == pytest.approx(expected, abs=1.5 / 21)


def test_predictions_are_per_image_and_reproduce_the_accuracy(
    results, finished_run
):
    stage = finished_run.stage("linear")
    saved = run_files.read_arrays(stage.predictions_file)
    probabilities, labels = saved["probabilities"], saved["labels"]
    names = tuple(saved["class_names"])
    assert len(set(saved["ids"])) == 21
    assert names == finished_run.class_names()
    for identifier, label in zip(saved["ids"], labels, strict=True):
        assert identifier.startswith(f"test/{names[label]}/")
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    accuracy = np.mean(probabilities.argmax(1) == labels)
    assert accuracy == pytest.approx(results["linear"]["top_1"])
    ece = evaluation.expected_calibration_error(probabilities, labels)
    assert ece == pytest.approx(results["linear"]["ece"])


def test_batch_size_and_replicas_change_nothing(
    results, finished_run, mirrored_strategy, monkeypatch
):
    monkeypatch.setattr(
        distribute, "make_strategy", lambda *_, **__: mirrored_strategy
    )
    finished_run.encoded.rmtree()
    shared = numbers_alone(finished_run, batch_size=8, knn_neighbors=9)
    for group in ("linear", "knn", "knn_majority", "prototype"):
        # One of the seven images of a class may stand on the border.
        assert shared[group]["per_class_recall"] == pytest.approx(
            results[group]["per_class_recall"], abs=0.15
        )
    for measure in ("ece", "nll", "brier"):
        assert shared["linear"][measure] == pytest.approx(
            results["linear"][measure], abs=1e-5
        )
    assert shared["representations"] == pytest.approx(
        results["representations"], abs=1e-5
    )
    stage = finished_run.stage("linear")
    for path in (
        stage.samples_file,
        stage.representations_file,
        stage.projector,
    ):
        assert not path.exists()  # of the earlier evaluation


def test_without_a_linear_stage_the_others_still_work(
    copy_run, tmp_path, capsys
):
    run = copy_run(tmp_path / "run")
    run.stage("linear").path.rename(run.stage("fast").path)
    results = numbers_alone(run, knn_neighbors=5)
    assert "--linear_stage=fast evaluates one" in capsys.readouterr().out
    assert "linear" not in results and results["knn"]["top_1"] > 1 / 3
    assert run.evaluation() == results
    assert not run.predictions_file.exists()
    with pytest.raises(ValueError, match="--corruptions must be none for a"):
        numbers_alone(run, corruptions="generated")


def test_every_class_has_a_row_of_retrieval():
    """The last class too, which has no test image."""
    source = types.SimpleNamespace(class_names=("a", "b", "c"))
    labels = np.array([0, 0, 1])
    space = clean.measure_space(
        splits.EncodedSplit(source, np.eye(3), labels, None)
    )
    assert space["retrieval"]["per_class"]["recall_at_1"] == [1.0, None, None]


def test_a_stage_that_is_none_or_no_run_is_refused(finished_run):
    """A misspelt name leaves no classifier out."""
    message = "--linear_stage must be a stage of .*, linear.*, got lineal"
    with pytest.raises(ValueError, match=message):
        numbers_alone(finished_run, linear_stage="lineal")
    message = "got a stage of one: name the run, "
    with pytest.raises(ValueError, match=f"{message}{finished_run.path}, and"):
        numbers_alone(finished_run.stage("linear"))


def test_stages_of_a_run_keep_an_evaluation_each(copy_run, tmp_path):
    """Also beside one that an earlier version wrote into the run."""
    run = copy_run(tmp_path / "run")
    fast = run.stage("fast")
    shutil.copytree(run.stage("linear").path, fast.path)
    flags = fast.settings_file.read_text()
    fast.settings_file.write_text(flags.replace("--name=linear", "--name=fast"))
    older = numbers_alone(run, linear_stage="fast", knn_neighbors=5)
    for path in (fast.evaluation_file, fast.predictions_file):
        path.rename(run.path / path.name)
    assert run.evaluated("fast").evaluation() == older
    assert not run.evaluated("linear").evaluation()
    linear = numbers_alone(run, knn_neighbors=5)
    assert run.evaluation() == older  # it is not of this stage
    newer = numbers_alone(run, linear_stage="fast", knn_neighbors=7)
    assert run.stage("linear").evaluation() == linear
    assert fast.evaluation() == newer and newer["knn"]["k"] == 7
    assert not run.evaluation_file.exists()  # replaced
    assert not run.predictions_file.exists()
    assert run.encoded.exists() and not fast.encoded.exists()


def test_an_image_of_the_training_is_never_one_of_the_test(
    image_folder, tiny_settings, tmp_path
):
    """Also where files came or went since, and where the split is another."""
    folder = tmp_path / "images"
    shutil.copytree(image_folder / "train", folder)
    run = training.pretrain(
        tiny_settings(
            tmp_path / "run",
            data_dir=str(folder),
            test_fraction=0.4,
            batch_size=4,
            epochs=0,
        )
    )
    trained_on = set(json.loads(run.images_file.read_text())["trained_on"])
    (folder / sorted(trained_on)[0]).unlink()
    shutil.copy(folder / sorted(trained_on)[1], folder / "mid" / "new.jpg")
    test = runs.open_run(run.path).source("test")
    assert test.num_examples > 5 and not trained_on & set(test.ids)
    recorded = run.settings_file.read_text()
    assert "--split_seed=0" in recorded
    run.settings_file.write_text(recorded.replace("seed=0", "seed=1"))
    with pytest.raises(ValueError, match=r"trained on, got \d+ of \d+: "):
        numbers_alone(run)


def test_test_images_that_training_saw_are_counted_or_left_out(
    copy_run, image_folder, tmp_path, capsys
):
    photos = shutil.copytree(image_folder, tmp_path / "photos")
    shutil.copy(photos / "train/mid/01.jpg", photos / "test/mid/copied.jpg")
    run = copy_run(tmp_path / "run")
    options = {"data_dir": str(photos), "bank_images": 0}
    measured = numbers_alone(run, **options)
    assert measured["test_examples"] == 22 and measured["test_duplicates"] == 1
    page = reports.write_report([run.path], str(tmp_path / "page.html"))
    assert "1 of them are training images too" in page.read_text()
    printed = capsys.readouterr().out
    assert "1 of 22 test images are, byte for byte" in printed
    assert "test/mid/copied.jpg" in printed
    measured = numbers_alone(run, drop_duplicates=True, **options)
    assert measured["test_examples"] == 21 and "test_duplicates" not in measured
    assert "byte for byte" not in capsys.readouterr().out
