"""Unknown images in an evaluation: scores of belonging, refusals."""

import json

import numpy as np
import pytest
from PIL import Image

from supcon_tf import config, data, evaluation, measures, training
from tests import score_rows


@pytest.fixture(scope="module")
def unknown_folder(tmp_path_factory):
    """Images of no class, of every second pixel black."""
    folder = tmp_path_factory.mktemp("unknown")
    rng = np.random.default_rng(0)
    for index in range(5):
        pixels = rng.integers(0, 2, [20, 24, 3], np.uint8) * 255
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def settings_of(run, **options):
    pictures = {"sample_images": 0, "plotted_images": 0}
    return config.EvaluateSettings(str(run.path), **pictures, **options)


def test_scores_of_belonging_are_those_of_arrays(
    copy_run, tmp_path, unknown_folder
):
    files = copy_run(tmp_path / "run")
    settings = settings_of(files, unknown_data=str(unknown_folder))
    results = evaluation.evaluate(settings)
    score_rows.check(results)
    measured = results["unknown"]
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
    represented = {"unknown": run.encoder(pixels).numpy()}
    for split in ("train", "test"):
        represented[split], labels = training.represent(
            run.encoder, run.source(split), image_size=16
        )
        if split == "train":
            bank_labels = labels
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
    assert stored["unknown"] == measured


def test_what_does_not_fit_is_refused(finished_run, tmp_path, unknown_folder):
    for options, message in (
        ({"unknown_data": str(tmp_path / "none")}, "`data_dir` must be a fold"),
        (
            {"unknown_data": str(unknown_folder), "bank_images": 0},
            "--unknown_data must be left out with --bank_images=0",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            evaluation.evaluate(settings_of(finished_run, **options))
