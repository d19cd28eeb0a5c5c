"""Unknown images in an evaluation: scores of belonging, refusals."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from supcon_tf import data, evaluation, measures, reports, training
from supcon_tf.evaluation import splits, unknown
from supcon_tf.training import input_pipeline
from tests import runs, score_rows


@pytest.fixture(scope="module")
def unknown_folder(tmp_path_factory):
    """Images of no class, of every second pixel black."""
    folder = tmp_path_factory.mktemp("unknown")
    rng = np.random.default_rng(0)
    for index in range(5):
        pixels = rng.integers(0, 2, [20, 24, 3], np.uint8) * 255
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def test_scores_of_belonging_are_those_of_arrays(
    copy_run, tmp_path, unknown_folder
):
    files = copy_run(tmp_path / "run")
    settings = runs.evaluation_settings(
        files.path, unknown_data=str(unknown_folder)
    )
    results = evaluation.evaluate(settings)
    score_rows.check(results)
    measured = results["unknown"]
    for name in ("neighbors", "mahalanobis", "max_softmax"):
        histogram = measured[name].pop("histogram")
        assert len(histogram["edges"]) == 1 + len(histogram["known"])
        assert sum(histogram["known"]) == results["test_examples"]
        assert sum(histogram["unknown"]) == 5
    assert {*measured} == {
        *("images", "k", "neighbors", "mahalanobis", "max_softmax")
    }
    assert (measured["images"], measured["k"]) == (5, 16)
    run = training.Run.open(files.path)
    pixels = np.stack(
        [
            data.decode_central_view(path.read_bytes(), 16)
            for path in sorted(unknown_folder.iterdir())
        ]
    )
    represent = training.representations.representer(run.encoder, image_size=16)
    represented = {"unknown": run.encoder(pixels).numpy()}
    represented["train"], bank_labels = represent(run.source("train"))
    represented["test"], _ = represent(run.source("test"))
    for name, score in {
        "neighbors": lambda rows: measures.neighbor_scores(
            rows, represented["train"], 16
        ),
        "mahalanobis": lambda rows: measures.mahalanobis_scores(
            rows, represented["train"], bank_labels
        ),
    }.items():
        expected = measures.unknown_summary(
            score(represented["test"]), score(represented["unknown"])
        )
        for key, value in expected.items():
            assert measured[name][key] == pytest.approx(value, abs=1e-3), key
    table = evaluation.results_table({"run": results})
    assert "unknown by softmax" in table and "FPR95" in table
    stored = json.loads(files.stage("linear").evaluation_file.read_text())
    for name, summary in measured.items():
        if isinstance(summary, dict):
            stored["unknown"][name].pop("histogram")
    assert stored["unknown"] == measured
    page = reports.write_report([files.path], tmp_path / "report.html")
    assert "Minus the Mahalanobis distance" in page.read_text()


def test_classes_can_be_held_out_of_a_run(tiny_settings, tmp_path):
    settings = tiny_settings(unknown_classes=("mid",), epochs=0)
    everything = input_pipeline.source(tiny_settings(), "test")
    is_mid = everything.labels == everything.class_names.index("mid")
    for split in ("train", "test"):
        part = input_pipeline.source(settings, split)
        assert part.class_names == ("bright", "dark")
        assert {*part.labels} == {0, 1}
        assert not any("/mid/" in path for path in part.ids)
    training.pretrain(settings)
    measured = evaluation.evaluate(
        runs.evaluation_settings(settings.run_dir, knn_neighbors=3)
    )
    assert measured["test_examples"] == (~is_mid).sum()
    assert measured["unknown"]["images"] == is_mid.sum()
    assert "max_softmax" not in measured["unknown"]  # no classifier
    for names, message in (
        (("pink", "dark"), "must be classes of the data, train has .*got pink"),
        (("mid", "dark"), "must leave two classes or more, got bright"),
    ):
        with pytest.raises(ValueError, match=message):
            input_pipeline.source(tiny_settings(unknown_classes=names), "train")


def test_unknown_classes_without_test_images_are_not_scored(
    tiny_settings, image_folder, tmp_path, capsys
):
    """The run has been trained by then: all other scores remain."""
    shutil.copytree(image_folder, tmp_path / "images")
    shutil.rmtree(tmp_path / "images/test/mid")
    settings = tiny_settings(
        data_dir=tmp_path / "images", unknown_classes=("mid",), epochs=0
    )
    training.pretrain(settings)
    run = training.Run.open(settings.run_dir)
    assert unknown.read(runs.evaluation_settings(settings.run_dir), run) is None
    assert "not scored: no test images of mid" in capsys.readouterr().out


def test_classes_of_one_image_have_no_distance(finished_run, capsys):
    """All other scores remain."""
    run = training.Run.open(finished_run.path)
    split = splits.EncodedSplit(run.source("test"), np.eye(3), np.arange(3), 16)
    measured = unknown.measure(
        runs.evaluation_settings(finished_run.path),
        split,
        split,
        run.source("test"),
        represent=lambda images: (np.eye(3)[:2] + 1, None),
        classify=lambda rows: {},
    )
    assert {*measured} == {"images", "k", "neighbors"}
    assert "no score by distance: `bank` must have" in capsys.readouterr().out


def test_scores_that_hardly_differ_have_a_histogram():
    """As those of a collapsed encoder: bins narrower than float32 has."""
    known = np.array([1, 1], np.float32)
    summary = unknown._summary(known, np.nextafter(known, np.float32(0)))
    histogram = summary["histogram"]
    assert (np.diff(histogram["edges"]) > 0).all()
    assert histogram["known"][-1] == histogram["unknown"][0] == 2


def test_bad_images_are_refused_or_skipped(
    finished_run, tmp_path, unknown_folder, capsys
):
    folder = tmp_path / "other"
    shutil.copytree(unknown_folder, folder)
    (folder / "bad.png").touch()
    run = training.Run.open(finished_run.path)
    settings = runs.evaluation_settings(
        finished_run.path, unknown_data=str(folder)
    )
    with pytest.raises(
        ValueError, match="`unknown_data` must .* bad.png .*`skip_bad_images`"
    ):
        unknown.read(settings, run)
    settings = dataclasses.replace(settings, skip_bad_images=True)
    assert unknown.read(settings, run).num_examples == 5
    assert "bad files skipped: 1: bad.png" in capsys.readouterr().out
    with pytest.raises(ValueError, match="must be left out without --unknown"):
        runs.evaluation_settings(finished_run.path, skip_bad_images=True)


def test_images_of_the_run_and_lost_folders_are_refused(
    finished_run, image_folder, tmp_path, unknown_folder
):
    trained_on = str(image_folder / "train/dark")
    for options, message in (
        ({"unknown_data": trained_on}, "the train split, which are known, got"),
        ({"unknown_data": str(tmp_path / "none")}, "`unknown_data` must be a"),
        (
            {"unknown_data": str(unknown_folder), "bank_images": 0},
            "--unknown_data must be left out with --bank_images=0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.evaluate(
                runs.evaluation_settings(finished_run.path, **options)
            )
