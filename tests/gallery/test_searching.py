"""Galleries of a trained run: indexed, grown, searched, by tools and Python."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import supcon_tf
from supcon_tf import config, gallery, measures, serving, training
from supcon_tf.gallery import belonging, searching
from supcon_tf.serving import bank
from tests import forks, processes


@pytest.fixture(scope="module")
def folders(tmp_path_factory, image_folder):
    """Images with a class that the run has not seen, and loose images."""
    root = tmp_path_factory.mktemp("galleries")
    shutil.copytree(image_folder / "train", root / "known")
    rng = np.random.default_rng(1)
    (root / "new" / "odd").mkdir(parents=True)
    for index in range(3):
        pixels = rng.integers(0, 255, [20, 24, 3], np.uint8)
        Image.fromarray(pixels).save(root / "new" / "odd" / f"{index}.png")
    (root / "loose").mkdir()
    shutil.copy(root / "new" / "odd" / "0.png", root / "loose" / "a.png")
    return root


@pytest.fixture
def index(copied_run, folders):
    """Runs the tool on a copy of a run; paths are relative to the folders."""

    def call(**options):
        for name in ("data_dir", "add", "known_data"):
            if name in options:
                options[name] = str(folders / options[name])
        settings = config.IndexSettings(str(copied_run.path), **options)
        return gallery.index(settings)

    return call


@pytest.fixture
def copied_run(copy_run, tmp_path):
    return copy_run(tmp_path / "run")


def test_a_gallery_has_the_representations_of_the_run(index, copied_run):
    shelf = index(data_dir="known")
    run = training.Run.open(copied_run.path)
    rows, labels = training.represent(
        run.encoder, run.source("train"), image_size=run.image_size
    )
    assert shelf.class_names == run.class_names
    assert np.array_equal(shelf.labels, labels)
    np.testing.assert_allclose(shelf.representations, rows, atol=1e-6)
    assert shelf.made_of == run.identity
    score, aurocs = belonging.choose_score(shelf)
    assert (shelf.threshold.score, shelf.threshold.aurocs) == (score, aurocs)
    assert shelf.threshold == belonging.fit(shelf, 0.95)
    assert shelf.threshold.known_rate == 0.95


def test_a_threshold_by_some_rows(index, monkeypatch):
    """Of a large gallery; two equal rows are each other's nearest."""
    shelf = index(data_dir="known")
    rows = np.arange(0, 48, 3)
    scores = belonging._cosines_to_others(shelf, rows)
    bank_rows = shelf.representations
    expected = measures.neighbor_scores(
        bank_rows, bank_rows, leave_one_out=True
    )
    np.testing.assert_allclose(scores, expected[rows], atol=1e-6)
    twice = dataclasses.replace(shelf, representations=np.ones_like(bank_rows))
    assert belonging._cosines_to_others(twice, rows) == pytest.approx(1)
    monkeypatch.setattr(belonging, "_MOST_THRESHOLD_ROWS", 3)
    few = belonging._cosines_to_others(shelf, np.arange(48))
    np.testing.assert_allclose(few, expected[[0, 16, 32]], atol=1e-6)


def test_a_gallery_grows_by_what_it_lacks(index, capsys, folders):
    index(data_dir="known")
    shelf = index(add="new")
    assert shelf.class_counts() == {
        "bright": 16,
        "dark": 16,
        "mid": 16,
        "odd": 3,
    }
    assert index(add="new").ids == shelf.ids
    assert "there already 3 of 3" in capsys.readouterr().out
    loose = index(add="loose")
    assert loose.ids[-1] == str(folders / "loose" / "a.png")
    assert loose.class_name(loose.labels[-1]) is None
    assert index(remove=(loose.ids[-1],)).ids == shelf.ids
    remaining = index(remove_class=("odd", "mid"))
    assert remaining.class_counts() == {"bright": 16, "dark": 16}


def test_the_rate_stays(index):
    index(data_dir="known")
    shelf = index(known_rate=0.5)
    assert shelf.threshold == belonging.fit(shelf, 0.5)
    assert index(add="new").threshold.known_rate == 0.5
    again = index(remove_class=("odd",), known_rate=0.9)
    assert again.threshold == belonging.fit(shelf, 0.9)


