"""Evaluation of a run on texts, and its report."""

import dataclasses
import json

import numpy as np
import pytest

from supcon_tf import config, evaluation, reports, run_files, training
from supcon_tf.training import runs
from tests import runs as catalogue
from tests import score_rows


@pytest.fixture(scope="module")
def results(finished_text_run):
    return evaluation.evaluate(
        config.EvaluateSettings(
            str(finished_text_run.path),
            batch_size=5,
            knn_neighbors=9,
            plane="pca",
        )
    )


def test_results_equal_the_file(results, finished_text_run):
    run = finished_text_run
    assert json.loads(run.evaluation_file.read_text()) == results
    score_rows.check(results)
    assert results["test_examples"] == 12 and results["bank_examples"] == 32
    assert "image_size" not in results
    assert results["encoder"] == run.best_checkpoint()
    best = max(epoch["validation_accuracy"] for epoch in run.metrics())
    assert results["validation"]["top_1"] == best
    for name in ("pretrained", "knn", "knn_majority"):
        assert results[name]["top_1"] > 0.9
        assert 0 < results[name]["macro_f1"] <= 1
        assert 0 < results[name]["mcc"] <= 1
    assert results["prototype"]["top_1"] > 0.9
    assert results["retrieval"]["recall_at"]["1"] > 0.5
    table = evaluation.results_table({"run": results})
    assert "linear" not in table and "stage 1 MCC" in table


def test_representations_equal_the_encoders(results, finished_text_run):
    encoder = training.load_encoder(finished_text_run.path)
    source = runs.open_run(finished_text_run.path).source("test")
    alone, labels = training.represent(encoder, source, batch_size=1)
    arrays = run_files.read_arrays(finished_text_run.representations_file)
    np.testing.assert_allclose(alone, arrays["representations"], atol=1e-5)
    np.testing.assert_array_equal(labels, arrays["labels"])
    assert arrays["ids"][0] == "test.tsv:2"


def test_samples_are_texts(results, finished_text_run):
    arrays = run_files.read_arrays(finished_text_run.samples_file)
    assert "views" not in arrays
    assert arrays["images"].shape == (8,)
    assert arrays["neighbors"].shape == (8, 8)
    assert {*arrays["images"]} <= {f"{a} {b}" for a in "ab" for b in "cdef"}
    projected = finished_text_run.projector / "metadata.tsv"
    head, first, *_ = projected.read_text().splitlines()
    assert head.endswith("id\ttext") and first.endswith("test.tsv:2\ta c")


def test_a_report_shows_texts(results, finished_text_run):
    """Mistakes too, which this run has none of: they are put in."""
    run = finished_text_run
    predictions = run_files.read_arrays(run.predictions_file)
    samples = run_files.read_arrays(run.samples_file)
    predictions["probabilities"][0] = predictions["probabilities"][0, ::-1]
    run_files.write_arrays(run.predictions_file, **predictions)
    run_files.write_arrays(
        run.samples_file,
        **samples | {"mistakes": ["<i>so&so"], "mistake_positions": [0]},
    )
    page = reports.write_report([run.path], run.report_file).read_text()
    assert "&lt;i&gt;so&amp;so</bdi><br><small>" in page
    assert "A test text and its neighbours" in page
    assert "12 texts for testing" in page and "test images" not in page
    assert "12 of them are training texts too" in page
    assert "finetune_text.py" in page
    for absent in ("Augmented views", "Corrupted images", "train_linear"):
        assert absent not in page


def test_a_run_without_a_test_file_says_so(finished_text_run, tmp_path):
    files = finished_text_run
    flags = files.settings_file.read_text().splitlines()
    other_flags = [line for line in flags if not line.startswith("--test_file")]
    (tmp_path / "settings.flags").write_text("\n".join(other_flags))
    for name in ("language_model", "best", "classes.json", "metrics.jsonl"):
        (tmp_path / name).symlink_to(files.path / name)
    with pytest.raises(ValueError, match="must be a run with a --test_file"):
        evaluation.evaluate(config.EvaluateSettings(str(tmp_path)))
    (tmp_path / "settings.flags").write_text("\n".join(flags))
    (tmp_path / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match="must have a line of epoch"):
        evaluation.evaluate(config.EvaluateSettings(str(tmp_path)))
    assert not (tmp_path / "encoded").exists()  # no work was lost


def test_test_texts_that_training_saw_are_counted_or_left_out(
    finished_text_run, tmp_path, capsys
):
    run = catalogue.copy(finished_text_run.path, tmp_path / "run")
    test_file = tmp_path / "test.tsv"
    test_file.write_text("sentence\tlabel\na c c c\t0\na c\t0\nb c c c\t1\n")
    settings = config.EvaluateSettings(
        str(run.path), test_file=str(test_file), knn_neighbors=9, plane="pca"
    )
    results = evaluation.evaluate(settings)
    assert results["test_examples"] == 3 and results["test_duplicates"] == 1
    printed = capsys.readouterr().out
    assert "1 of 3 test texts are, byte for byte, training texts" in printed
    remedy = "--drop_duplicates of tools/evaluate.py leaves them out"
    assert f"test.tsv:3; {remedy}" in printed
    settings = dataclasses.replace(settings, drop_duplicates=True)
    results = evaluation.evaluate(settings)
    assert results["test_examples"] == 2 and "test_duplicates" not in results
    assert "duplicates" not in capsys.readouterr().out
    settings = dataclasses.replace(settings, test_file=None)
    with pytest.raises(ValueError, match="no training examples, got 12 of 12"):
        evaluation.evaluate(settings)


def test_texts_have_no_corruptions(finished_text_run):
    settings = config.EvaluateSettings(
        str(finished_text_run.path), corruptions="generated"
    )
    with pytest.raises(ValueError, match="must be a run on images for corrup"):
        evaluation.evaluate(settings)
