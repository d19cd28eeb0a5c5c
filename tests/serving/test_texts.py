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
def test_a_fresh_process_answers_as_evaluation_did(
    exported, finished_text_run, tmp_path
):
    source = runs.open_run(finished_text_run.path).source("test")
    file = str(tmp_path / "answers.npz")
    arguments = [FRESH_PROCESS, str(exported), file, *source.texts]
    subprocess.run([sys.executable, "-c", *arguments], check=True)
    answers = np.load(file)
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


def test_the_record_describes_the_export(exported, finished_text_run):
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


def test_the_record_names_the_tokenizer(exported, finished_text_run, tmp_path):
    """The tokenizer of RoBERTa is no WordPiece, also in the card."""
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


def test_export_and_server_give_the_same_answers(
    exported, finished_text_run, tmp_path
):
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"b d\r\n\n  \na \xc3\xa9, c")
    run, tables = finished_text_run.path, []
    with model_server.ModelServer(run / "export", "mine") as server:
        for address in (None, server.rest):
            output = tmp_path / "answers.csv"
            settings = config.PredictSettings(
                str(run),
                text=("a c",),
                text_files=(str(lines),),
                server=address,
                model_name="mine" if address else None,
                output=str(output),
                overwrite=True,
                top=0,
            )
            assert clients.predict(settings) == 0
            tables.append([*csv.DictReader(output.read_text().splitlines())])
    probabilities = [
        [float(row.pop("probability")) for row in rows] for rows in tables
    ]
    assert probabilities[0] == pytest.approx(probabilities[1], abs=1e-5)
    assert tables[0] == tables[1]
    assert list(tables[0][0]) == ["text", "predicted_class", "error"]
    assert [row["text"] for row in tables[0]] == ["a c", "b d", "a é, c"]
    assert [row["predicted_class"] for row in tables[0][:2]] == ["0", "1"]


def test_wrong_inputs_are_named(exported, finished_text_run, tmp_path):
    run = str(finished_text_run.path)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")
    table = tmp_path / "test.TSV"
    table.write_text("sentence\tlabel\na c\t0\n")
    image = tmp_path / "x.png"
    image.touch()
    for options, message in (
        ({"text_files": (str(bad),)}, "bad.txt:2 must be UTF-8"),
        ({"text_files": ("none.txt",)}, "no file none.txt"),
        ({"text": (" ",)}, "--text must not be empty"),
        ({"text_files": (str(table),)}, "neither header nor labels.*test.TSV"),
        ({"images": (str(image),)}, "must take image files; texts are given "),
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