def test_a_distance_goes_with_the_rows_that_it_needs(
    index, copied_run, folders, capsys
):
    shelf = index(data_dir="known", known_data="new")
    distance = dataclasses.replace(shelf.threshold, score="mahalanobis")
    path = copied_run.galleries / "gallery"
    dataclasses.replace(shelf, threshold=distance).save(path, overwrite=True)
    firsts = [list(shelf.labels).index(label) for label in range(3)]
    ids = tuple(np.delete(shelf.ids, firsts).tolist())
    assert index(remove=ids).threshold is None
    assert "has too few rows now; --known_data=" in capsys.readouterr().out
    image = folders / "known" / "dark" / "01.jpg"
    answer = supcon_tf.load(copied_run.path).gallery().search(image)
    assert answer.is_known is None


def test_the_threshold_is_that_of_known_data(
    index, folders, copied_run, capsys
):
    shelf = index(data_dir="known", known_data="new", known_rate=1.0)
    assert shelf.threshold.known_data == str(folders / "new")
    grown = index(add="new")  # keeps it
    assert grown.threshold == shelf.threshold
    assert "before this change; --known_data=" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--known_rate must be given with --k"):
        index(add="loose", known_rate=0.5)
    modified = [path.name for path in copied_run.galleries.glob("gallery/*")]
    assert index(add="new").threshold == shelf.threshold  # nothing is written
    assert modified == [p.name for p in copied_run.galleries.glob("gallery/*")]
    with_one_image_each = index(data_dir="loose", name="other")
    assert with_one_image_each.threshold is None


def test_what_short_numbers_cost_is_printed(index, capsys):
    shelf = index(data_dir="known", gallery_dtype="int8")
    assert shelf.representations.dtype == np.int8
    printed = capsys.readouterr().out
    share = re.search(r"int8 +finds (.+)% of the 10 nearest rows", printed)[1]
    assert 50 < float(share) <= 100
    index(data_dir="known", name="whole")
    assert "finds" not in capsys.readouterr().out


def test_a_gallery_gets_an_index(index, capsys):
    pytest.importorskip("faiss")
    shelf = index(data_dir="known")
    assert shelf.index is None
    capsys.readouterr()
    indexed = index(approximate=True)
    assert indexed.index.recall > 0.9 and indexed.version == shelf.version + 1
    printed = capsys.readouterr().out
    assert "index        HNSW32 of faiss, which finds 100.00% of the" in printed
    with_threshold = index(known_data="new", known_rate=0.5)
    assert with_threshold.threshold.known_rate == 0.5
    assert index(add="new").index is not None  # keeps it
    assert index(approximate=False).index is None


def test_python_answers(index, copied_run, folders, tmp_path):
    index(data_dir="known", name="products")
    model = supcon_tf.load(copied_run.path)
    products = model.gallery("products")
    image = folders / "known" / "dark" / "01.jpg"
    answer = products.search(image, k=3)
    assert answer.is_known and answer.name == "dark"
    assert answer.matches[0].id == str(image)
    assert answer.matches[0].similarity == pytest.approx(1, abs=1e-4)
    assert {*answer.classes} == {"bright", "dark", "mid"}
    votes = products.search(image, k=7, answer_by="votes").classes
    assert (
        sum(votes.values()) == pytest.approx(1) and next(iter(votes)) == "dark"
    )
    images = sorted((folders / "new" / "odd").iterdir())
    limit = gallery.Threshold(0.99999, 0.95)
    products.gallery = dataclasses.replace(products.gallery, threshold=limit)
    assert products.predict(images) == ["unknown"] * 3
    products.add(images, ["odd", "odd", None])
    assert products.predict(images)[:2] == ["odd", "odd"]
    by_votes = products.search(images[2], k=1, answer_by="votes")
    assert by_votes.classes == {} and by_votes.name == "unknown"
    products.remove(class_names=["dark"])
    products.save()
    products.save()  # the same version again
    again = model.gallery("products").gallery
    assert again.ids == products.gallery.ids
    assert "dark" not in again.class_names
    with pytest.raises(ValueError, match="must be of the 1 examples, got 2"):
        products.add(images[:1], ["a", "b"])
    with pytest.raises(ValueError, match="which has products, got none"):
        model.gallery("none")


