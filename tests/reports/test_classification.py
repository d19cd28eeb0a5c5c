from __future__ import annotations

import re

import numpy as np

from supcon_tf import measures
from supcon_tf.reports import classification, figures
from tests.reports import pages, run_files


def measured_run(matrix, name="run", **filled):
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


def test_a_matrix_of_few_classes():
    body = pages.section(
        "confusions", measured_run([[8, 2, 0], [1, 9, 0], [0, 0, 0]])
    )
    assert "Most often: c0 taken for c1 : 2 of 10; c1" in pages.words(body)
    cells = re.findall(r"<td[^>]*>(\d*)</td>", body.split("<tbody>")[1])
    assert cells == ["8", "2", "", "1", "9", "", "", "", ""]
    paints = dict(re.findall(r'background:(#\w+)">(\d+)', body)[::-1])
    assert len(paints) == 4  # 8, 9: shades of blue; 1, 2: of orange
    red, blue = (
        [int(paint[i : i + 2], 16) for paint in paints] for i in (1, 5)
    )
    is_right = [int(count) > 2 for count in paints.values()]
    assert [b > r for r, b in zip(red, blue, strict=True)] == is_right
    body = pages.section("confusions", measured_run(np.eye(2, dtype=int)))
    assert "Nothing is confused." in body


def test_pairs_of_many_classes():
    matrix = 10 * np.eye(31, dtype=int)
    matrix[3, 30], matrix[7, 1] = 4, 6
    body = pages.section("confusions", measured_run(matrix))
    assert "pairs of classes" in body
    assert pages.rows(body)[-2:] == [
        ["c7", "c1", "6", "37.5 %"],
        ["c3", "c30", "4", "28.6 %"],
    ]


def test_confusions_of_more_classes_than_a_matrix_has():
    """As evaluate lists them; and recalls, of which a page has 500."""
    labels = np.arange(3000) % 1000
    predicted = labels.copy()
    predicted[[3, 1003, 8]] = 77
    confusions = measures.confusions(predicted, labels, 1000)
    recall = measures.per_class_recall(predicted, labels, 1000)
    run = run_files.bare_run(
        class_names=tuple(f"c{i}" for i in range(1000)),
        evaluation={"linear": {**confusions, "per_class_recall": recall}},
    )
    body = pages.section("confusions", run)
    assert pages.rows(body)[1:] == [
        ["c3", "c77", "2", "66.7 %"],
        ["c8", "c77", "1", "33.3 %"],
    ]
    body = pages.section("recall", run)
    lead, folded = body.split("<details>")
    assert lead.count('class="class"') == 20
    assert folded.count('class="class"') == 480
    assert "The other 480 classes" in body
    assert "500 classes of a higher recall are not listed" in body
    assert ">c3</bdi> <small>3</small>" in body


def test_recalls_begin_with_the_lowest():
    first = measured_run([[9, 1, 0], [5, 5, 0], [0, 0, 0]], "first")
    second = measured_run([[4, 6, 0], [2, 8, 0], [0, 0, 0]], "second")
    body = pages.section("recall", first, second)
    lines = [
        pages.words(markup) for markup in body.split('<span class="class">')[1:]
    ]
    # Means 0.65 and 0.65: in the order of the classes; c2 has no images.
    assert lines == ["c0 10 90.0 % 40.0 %", "c1 10 50.0 % 80.0 %"]
    percentages = re.findall(r"left:([\d.]+)%", body)
    assert percentages == ["90.0", "40.0", "50.0", "80.0"]
    alone = pages.section("recall", first)
    assert alone.index(">c1<") < alone.index(">c0<")


def test_runs_of_different_classes_have_lists_of_their_own():
    runs = [
        measured_run(np.eye(2, dtype=int)),
        measured_run(np.eye(3, dtype=int), "b"),
    ]
    groups = classification.recall(runs)
    assert [len(group["lines"]) for group in groups] == [2, 3]


# Two mistakes: b, and before it d.
PREDICTIONS = {
    "ids": np.array(["a", "b", "c", "x/d"]),
    "labels": np.array([0, 0, 1, 1]),
    "probabilities": np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.7, 0.3]]),
}


def test_the_surest_mistakes_come_first():
    run = measured_run(np.eye(2, dtype=int), predictions=PREDICTIONS)
    body = pages.section("mistakes", run)
    assert pages.rows(body)[1:] == [
        ["x/ d", "c1", "c0", "70.0 %"],
        ["b", "c0", "c1", "60.0 %"],
    ]
    assert "x/<wbr>d" in body
    assert "2 of 4 test images are wrong" in body


def test_mistakes_by_the_most_probable_classes_alone():
    """As predictions.npz has them where all would be gigabytes."""
    order = np.argsort(-PREDICTIONS["probabilities"], axis=1)
    ranked = PREDICTIONS | {
        "classes": order,
        "probabilities": np.sort(PREDICTIONS["probabilities"])[:, ::-1],
    }
    section, ranked_section = (
        pages.section(
            "mistakes",
            measured_run(np.eye(2, dtype=int), predictions=predictions),
        )
        for predictions in (PREDICTIONS, ranked)
    )
    assert section == ranked_section


def test_mistakes_are_pictures_where_they_are_stored():
    images = np.random.default_rng(0).integers(0, 256, [2, 8, 8, 3], np.uint8)
    samples = {"mistakes": images, "mistake_positions": np.array([3, 1])}
    run = measured_run(
        np.eye(2, dtype=int), predictions=PREDICTIONS, samples=samples
    )
    body = pages.section("mistakes", run)
    assert "<table" not in body
    pictures = body.split('<figure class="pictured ')[1:]
    addresses = [re.search('src="([^"]*)"', picture)[1] for picture in pictures]
    assert addresses == [figures.data_uri(pixels) for pixels in images]
    spoken = [re.search('alt="([^"]*)"', picture)[1] for picture in pictures]
    assert spoken[0] == "x/d: c1, taken for c0, confidence 70.0\xa0%"
    text = pages.words(body)
    assert text.endswith(
        "c1 taken for c0 , 70.0 % x/ d c0 taken for c1 , 60.0 % b"
    )
    assert "2 of 4 test images are wrong" in text


def test_empty_bins_are_no_bars():
    labels = np.array([0, 1] * 10)
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4]] * 10)
    linear = measures.classification_summary(probabilities, labels)
    assert linear["calibration_bins"]["count"].count(0) == 13
    run = run_files.bare_run(evaluation={"linear": linear})
    body = pages.section("calibration", run)
    assert f"calibration error {linear['ece']:.3f}" in body
    assert "Not made yet" not in body


def test_unknown_images_have_a_histogram_of_each_score():
    histogram = {"edges": [0.0, 0.5, 1.0], "known": [1, 3], "unknown": [4, 1]}
    unknown = {"images": 5, "k": 3}
    for name, rate in (("neighbors", 0.25), ("max_softmax", 0.75)):
        unknown[name] = {"fpr95": rate, "histogram": histogram}
    run = measured_run([[1, 0], [0, 1]])
    assert "--unknown_data=DIR" in pages.left_out(run)
    run.evaluation["unknown"] = unknown
    body = pages.section("unknown", run)
    assert pages.titles(body) == [
        "Cosine to the k-th neighbour",
        "Highest probability",
    ]
    assert "FPR95 25.0 %" in body.replace("\xa0", " ")
    assert "5 unknown images" in pages.words(body)
    drawing = figures.plot_histograms(histogram, "label", xlabel="score")
    for text in ("known", "unknown", "80%"):  # 4 of 5
        assert f">{text}<" in drawing
