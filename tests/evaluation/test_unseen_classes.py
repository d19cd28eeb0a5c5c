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
from supcon_tf.data import folder
from supcon_tf.training import runs
from tests import score_rows

UNSEEN = ("dawn", "dusk", "noon")


@pytest.fixture
def birds(image_folder, tmp_path, monkeypatch):
    """A folder whose test images are of other classes."""
    root = shutil.copytree(image_folder, tmp_path / "birds")
    for old, new in zip(("bright", "dark", "mid"), UNSEEN, strict=True):
        (root / "test" / old).rename(root / "test" / new)
    try:
        data.load("folder", "test", str(root))
    except ValueError:  # a loader that wants the same classes in both

        def split_of(data_dir, split, classes):
            return classes[split], split

        monkeypatch.setattr(folder, "_split_classes", split_of)
    return root


@pytest.fixture
def run(birds, copy_run, tmp_path):
    """A run with both stages, whose test images are of other classes now."""
    run = copy_run(tmp_path / "run")
    settings = run.recorded(config.PretrainSettings)
    flags = run.settings_file.read_text()
    run.settings_file.write_text(flags.replace(settings.data_dir, str(birds)))
    return run


def evaluated(run, **options):
    fields = {"plane": "pca", "sample_images": 0, **options}
    return evaluation.evaluate(config.EvaluateSettings(str(run.path), **fields))


def test_retrieval_and_neighbors_are_among_the_test_images(run, capsys):
    results = evaluated(run, knn_neighbors=4)
    printed = capsys.readouterr().out
    assert (
        "note         training sees none of the 3 test classes, such as dawn: "
        "retrieval and k-NN among the test images, no classifier"
    ) in printed
    assert results["test_classes"] == list(UNSEEN)
    assert results["test_examples"] == 21 and results["bank_examples"] == 0
    absent = {"linear", "linear_checkpoint", "knn", "prototype", "pretrained"}
    assert not absent & set(results)

    opened = runs.open_run(run.path)
    rows, labels = training.represent(
        opened.encoder, opened.source("test"), image_size=16
    )
    votes = measures.knn_predict(
        rows, rows, labels, num_classes=3, k=4, leave_one_out=True
    )
    scores = results["knn_among_test"]
    assert (scores["k"], scores["temperature"]) == (4, 0.07)
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


def test_table_and_page_show_them(run):
    options = {"label_issues": 5, "knn_leave_one_out": True}
    results = evaluated(run, sample_images=3, **options)
    score_rows.check(results)
    assert results["knn_among_test"]["k"] == 7  # as many as each class has
    assert results["bank_examples"] == 48  # for what is of training images
    assert results["knn_leave_one_out"]["top_1"] > 0.5
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


def test_what_needs_the_classes_is_refused_in_a_line(run, birds):
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
    assert not run.evaluated().evaluation_file.exists()
    # Other training images too: these are other data, not other classes.
    for old, new in zip(("bright", "dark", "mid"), "abc", strict=True):
        (birds / "train" / old).rename(birds / "train" / new)
    with pytest.raises(ValueError, match="the classes of the data must be"):
        evaluated(run)


def test_a_mixture_is_refused(run, birds):
    """Classes that some of the test images share are the data's fault."""
    (birds / "test" / "dusk").rename(birds / "test" / "dark")
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
    measured = evaluated(run, plotted_images=0, sample_images=0)
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
