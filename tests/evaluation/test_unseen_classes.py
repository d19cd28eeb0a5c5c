"""Test images of classes that training never saw, from folders to the page."""

import shutil

import numpy as np
import pytest

from supcon_tf import (
    config,
    conversion,
    data,
    evaluation,
    measures,
    reports,
    run_files,
    training,
)
from supcon_tf.training import runs
from tests import score_rows

SEEN, UNSEEN = ("bright", "dark", "mid"), ("dawn", "dusk", "noon")


def rename(folder, old_names, new_names):
    for old, new in zip(old_names, new_names, strict=True):
        (folder / old).rename(folder / new)


@pytest.fixture(scope="module")
def birds(image_folder, tmp_path_factory):
    """A folder whose test images are of other classes."""
    root = tmp_path_factory.mktemp("birds") / "birds"
    shutil.copytree(image_folder, root)
    rename(root / "test", SEEN, UNSEEN)
    return root


def run_on(folder, copy_run, path):
    """A run with both stages, whose data are in this folder now."""
    run = copy_run(path)
    data_dir = run.recorded(config.PretrainSettings).data_dir
    flags = run.settings_file.read_text()
    run.settings_file.write_text(flags.replace(data_dir, str(folder)))
    return run


@pytest.fixture(scope="module")
def run(birds, copy_run, tmp_path_factory):
    return run_on(birds, copy_run, tmp_path_factory.mktemp("runs") / "run")


def evaluated(run, **options):
    fields = {"plane": "pca", "sample_images": 0, **options}
    return evaluation.evaluate(config.EvaluateSettings(str(run.path), **fields))


@pytest.fixture(scope="module")
def results(run):
    return evaluated(
        run, sample_images=3, label_issues=5, knn_leave_one_out=True
    )


def test_retrieval_and_neighbors_are_among_the_test_images(results, run):
    score_rows.check(results)
    assert results["test_classes"] == list(UNSEEN)
    assert results["test_examples"] == 21
    absent = {"linear", "linear_checkpoint", "knn", "prototype", "pretrained"}
    assert not absent & set(results)

    opened = runs.open_run(run.path)
    rows, labels = training.represent(
        opened.encoder, opened.source("test"), image_size=16
    )
    votes = measures.knn_predict(
        rows, rows, labels, num_classes=3, k=7, leave_one_out=True
    )
    scores = results["knn_among_test"]
    # As many neighbours as each class has examples.
    assert (scores["k"], scores["temperature"]) == (7, 0.07)
    top_1 = measures.top_k_accuracy(votes, labels, 1)
    # One of the 21 may be tipped by kernels that round otherwise.
    assert scores["top_1"] == pytest.approx(top_1, abs=1.5 / 21)
    assert np.trace(scores["confusion_matrix"]) / 21 == scores["top_1"]
    expected = measures.retrieval_summary(rows, labels)
    depths = [*results["retrieval"]["recall_at"]]
    assert depths == ["1", "2", "4", "8", "10"]  # of 20 other images
    assert results["retrieval"]["map_at_r"] == pytest.approx(
        expected["map_at_r"], abs=0.05
    )
    assert set(results["representations"]) == {"alignment", "uniformity"}
    assert results["bank_examples"] == 48  # for what is of training images
    assert results["knn_leave_one_out"]["top_1"] > 0.5


def test_table_and_page_show_the_measures(results, run):
    table = evaluation.results_table({"birds": results})
    assert [line.split("  ")[0] for line in table.splitlines()[1:]] == [
        "k-NN among test top-1",
        "recall@1",
        "mAP@R",
    ]
    stage = run.stage("linear")
    assert stage.evaluation() == results and stage.issues_list.exists()
    assert not stage.predictions_file.exists()
    samples = run_files.read_arrays(stage.samples_file)
    assert samples["neighbors"].shape[:2] == (3, 8)
    for image, others in zip(
        samples["images"], samples["neighbors"], strict=True
    ):
        assert not (others == image).all(axis=(1, 2, 3)).any()
    assert len(samples["view_labels"]) == 4  # of training images

    page = reports.write_report([run.path], stage.report_file).read_text()
    assert "21 images for testing, of 3 classes that training never" in page
    assert "k-NN among the test examples" in page
    assert "they are the other test images" in page
    for name in (*UNSEEN, "dark"):  # the last of a view or an issue
        assert f"<bdi>{name}</bdi>" in page
    for title in ("Calibration", "Most confident mistakes", "Corrupted"):
        assert title not in page


def test_unneeded_training_images_are_not_encoded(results, run):
    (run.encoded / "train").rmtree()
    assert evaluated(run, plotted_images=0)["bank_examples"] == 0
    assert not (run.encoded / "train").exists()


def test_flags_that_need_the_classes_are_refused(run, birds):
    message = (
        f"the test images must be of the classes of {run.path} for --{{}}, got "
        "3 that training never saw, such as dawn"
    )
    for flag, value in (("corruptions", "generated"), ("hierarchy", "x.csv")):
        with pytest.raises(ValueError, match=message.format(flag)):
            evaluated(run, **{flag: value})
    with pytest.raises(ValueError, match=message.format("").split("--")[0]):
        evaluation.accuracy_curve(runs.open_run(run.path))
    other = {"dataset": "folder", "data_dir": str(birds), "l2": 1.0}
    with pytest.raises(ValueError, match="the same in both splits, got 3 and"):
        evaluation.transfer_encoder(
            config.TransferSettings(str(run.path), **other)
        )


def test_other_classes_for_training_and_a_mixture_are_refused(
    birds, copy_run, tmp_path
):
    """They are other data, or faults of the data."""
    folder = shutil.copytree(birds, tmp_path / "birds")
    run = run_on(folder, copy_run, tmp_path / "run")
    rename(folder / "train", SEEN, "abc")
    with pytest.raises(ValueError, match="the classes of the data must be"):
        evaluated(run)
    rename(folder / "train", "abc", SEEN)
    rename(folder / "test", ["dusk"], ["dark"])  # a class that training saw
    with pytest.raises(ValueError, match=r"dawn.*noon|noon.*dawn"):
        evaluated(run)


def test_converted_files_are_compared_without_accuracy(run):
    results = conversion.convert(
        config.ConvertSettings(str(run.path), formats=("tflite_float32",))
    )
    (model,) = results["models"].values()
    assert model["agreement"] == 1 and "top_1" not in model
    assert results["float_model"] == {}


@pytest.mark.slow
def test_pretraining_watches_the_test_images_alone(
    birds, tiny_settings, tmp_path, capsys
):
    run = training.pretrain(
        tiny_settings(
            tmp_path / "run", data_dir=str(birds), epochs=1, knn_every=1
        )
    )
    assert (
        "training sees none of the 3 test classes, such as dawn: k-NN among the"
    ) in capsys.readouterr().out
    (figures,) = run.metrics()
    measured = evaluated(run, plotted_images=0)
    assert figures["knn_accuracy"] == pytest.approx(
        measured["knn_among_test"]["top_1"], abs=1.5 / 21
    )
    assert run.evaluation() == measured  # which has no linear stage


def test_one_image_has_no_other():
    images = np.zeros([4, 8, 8, 3], np.uint8)
    train = data.from_arrays(images, [0, 0, 1, 1], ["a", "b"])
    test = data.from_arrays(images[:1], [0], ["c"], split="test")
    with pytest.raises(ValueError, match="`test` must have two examples or m"):
        training.representations.KnnAccuracy(train, test)
