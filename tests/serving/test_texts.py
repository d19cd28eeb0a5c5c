"""Exports that take texts: what they answer, alone and behind a server."""

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tokenizers

from supcon_tf import (
    clients,
    config,
    evaluation,
    run_files,
    serving,
    text,
    training,
)
from supcon_tf.clients import paths
from supcon_tf.serving import metadata
from supcon_tf.training import runs
from tests import model_server

# Runs where neither supcon_tf nor transformers can be imported.
FRESH_PROCESS = """
import sys
sys.modules["supcon_tf"] = sys.modules["transformers"] = None
import numpy as np
import tensorflow as tf
texts = tf.constant(sys.argv[3:])
arrays = {}
for name, signature in tf.saved_model.load(sys.argv[1]).signatures.items():
    for key, value in signature(text=texts).items():
        value = value.numpy()
        value = value.astype(str) if value.dtype == object else value
        arrays[f"{name}/{key}"] = value
np.savez(sys.argv[2], **arrays)
"""


@pytest.fixture(scope="module")
def exported(finished_text_run):
    path = str(finished_text_run.path)
    evaluation.evaluate(config.EvaluateSettings(path, plotted_images=0))
    settings = config.ExportSettings(path, prototypes=True)
    return serving.export(settings)


@pytest.mark.slow
def test_another_process_answers_as_evaluation_did(
    exported, finished_text_run, tmp_path
):
    source = runs.open_run(finished_text_run.path).source("test")
    subprocess.run(
        [
            *(sys.executable, "-c", FRESH_PROCESS, str(exported)),
            *(str(tmp_path / "answers.npz"), *source.texts),
        ],
        check=True,
    )
    answers = np.load(tmp_path / "answers.npz")
    predictions = run_files.read_arrays(finished_text_run.predictions_file)
    np.testing.assert_allclose(
        answers["serving_default/probabilities"],
        predictions["probabilities"],
        atol=1e-5,
    )
    encoder = training.load_encoder(finished_text_run.path)
    expected, _ = training.represent(encoder, source)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    represented = answers["represent/representation"]
    np.testing.assert_allclose(represented, expected, atol=1e-5)
    names = answers["serving_default/class_names"][0]
    assert names.tolist() == ["0", "1"]
    nearest = answers["classify_by_neighbours/predicted_class"]
    assert (nearest == names[predictions["labels"]]).mean() > 0.9


def test_the_record_says_what_was_exported(exported, finished_text_run):
    paths.check_files(exported)
    record = json.loads((exported / "assets.extra/metadata.json").read_text())
    assert record["max_length"] == 8 and "image_size" not in record
    assert record["metrics"]["test_examples"] == 12
    assert record["metrics"]["pretrained"]["mcc"] > 0.9
    card = record["card"]
    assert card["Model"]["Encoder"].endswith("pooling cls; max_length 8")
    assert card["Model"]["Classes"] == "2: 0, 1"
    assert card["Model"]["Input"].startswith("texts; UTF-8; WordPiece of the")
    assert card["Data"]["Split test"] == "12 texts, 6 to 6 of a class"
    top_1 = card["Measures"]["Top-1 accuracy, trained together"]
    assert top_1.endswith("to 100.0%)")
    assert "mCE" not in card["Measures"]
    assert (exported / metadata.CARD).read_text().startswith("# Model card of")
    names = {"serving_default", "represent", "classify_by_neighbours"}
    assert set(record["signatures"]) == names
    body = json.loads((exported / "assets.extra/request.json").read_text())
    assert list(body["instances"][0]) == ["text"]


def test_the_record_says_which_tokenizer_it_is(
    exported, finished_text_run, tmp_path
):
    """That of RoBERTa is no WordPiece; in the card too."""
    trained = tokenizers.ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(["a b c d"], 270, special_tokens=special)
    trained.save_model(str(tmp_path))
    files = (str(tmp_path / name) for name in ("vocab.json", "merges.txt"))
    roberta = text.import_transformers().RobertaTokenizerFast(*files)
    roberta.save_pretrained(tmp_path / "roberta")

    run = shutil.copytree(finished_text_run.path, tmp_path / "run")
    shutil.rmtree(run / "language_model")
    shutil.copytree(tmp_path / "roberta", run / "language_model")
    directory = shutil.copytree(exported, tmp_path / "1")
    opened = runs.open_run(run)
    settings = config.ExportSettings(str(run), prototypes=True)
    representation = {"representation": tf.TensorSpec([None, 8], tf.float32)}
    signatures = {"represent": {"inputs": {}, "outputs": representation}}
    metadata.write_metadata(
        directory, opened, settings, "pretrained", 0, signatures
    )
    record = json.loads((directory / metadata.FILE).read_text())
    assert record["preprocessing"].startswith("UTF-8; byte-level BPE of the")
    assert "byte-level BPE" in record["card"]["Model"]["Input"]
    assert "WordPiece" not in (directory / metadata.CARD).read_text()


def test_both_ways_to_ask_give_the_same(exported, finished_text_run, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"b d\r\n\n  \na \xc3\xa9, c")
    written = []
    run = finished_text_run.path
    with model_server.ModelServer(run / "export", "mine") as server:
        for index, address in enumerate((None, server.rest)):
            output = tmp_path / f"{index}.csv"
            settings = config.PredictSettings(
                str(run),
                text=("a c",),
                text_files=(str(lines),),
                server=address,
                model_name="mine" if address else None,
                output=str(output),
                top=0,
            )
            assert clients.predict(settings) == 0
            written.append([*csv.DictReader(output.read_text().splitlines())])
    for row in written[0]:
        assert list(row) == ["text", "predicted_class", "probability", "error"]
    assert [row["text"] for row in written[0]] == ["a c", "b d", "a é, c"]
    assert [row["predicted_class"] for row in written[0][:2]] == ["0", "1"]
    for rows in written[1:]:
        for answer, other in zip(written[0], rows, strict=True):
            a, b = (
                float(record.pop("probability"))
                for record in (dict(answer), other)
            )
            assert a == pytest.approx(b, abs=1e-5)


def test_what_is_wrong_is_named(exported, finished_text_run, tmp_path):
    run = str(finished_text_run.path)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")
    image = tmp_path / "x.png"
    image.touch()
    for options, message in (
        ({"text_files": (str(bad),)}, "bad.txt:2 must be UTF-8"),
        ({"text_files": ("none.txt",)}, "no file none.txt"),
        ({"text": (" ",)}, "--text must not be empty"),
        ({"images": (str(image),)}, "takes image files, which has none"),
        (
            {"text": ("a",), "images": (str(image),)},
            "--images must be left out with texts",
        ),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            clients.predict(config.PredictSettings(run, **options))
    with pytest.raises(ValueError, match="--max_batch_size must be left out"):
        serving.export(config.ExportSettings(run, max_batch_size=8))
    assert len([*finished_text_run.export.iterdir()]) == 1
