"""Answers as CSV, JSON and JSON lines."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import pytest

from supcon_tf.clients import output

CLASSIFIED = [
    {"path": "bad.jpg", "error": "no image, but\ntext"},
    {
        "path": "a.jpg",
        "class_names": ["cat", "dog, big", "ü"],
        "predicted_class": "dog, big",
        "probabilities": [0.25, 0.4285714328289032, 0.25],
    },
    {"path": "worse.jpg", "error": "empty"},
]
REPRESENTED = [
    {"path": "a.jpg", "representation": [0.5, -1.0], "count": 3},
    {"path": "bad.jpg", "error": "no image"},
]


def read_csv(lines):
    return list(csv.reader("".join(lines).splitlines(keepends=True)))


def test_csv_of_a_classifier():
    header, bad, good, worse = read_csv(output.csv_lines(CLASSIFIED, top=2))
    assert ",".join(header) == (
        "path,predicted_class,probability,top_1_class,top_1_probability,"
        "top_2_class,top_2_probability,error"
    )
    # Of equal ones the first, as TensorFlow's top_k has them.
    best, second = ["dog, big", "0.428571433"], ["cat", "0.25"]
    assert good == ["a.jpg", *best, *best, *second, ""]
    assert bad == ["bad.jpg", *[""] * 6, "no image, but\ntext"]
    assert worse == ["worse.jpg", *[""] * 6, "empty"]
    nothing = CLASSIFIED[1] | {"predicted_class": ""}  # below the threshold
    _, line = read_csv(output.csv_lines([nothing], top=1))
    assert line == ["a.jpg", "", best[1], *best, ""]


def test_no_cell_is_a_formula():
    named = ["=1+1", "@SUM(A1)", "+1", "-", "-0.5", "\t=1", "a=1"]
    row = {
        "path": '=cmd|"/c calc"!A0.png',
        "class_names": named,
        "predicted_class": named[0],
        "probabilities": [0.2, 0.1, 0.05, 0.04, 0.03, 0.02, 0.01],
    }
    failed = {"path": "-a.png", "error": "=2+2"}
    _, cells, error = read_csv(output.csv_lines([row, failed], top=7))
    assert cells[0] == '\'=cmd|"/c calc"!A0.png' and cells[1] == "'=1+1"
    marked = ["'=1+1", "'@SUM(A1)", "+1", "'-", "-0.5", "'\t=1", "a=1"]
    assert cells[3:-1:2] == marked
    assert (error[0], error[-1]) == ("'-a.png", "'=2+2")
    (line,) = output.json_lines([row])
    assert list(json.loads(line)["probabilities"]) == named


def test_csv_of_other_rows():
    header, *_ = read_csv(output.csv_lines(CLASSIFIED, top=9))  # there are 3
    assert header[-3:-1] == ["top_3_class", "top_3_probability"]
    header, *_ = read_csv(output.csv_lines(CLASSIFIED, top=0))
    assert header == ["path", "predicted_class", "probability", "error"]
    row = dict(CLASSIFIED[1])
    row["similarities"] = row.pop("probabilities")
    header, _ = read_csv(output.csv_lines([row], top=1))
    assert header[2:5] == ["similarity", "top_1_class", "top_1_similarity"]
    header, line, bad = read_csv(output.csv_lines(REPRESENTED))
    columns = "path,representation_0,representation_1,count,error"
    assert ",".join(header) == columns
    assert line == ["a.jpg", "0.5", "-1.0", "3", ""]
    assert bad == ["bad.jpg", "", "", "", "no image"]
    bad = [row for row in CLASSIFIED if "error" in row]
    assert read_csv(output.csv_lines(bad)) == [
        ["path", "error"],
        ["bad.jpg", "no image, but\ntext"],
        ["worse.jpg", "empty"],
    ]


def test_outputs_of_another_model_may_have_the_names_of_ours(tmp_path):
    row = {"path": "a", "class_names": "cat", "probabilities": 0.5}
    header, line = read_csv(output.csv_lines([row]))
    assert header == ["path", "class_names", "probabilities", "error"]
    assert line == ["a", "cat", "0.5", ""]
    (line,) = output.json_lines([row])
    assert json.loads(line) == row
    # As a model that reads writing in photographs has it.
    row = {"path": "a", "text": "EXIT"}
    header, line = read_csv(output.csv_lines([row]))
    assert (header, line) == (["path", "text", "error"], ["a", "EXIT", ""])
    scores = {"probabilities": [0.5], "similarities": [0.25]}
    (line,) = output.json_lines([{"class_names": ["cat"], **scores}])
    names = {name: {"cat": value} for name, (value,) in scores.items()}
    assert json.loads(line).items() >= names.items()


def test_json_has_everything_by_the_names_of_the_classes(tmp_path):
    output.write(CLASSIFIED, tmp_path / "new" / "out.JSONL")
    lines = (tmp_path / "new" / "out.JSONL").read_text("utf-8").splitlines()
    bad, good, worse = map(json.loads, lines)
    assert good == {
        "path": "a.jpg",
        "predicted_class": "dog, big",
        "probability": 0.428571433,
        "probabilities": {"cat": 0.25, "dog, big": 0.428571433, "ü": 0.25},
    }
    assert bad == CLASSIFIED[0] and worse == CLASSIFIED[2]
    output.write(CLASSIFIED, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == [bad, good, worse]
    output.write(REPRESENTED, tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == REPRESENTED
    assert json.loads("".join(output.json_document([]))) == []


def test_a_file_of_answers_is_whole_or_unchanged(tmp_path):
    def rows():
        yield CLASSIFIED[1]
        raise RuntimeError("gone")

    for suffix in (".csv", ".json", ".jsonl"):
        file = tmp_path / f"out{suffix}"
        file.write_text("earlier")
        with pytest.raises(RuntimeError, match="gone"):
            output.write(rows(), file)
        assert file.read_text() == "earlier"
    assert len(os.listdir(tmp_path)) == 3


def test_a_reader_that_has_enough_ends_the_writing():
    code = (
        "import itertools\n"
        "from supcon_tf.clients import output\n"
        "output.write({'path': 'a', 'x': i} for i in itertools.count())\n"
    )
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **piped) as writer:
        lines = [writer.stdout.readline() for _ in range(2)]
        assert lines == ["path,x,error\n", "a,0,\n"]
        writer.stdout.close()
        assert writer.wait(600) == 0
        assert writer.stderr.read() == ""
