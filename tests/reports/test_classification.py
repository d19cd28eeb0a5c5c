from __future__ import annotations

import re

import numpy as np

from supcon_tf.reports import classification, pictures
from tests.reports import run_files


def run_of(matrix, name="run", **filled):
    matrix = np.array(matrix)
    recall = [
        float(row[i] / row.sum()) if row.sum() else None
        for i, row in enumerate(matrix)
    ]
    linear = {
        "top_1": 0.5,
        "confusion_matrix": matrix.tolist(),
        "per_class_recall": recall,
    }
    names = tuple(f"c{i}" for i in range(len(matrix)))
    return run_files.bare_run(
        name, class_names=names, evaluation={"linear": linear}, **filled
    )


def words(markup):
    return re.sub("<[^>]*>", " ", markup).split()


def test_a_matrix_of_few_classes():
    run = run_of([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    body = classification.confusion_section([run]).body
    assert "Most often: <bdi>c0</bdi> taken for <bdi>c1</bdi>: 2 of 10" in body
    cells = re.findall(r"<td[^>]*>(\d*)</td>", body.split("<tbody>")[1])
    assert cells == ["8", "2", "", "1", "9", "", "", "", ""]
    paints = dict(re.findall(r'background:(#\w+)">(\d+)', body)[::-1])
    assert len(paints) == 4  # 8, 9: shades of blue; 1, 2: of orange
    red, blue = (
        [int(paint[i : i + 2], 16) for paint in paints] for i in (1, 5)
    )
    is_right = [int(count) > 2 for count in paints.values()]
    assert [b > r for r, b in zip(red, blue, strict=True)] == is_right


def test_pairs_of_many_classes():
    matrix = 10 * np.eye(31, dtype=int)
    matrix[3, 30], matrix[7, 1] = 4, 6
    section = classification.confusion_section([run_of(matrix)])
    assert "pairs of classes" in section.explanation
    rows = section.body.split("<tbody>")[1].split("<tr>")[1:]
    assert [words(row) for row in rows] == [
        ["c7", "c1", "6", "37.5", "%"],
        ["c3", "c30", "4", "28.6", "%"],
    ]


def test_no_confusion_is_said():
    body = classification.confusion_section([run_of(np.eye(2, dtype=int))]).body
    assert "No test image is confused." in body


def test_recalls_begin_with_the_lowest():
    first = run_of([[9, 1, 0], [5, 5, 0], [0, 0, 0]], "first")
    second = run_of([[4, 6, 0], [2, 8, 0], [0, 0, 0]], "second")
    body = classification.recall_section([first, second]).body
    lines = [words(x) for x in body.split('<span class="class">')[1:]]
    # Means 0.65 and 0.65: in the order of the classes; c2 has no images.
    assert [line[0] for line in lines] == ["c0", "c1"]
    assert lines[0] == ["c0", "10", "90.0", "%", "40.0", "%"]
    assert re.findall(r"left:([\d.]+)%", body) == [
        "90.0",
        "40.0",
        "50.0",
        "80.0",
    ]
    alone = classification.recall_section([first]).body
    assert alone.index(">c1<") < alone.index(">c0<")


def test_runs_of_different_classes_have_lists_of_their_own():
    runs = [run_of(np.eye(2, dtype=int)), run_of(np.eye(3, dtype=int), "b")]
    body = classification.recall_section(runs).body
    assert body.count('<ul class="recall">') == 2


def test_many_recalls_are_folded():
    body = classification.recall_section([run_of(np.eye(25, dtype=int))]).body
    shown, folded = body.split("<details>")
    assert shown.count('class="class"') == 20
    assert folded.count('class="class"') == 5
    assert "The other 5 classes" in folded


# Two mistakes: b, and before it d.
PREDICTIONS = {
    "ids": np.array(["a", "b", "c", "d"]),
    "labels": np.array([0, 0, 1, 1]),
    "probabilities": np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]]),
}


def test_the_surest_mistakes_come_first():
    run = run_of(np.eye(2, dtype=int), predictions=PREDICTIONS)
    body = classification.mistakes_section([run]).body
    rows = [words(row) for row in body.split("<tbody>")[1].split("<tr>")[1:]]
    assert rows == [
        ["d", "c1", "c0", "70.0", "%"],
        ["b", "c0", "c1", "60.0", "%"],
    ]
    assert "2 of 4 test images are wrong" in body


def test_mistakes_are_pictures_where_they_are_stored():
    images = np.random.default_rng(0).integers(0, 256, [2, 8, 8, 3], np.uint8)
    samples = {"mistakes": images, "mistake_positions": np.array([3, 1])}
    run = run_of(np.eye(2, dtype=int), predictions=PREDICTIONS, samples=samples)
    body = classification.mistakes_section([run]).body
    assert "<table" not in body
    shown = body.split('<figure class="pictured ')[1:]
    addresses = [re.search('src="([^"]*)"', x)[1] for x in shown]
    assert addresses == [pictures.data_uri(pixels) for pixels in images]
    spoken = [re.search('alt="([^"]*)"', x)[1] for x in shown]
    assert spoken[0] == "d: c1, taken for c0, confidence 70.0\xa0%"
    assert words(body)[-16:] == [
        *["c1", "taken", "for", "c0", ",", "70.0", "%", "d"],
        *["c0", "taken", "for", "c1", ",", "60.0", "%", "b"],
    ]
    assert "2 of 4 test images are wrong" in body


def test_empty_bins_are_no_bars():
    labels = np.array([0, 1] * 10)
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4]] * 10)
    linear = run_files.classifier_results(labels, probabilities)
    assert linear["calibration_bins"]["accuracy"].count(None) == 13
    run = run_files.bare_run(evaluation={"linear": linear})
    section = classification.calibration_section([run])
    assert f"calibration error {linear['ece']:.3f}" in section.body
    assert not section.absent