def test_files_that_python_added_are_known_to_the_tool(index, copied_run):
    index(data_dir="known")
    products = supcon_tf.load(copied_run.path).gallery()
    before = products.gallery
    products.add(before.ids[:2], ["dark", "mid"], ids=["1", "2"])
    assert products.gallery.digests[-2:].tolist() == before.digests[:2].tolist()


def test_arguments_of_python_are_checked(index, copied_run, folders):
    index(data_dir="known")
    products = supcon_tf.load(copied_run.path).gallery()
    images = sorted((folders / "new" / "odd").iterdir())
    before = products.gallery
    for act, message in (
        (lambda: products.add(images, "odd"), "`class_names` must be several"),
        (lambda: products.add(images, [1, 2, 3]), "texts or None, got 1"),
        (lambda: products.add(images, ["a"] * 3, "xyz"), "`ids` must be sev"),
        (lambda: products.add(images, ["a"] * 3, [1, 2, 3]), "texts, got 1"),
        (lambda: products.add("a.png", ["a"]), "`examples` must be several"),
        (lambda: products.remove("a.png"), "`ids` must be several texts"),
        (lambda: products.remove([], "mid"), "`class_names` must be several"),
        (lambda: products.search(images, k=1.5), "`k` must be an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            act()
    products.add([], [])
    assert products.gallery is before
    assert products.search([]) == products.predict([]) == []


def test_a_gallery_of_another_checkpoint_is_refused(index, copied_run):
    shelf = index(data_dir="known")
    other = {**shelf.made_of, "sha256": "0" * 64}
    path = copied_run.galleries / "gallery"
    dataclasses.replace(shelf, made_of=other).save(path, overwrite=True)
    message = "must be of step-.*, the checkpoint of the model, got that of"
    with pytest.raises(ValueError, match=message):
        index(add="new")
    with pytest.raises(ValueError, match=message):
        supcon_tf.load(copied_run.path).gallery()


def test_bad_input_is_refused_before_anything_is_written(
    index, copied_run, folders, tmp_path
):
    index(data_dir="known", name="other")
    for name in ("\u00e9", "e\u0301"):  # one word, and two folders
        shutil.copytree(folders / "new" / "odd", folders / "spelled" / name)
    shared = {"data_dir": "known", "known_data": "known"}
    for options, message in (
        (shared, "--known_data must have no example of the gallery, got 48 of"),
        (
            {"data_dir": "known", "split": "test"},
            "--split must be left out but",
        ),
        ({}, "one of --data_dir, .* or --approximate alone, got none"),
        ({"data_dir": "known", "add": "new"}, "alone, got --data_dir, --add"),
        ({"add": "new"}, "must be one of .*, which has other, got gallery"),
        ({"add": "new", "gallery_dtype": "int8"}, "--gallery_dtype must be le"),
        ({"data_dir": "."}, "must hold image files only|must be a folder of"),
        ({"data_dir": "nowhere"}, "`data_dir` must"),
        ({"data_dir": "known", "known_data": "nowhere"}, "`known_data` must"),
        ({"data_dir": "spelled"}, "different names.* two .*/spelled/é/0.png"),
    ):
        with pytest.raises(ValueError, match=message):
            index(**options)
    assert [path.name for path in copied_run.galleries.iterdir()] == ["other"]
    index(data_dir="known")
    with pytest.raises(ValueError, match="--name must be of no gallery"):
        index(data_dir="new")
    with pytest.raises(ValueError, match="`ids` must be in the gallery"):
        index(remove=("nothing",))


def run_tool(name, *arguments):
    done = forks.run(processes.ROOT / "tools" / f"{name}.py", *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_the_tools(index, copied_run, folders, tmp_path):
    """Both in processes: a table, JSON lines, a page."""
    run_dir = f"--run_dir={copied_run.path}"
    data_dir = f"--data_dir={folders / 'known'}"
    done = run_tool("index", run_dir, data_dir)
    assert "48 rows of 26 float32, 3 classes" in done.stdout
    image = str(folders / "known" / "dark" / "01.jpg")
    output = tmp_path / "answers.jsonl"
    search = "search", run_dir, image, str(folders / "loose")
    done = run_tool(*search, f"--output={output}")
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["query"] for line in lines] == [
        image,
        str(folders / "loose" / "a.png"),
    ]
    assert lines[0]["matches"][0]["id"] == image
    assert len(lines[0]["matches"]) == 5
    done = run_tool(*search, "--neighbors=2")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["query", "answer", "similarity", "class", "match"]
    assert len(rows) == 4 and image in rows[0]
    page = tmp_path / "new" / "answers.html"
    latin = os.fsencode(tmp_path) + b"/\xe9.png"
    shutil.copy(folders / "loose" / "a.png", latin)
    run_tool(*search, os.fsdecode(latin), f"--output={page}")
    assert page.read_text().count("<img ") == 18
    assert r"/\xe9.png" in page.read_text()


ANSWER = """
import pathlib, sys
import numpy as np
import tensorflow as tf

model = tf.saved_model.load(sys.argv[1])
contents = [pathlib.Path(path).read_bytes() for path in sys.argv[3:]]
answers = model.signatures["search"](image_bytes=tf.constant(contents))
classes = model.signatures["serving_default"](image_bytes=tf.constant(contents))
assert (answers["is_known"].numpy() == classes["is_known"].numpy()).all()
arrays = {name: value.numpy() for name, value in answers.items()}
for name in ("ids", "classes"):
    arrays[name] = arrays[name].astype(str)
np.savez(sys.argv[2], **arrays)
"""
ALONE = 'assert not any(name.startswith("supcon_tf") for name in sys.modules)'


@pytest.mark.slow(but=["here"])
@pytest.mark.parametrize("place", ["here", "fresh process"])
def test_an_export_answers_as_python_does(
    index, copied_run, folders, tmp_path, monkeypatch, place
):
    """In a fresh process without supcon_tf, too."""
    index(data_dir="known")
    shelf = index(add="loose")
    threshold = gallery.Threshold(0.9999, 0.95)
    path = copied_run.galleries / "gallery"
    dataclasses.replace(shelf, threshold=threshold).save(path, overwrite=True)
    settings = config.ExportSettings(
        str(copied_run.path), gallery="gallery", top_k=3
    )
    version = serving.export(settings)
    images = [
        str(folders / "known" / "dark" / "01.jpg"),
        *map(str, sorted((folders / "new" / "odd").iterdir())),
    ]
    file = tmp_path / "answers.npz"
    arguments = [str(version), file, *images]
    if place == "here":
        monkeypatch.setattr(sys, "argv", ["-c", *arguments])
        exec(ANSWER, {})
    else:
        program = [sys.executable, "-c", ANSWER + ALONE, *arguments]
        done = subprocess.run(
            program, capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-2000:]
    model = supcon_tf.load(copied_run.path)
    answers = model.gallery().search(images, k=3)
    with np.load(file) as exported:
        for row, answer in enumerate(answers):
            cosines = [match.similarity for match in answer.matches]
            np.testing.assert_allclose(
                exported["similarities"][row], cosines, atol=1e-5
            )
            assert exported["is_known"][row] == answer.is_known
        best = answers[0].matches[0]
        assert exported["ids"][0, 0] == best.id == images[0]
        assert exported["classes"][0, 0] == "dark"
        assert exported["ids"][1, 0] == str(folders / "loose/a.png")
        assert exported["classes"][1, 0] == ""
        is_known = [answer.is_known for answer in answers]
        assert is_known[:2] == [True, True] and not all(is_known)
    names = [prediction.name for prediction in model.predict(images)]
    assert [name != "unknown" for name in names] == is_known


def test_an_export_with_a_gallery_that_is_too_large(
    index, copied_run, folders, monkeypatch
):
    index(data_dir="known")
    monkeypatch.setattr(bank, "_LARGEST", 48 * 26 * 4 - 1)
    settings = config.ExportSettings(str(copied_run.path), gallery="gallery")
    with pytest.raises(ValueError, match="of at most 4,991 bytes .* got 4,992"):
        serving.export(settings)
    index(data_dir="loose", name="empty")
    index(name="empty", remove=(str(folders / "loose" / "a.png"),))
    empty = dataclasses.replace(settings, gallery="empty")
    with pytest.raises(ValueError, match="must have rows to be exported"):
        serving.export(empty)
    assert not copied_run.exports()
    other = dataclasses.replace(settings, gallery="other")
    with pytest.raises(ValueError, match="has empty, gallery, got other"):
        serving.export(other)


def test_texts_are_indexed(finished_text_run, text_folder):
    """With the representations of the run."""
    run = training.runs.open_run(finished_text_run.path)
    shelf = gallery.index(
        config.IndexSettings(
            str(finished_text_run.path),
            data_dir=str(text_folder / "test.tsv"),
            name="tested",
        )
    )
    assert shelf.class_counts() == {"0": 6, "1": 6}
    assert shelf.ids[0] == str(text_folder / "test.tsv:2")
    rows, labels = training.represent(run.encoder, run.source("test"))
    np.testing.assert_array_equal(shelf.labels, labels)
    np.testing.assert_allclose(shelf.representations, rows, atol=1e-5)


@pytest.mark.slow
def test_texts(finished_text_run, text_folder, capsys):
    """A run on sentences: indexed from a file, searched by a text."""
    run_dir = str(finished_text_run.path)
    settings = config.IndexSettings(
        run_dir, data_dir=str(text_folder / "train.tsv"), overwrite=True
    )
    shelf = gallery.index(settings)
    assert shelf.class_counts() == {"0": 20, "1": 20}
    assert shelf.ids[0] == str(text_folder / "train.tsv:2")
    more = config.IndexSettings(run_dir, add=str(text_folder / "train.tsv"))
    assert gallery.index(more).ids == shelf.ids
    searcher = supcon_tf.load(run_dir).gallery()
    settings = config.SearchSettings(run_dir, text=("a c",), neighbors=2)
    capsys.readouterr()
    gallery.search(settings, searcher)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("a c") and "train.tsv:" in first + second
    assert searcher.predict("a c") in ("0", "1", "unknown")
    with pytest.raises(ValueError, match="run on texts, got images"):
        path = str(text_folder / "train.tsv")
        gallery.search(config.SearchSettings(run_dir, images=(path,)), searcher)
    version = serving.export(config.ExportSettings(run_dir, gallery="gallery"))
    served = tf.saved_model.load(str(version)).signatures["search"]
    answer = served(text=tf.constant(["a c"]))
    expected = searcher.search("a c", k=5)
    assert answer["ids"].numpy()[0, 0].decode() == expected.matches[0].id
    cosines = [match.similarity for match in expected.matches]
    np.testing.assert_allclose(answer["similarities"][0], cosines, atol=1e-5)


@pytest.mark.slow
def test_a_manifest_with_a_column_of_labels(index, folders, copied_run):
    rows = ["path,label,split", "known/dark/01.jpg,night,test"]
    rows += [
        f"known/mid/{i:02}.{s},day,train" for i, s in ((0, "png"), (1, "jpg"))
    ]
    (folders / "list.csv").write_text("\n".join(rows))
    assert index(data_dir="list.csv").class_counts() == {"day": 2}
    other = index(data_dir="list.csv", split="test", name="other")
    assert other.class_counts() == {"night": 1}


def test_a_class_without_rows_is_no_answer(index, folders, capsys):
    root = folders / "with_empty"
    shutil.copytree(folders / "known" / "dark", root / "dark")
    (root / "bare").mkdir()
    shelf = index(data_dir="with_empty")
    assert shelf.class_names == ("dark",)
    assert "left out     classes without rows: bare" in capsys.readouterr().out
    # As of an earlier version: the mean of no rows would be nearer.
    shelf = dataclasses.replace(
        shelf, class_names=("bare", "dark"), labels=shelf.labels + 1
    )
    query = -shelf.class_means[1:]
    for answer_by in searching.ANSWERS:
        (answer,) = searching._answers(
            dataclasses.replace(shelf, threshold=None), query, 3, answer_by
        )
        assert [*answer.classes] == ["dark"] == [answer.name]
