"""Galleries of a trained run: indexed, grown, searched, by tools and Python."""

import dataclasses
import functools
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from PIL import Image

import supcon_tf
from supcon_tf import config, exceptions, gallery, serving, training
from supcon_tf.cli import commands
from supcon_tf.gallery import belonging, indexing, searching
from supcon_tf.gallery import page as gallery_page
from supcon_tf.serving import bank
from supcon_tf.training import representations, runs
from tests import forks, processes
from tests.gallery import galleries


@pytest.fixture(scope="module")
def folders(tmp_path_factory, image_folder):
    """Images with a class that the run has not seen, and loose images."""
    root = tmp_path_factory.mktemp("folders")
    shutil.copytree(image_folder / "train", root / "known")
    rng = np.random.default_rng(1)
    (root / "new" / "odd").mkdir(parents=True)
    for index in range(3):
        pixels = rng.integers(0, 255, [20, 24, 3], np.uint8)
        Image.fromarray(pixels).save(root / "new" / "odd" / f"{index}.png")
    shutil.copytree(image_folder / "test", root / "held_out")
    (root / "loose").mkdir()
    shutil.copy(root / "new" / "odd" / "0.png", root / "loose" / "a.png")
    return root


@pytest.fixture(scope="module")
def run(copy_run, tmp_path_factory):
    """A run with an export; this file opens and traces its encoder once."""
    run = copy_run(tmp_path_factory.mktemp("galleries") / "run")
    with pytest.MonkeyPatch.context() as patch:
        for room, name in (
            (runs, "open_run"),
            (representations, "representer"),
        ):
            patch.setattr(room, name, functools.cache(getattr(room, name)))
        serving.export(config.ExportSettings(str(run.path)))
        yield run


@pytest.fixture(scope="module")
def model(run):
    return supcon_tf.load(run.path)


@pytest.fixture(scope="module")
def index_of_images(run, folders, tmp_path_factory):
    """The gallery of the training images, as the tool has made it."""
    settings = config.IndexSettings(
        str(run.path), data_dir=str(folders / "known")
    )
    gallery.index(settings)
    path = tmp_path_factory.mktemp("index") / "gallery"
    return shutil.copytree(run.galleries / "gallery", path)


@pytest.fixture
def index(run, folders, index_of_images):
    """Runs the tool with paths below `folders`.

    The run has a single gallery before, of the training images.
    """
    shutil.rmtree(run.galleries)
    shutil.copytree(index_of_images, run.galleries / "gallery")

    def call(**options):
        for name in ("data_dir", "add", "known_data"):
            if name in options:
                options[name] = str(folders / options[name])
        return gallery.index(config.IndexSettings(str(run.path), **options))

    return call


@pytest.fixture
def shelf(index, run):
    """The gallery of the training images."""
    return gallery.open_gallery(run.galleries / "gallery")


@pytest.fixture
def products(shelf, model):
    """The same, to be searched."""
    return model.gallery()


@pytest.fixture(scope="module")
def odd_images(folders):
    return sorted(map(str, (folders / "new" / "odd").iterdir()))


def test_a_gallery_has_the_representations_of_the_run(shelf, run):
    opened = training.Run.open(run.path)
    rows, labels = training.represent(
        opened.encoder, opened.source("train"), image_size=opened.image_size
    )
    assert shelf.class_names == opened.class_names
    assert np.array_equal(shelf.labels, labels)
    np.testing.assert_allclose(shelf.representations, rows, atol=1e-6)
    assert shelf.made_of == opened.identity
    score, aurocs = belonging.choose_score(shelf)
    assert (shelf.threshold.score, shelf.threshold.aurocs) == (score, aurocs)
    assert shelf.threshold == belonging.fit(shelf, 0.95)


def test_a_gallery_grows_and_shrinks(index, shelf, capsys, folders):
    counts = {"bright": 16, "dark": 16, "mid": 16}
    assert index(known_rate=0.5).threshold == belonging.fit(shelf, 0.5)
    grown = index(add="new")
    assert grown.class_counts() == {**counts, "odd": 3}
    assert grown.threshold.known_rate == 0.5  # stays
    assert index(add="new").ids == grown.ids
    assert "there already 3 of 3" in capsys.readouterr().out
    loose = index(add="loose")
    assert loose.ids[-1] == str(folders / "loose" / "a.png")
    assert loose.class_name(loose.labels[-1]) is None
    assert index(remove=(loose.ids[-1],)).ids == grown.ids
    remaining = index(remove_class=("odd",), known_rate=0.9)
    assert remaining.class_counts() == counts
    assert remaining.threshold == belonging.fit(shelf, 0.9)


def test_a_distance_goes_with_the_rows_that_it_needs(
    index, shelf, run, products, folders, capsys
):
    distance = gallery.Threshold(-9.0, 0.95, "held out", "mahalanobis")
    shelf = dataclasses.replace(shelf, threshold=distance)
    shelf.save(run.galleries / "gallery")
    firsts = [list(shelf.labels).index(label) for label in range(3)]
    ids = tuple(np.delete(shelf.ids, firsts).tolist())
    remaining = index(remove=ids)
    assert remaining.threshold is None
    assert "has too few rows now; --known_data=" in capsys.readouterr().out
    products.gallery = remaining
    answer = products.search(folders / "known" / "dark" / "01.jpg")
    assert answer.is_known is None


def test_the_threshold_is_that_of_known_data(index, folders, run, capsys):
    measured = index(known_data="held_out", known_rate=1.0)
    assert measured.threshold.known_data == str(folders / "held_out")
    grown = index(add="new")
    assert grown.threshold == measured.threshold
    assert "before this change; --known_data=" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--known_rate must be given with --k"):
        index(add="loose", known_rate=0.5)
    assert index(add="new").version == grown.version  # nothing is written
    emptied = index(remove=grown.ids)
    assert len(emptied) == 0
    filled = index(add="known", known_data="held_out")
    assert filled.threshold.known_rate == 1.0  # stays
    with_a_single_image = index(data_dir="loose", name="other", known_rate=0.5)
    assert with_a_single_image.threshold is None
    assert "does not keep the rate 0.5: " in capsys.readouterr().out


def test_known_data_of_other_classes_or_of_the_training_are_refused(
    index, shelf, run, folders, capsys, monkeypatch
):
    some = folders / "some"
    for path in ("known/dark/00.png", "held_out/dark/00.png"):
        target = some / "dark" / path.replace("/", "_")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folders / path, target)
    with pytest.raises(
        ValueError, match="classes of the gallery, .*dark, mid; .*got odd$"
    ):
        index(known_data="new")
    left_out = str(folders / "known" / "dark" / "00.png")
    index(remove=(left_out,))
    trained = "no example that the run was trained on: .* got 1 of 2: .*_00.png"
    with pytest.raises(ValueError, match=trained):
        index(known_data="some")
    # The object of the tool: see the fixture `run`.
    opened = runs.open_run(str(run.path), architecture=None)

    def lost(split):
        raise exceptions.InvalidValue(f"the {split} images are lost")

    with monkeypatch.context() as patch:
        patch.setattr(opened, "source", lost)
        assert index(known_data="some").threshold.known_data == str(some)
    assert "cannot be read: the train images are" in capsys.readouterr().out


def test_known_data_need_no_class(index, folders):
    """Beside rows without classes, too."""
    assert index(known_data="loose").threshold.known_data
    index(data_dir="loose", name="flat")
    assert index(known_data="held_out", name="flat").threshold.known_data


def test_the_cost_of_short_numbers_is_printed(index, capsys):
    shelf = index(data_dir="known", gallery_dtype="int8", overwrite=True)
    assert shelf.representations.dtype == np.int8
    printed = capsys.readouterr().out
    share = re.search(r"int8 +finds (.+)% of the 10 nearest rows", printed)[1]
    assert 50 < float(share) <= 100


def test_a_gallery_gets_an_index(index, shelf, capsys):
    pytest.importorskip("faiss")
    assert shelf.index is None
    indexed = index(approximate=True)
    assert indexed.index.recall > 0.9 and indexed.version == shelf.version + 1
    printed = capsys.readouterr().out
    assert "index        HNSW32 of faiss, which finds 100.00% of the" in printed
    assert index(known_rate=0.5).index is not None  # stays
    assert index(approximate=False).index is None


def test_python_answers(products, model, shelf, folders, odd_images):
    image = folders / "known" / "dark" / "01.jpg"
    answer = products.search(image, k=3)
    assert answer.is_known and answer.name == "dark"
    assert answer.matches[0].id == str(image)
    assert answer.matches[0].similarity == pytest.approx(1, abs=1e-4)
    assert {*answer.classes} == {"bright", "dark", "mid"}
    votes = products.search(image, k=7, answer_by="votes").classes
    assert sum(votes.values()) == pytest.approx(1)
    assert next(iter(votes)) == "dark"
    limit = gallery.Threshold(0.99999, 0.95)
    products.gallery = dataclasses.replace(products.gallery, threshold=limit)
    assert products.predict(odd_images) == ["unknown"] * 3
    products.add(odd_images, ["odd", "odd", None])
    assert products.predict(odd_images)[:2] == ["odd", "odd"]
    by_votes = products.search(odd_images[2], k=1, answer_by="votes")
    assert by_votes.classes == {} and by_votes.name == "unknown"
    products.remove(class_names=["dark"])
    products.save()
    products.save()  # the same version again
    reopened = model.gallery().gallery
    assert reopened.ids == products.gallery.ids
    assert "dark" not in reopened.class_names
    # The hashes of files are those of the tool.
    products.add(shelf.ids[:2], ["dark", "mid"], ids=["1", "2"])
    assert products.gallery.digests[-2:].tolist() == shelf.digests[:2].tolist()


def test_a_file_has_the_id_of_the_tool_whatever_its_name(
    products, folders, odd_images
):
    folder = folders / "accents" / "e\u0301"
    folder.mkdir(parents=True)
    file = f"{folder}/{os.fsdecode(bytes([255]))}.png"  # no UTF-8
    shutil.copy(odd_images[0], file)
    products.add([file], ["odd"])
    assert products.gallery.ids[-1].endswith("/accents/\u00e9/\\xff.png")
    os.rename(file, f"{folder}/a.png")
    assert gallery_page._thumbnail(f"{folders}/accents/\u00e9/a.png")
    # An id that the user gives is exported whatever it is.
    lines = bank.Bank(galleries.from_rows(np.eye(2), ids=(file, "")), k=1)
    lines.make_tables(str(folder))
    first, second = (
        lines._tables["ids"].lookup(tf.constant([0, 1], tf.int64)).numpy()
    )
    assert first.decode().endswith("/\\udcff.png") and second == b" "


def test_a_path_in_the_home_folder_is_that_of_its_file(
    products, shelf, folders, monkeypatch
):
    monkeypatch.setenv("HOME", str(folders / "known"))
    (row,) = np.flatnonzero(
        np.array(shelf.ids) == f"{folders}/known/dark/01.jpg"
    )
    products.add(["~/dark/01.jpg"], ["dark"])
    assert products.gallery.ids[-1] == shelf.ids[row]
    assert products.gallery.digests[-1] == shelf.digests[row]
    assert len(products.gallery) == len(shelf)


def test_an_image_has_the_same_id_whatever_is_beside_it(products, odd_images):
    """The last bits of a representation are not those of another batch."""
    (content, *others), images = (
        [read(path) for path in odd_images] for read in (_bytes, Image.open)
    )
    products.add([content], ["odd"])
    name, digest = products.gallery.ids[-1], products.gallery.digests[-1]
    products.add(odd_images[:1], ["odd"])
    assert products.gallery.digests[-1] == digest  # as of the file
    count = len(products.gallery)
    products.add([*others, content], ["odd"] * 3)
    assert products.gallery.ids[-1] == name
    assert len(products.gallery) == count + 2
    arrays = [np.asarray(image) for image in images]
    products.add(images, ["odd"] * 3)
    products.add(arrays[::-1], ["odd"] * 3)
    assert len(products.gallery) == count + 5


def _bytes(path):
    return pathlib.Path(path).read_bytes()


def test_arguments_of_python_are_checked(products, model, odd_images):
    before = products.gallery
    image = np.zeros([20, 20, 3], np.uint8)
    for act, message in (
        (lambda: products.add(odd_images, "odd"), "`class_names` must be sev"),
        (lambda: products.add(odd_images, [1, 2, 3]), "texts or None, got 1"),
        (lambda: products.add(odd_images[:1], "ab"), "`class_names` must be s"),
        (lambda: products.add(odd_images[:1], ["a", "b"]), "1 examples, got 2"),
        (lambda: products.add(odd_images, ["a"] * 3, "xyz"), "`ids` must be s"),
        (lambda: products.add("a.png", ["a"]), "`examples` must be several"),
        (
            lambda: products.add([image] * 2, ["a"] * 2),
            "got examples 0 and 1, whi",
        ),
        (lambda: products.add(odd_images[:1], [""]), "a line of text each, g"),
        (lambda: products.remove("a.png"), "`ids` must be several texts"),
        (lambda: products.search(odd_images, k=1.5), "`k` must be an integer"),
        (lambda: model.gallery("none"), "which has gallery, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            act()
    products.add([], [])
    assert products.gallery is before
    assert products.search([]) == products.predict([]) == []


def test_a_gallery_of_another_checkpoint_is_refused(index, shelf, run, model):
    other = {**shelf.made_of, "sha256": "0" * 64}
    shelf = dataclasses.replace(shelf, made_of=other)
    shelf.save(run.galleries / "gallery")
    message = "must be of step-.*, the checkpoint of the model, got that of"
    remedy = "tools/index.py --data_dir=DIR --overwrite encodes the examples"
    for open_gallery in (lambda: index(add="new"), model.gallery):
        with pytest.raises(ValueError, match=f"{message}.*: {remedy}"):
            open_gallery()


def test_a_gallery_that_is_newer_than_the_export_is_named(
    shelf, run, model, monkeypatch, capsys
):
    earlier = epath.Path(run.latest_checkpoint())
    newer = earlier.with_name("step-00000099")
    shutil.copytree(earlier, newer)
    try:
        made_of = run.newest_identity()
        dataclasses.replace(shelf, made_of=made_of).save(run.galleries / "new")
        message = "got .*99: tools/export.py exp"
        with pytest.raises(ValueError, match=message):
            model.gallery("new")
        monkeypatch.setattr(supcon_tf, "load", lambda *_, **__: model)
        settings = config.SearchSettings(
            str(run.path), gallery="new", images=("a.png",)
        )
        with pytest.raises(ValueError, match=message):
            commands.search(settings)
        assert "note         Its newest export is of" in capsys.readouterr().err
    finally:
        shutil.rmtree(newer)


def test_bad_input_is_refused_before_a_file_is_written(index, run, folders):
    for name in ("\u00e9", "e\u0301"):  # one word, and two folders
        shutil.copytree(folders / "new" / "odd", folders / "spelled" / name)
    for options, message in (
        ({"data_dir": "new", "known_data": "new"}, "no example .* 3 of 3: .*0"),
        ({"data_dir": "new", "split": "test"}, "--split must be left out but"),
        ({}, "one of --data_dir, .* or --approximate alone, got none"),
        ({"data_dir": "new", "add": "new"}, "alone, got --data_dir, --add"),
        ({"add": "new"}, "must be one of .*, which has gallery, got other"),
        ({"add": "new", "gallery_dtype": "int8"}, "--gallery_dtype must be le"),
        ({"data_dir": "."}, "must hold image files only|must be a folder of"),
        ({"data_dir": "nowhere"}, "`data_dir` must"),
        ({"data_dir": "new", "known_data": "nowhere"}, "`known_data` must"),
        ({"data_dir": "spelled"}, "different names.* two .*/spelled/é/0.png"),
    ):
        with pytest.raises(ValueError, match=message):
            index(name="other", **options)
    assert [path.name for path in run.galleries.iterdir()] == ["gallery"]
    with pytest.raises(ValueError, match="--name must be of no gallery"):
        index(data_dir="new")
    for options, message in (
        ({"remove": ("01.jpg",)}, "`remove` must be .* which has /.*got 01"),
        ({"remove_class": ("x",)}, "`remove_class` must be .* bright, .*got x"),
    ):
        with pytest.raises(ValueError, match=message):
            index(**options)


def test_the_tools(index, run, folders, tmp_path):
    """Both as processes."""
    image = str(folders / "known" / "dark" / "01.jpg")
    output = tmp_path / "answers.jsonl"
    bad = tmp_path / "bad.png"
    bad.touch()
    queries = [image, str(folders / "loose" / "a.png"), str(bad)]
    for name, arguments, code, printed in (
        ("index", [f"--add={folders / 'new'}"], 0, "51 rows of 26 float32, 4 "),
        (
            "search",
            [image, str(folders / "loose"), str(bad), f"--output={output}"],
            1,
            "error: no answer for 1 of them",
        ),
    ):
        done = forks.run(
            processes.ROOT / "tools" / f"{name}.py",
            *(f"--run_dir={run.path}", *arguments),
        )
        assert done.returncode == code, done.stderr[-3000:]
        assert printed in done.stdout + done.stderr
    answers = [json.loads(line) for line in output.read_text().splitlines()]
    assert [answer["query"] for answer in answers] == queries
    assert answers[0]["matches"][0]["id"] == image
    assert len(answers[0]["matches"]) == 5


def test_texts_and_addresses_have_no_picture(tmp_path, image_folder):
    """An address may be a user's own id; a text may be the name of a file."""
    address, page = "https://shop.org/a.png", tmp_path / "a.html"
    match = gallery.Match(address, "cup", 0.9)
    answer = gallery.Answer("cup", True, {"cup": 0.9}, (match,))
    image = str(image_folder / "test/dark/00.png")
    for query, are_texts, count in (
        (address, False, 0),
        (image, False, 1),
        (image, True, 0),
        ("see " + address, True, 0),
    ):
        gallery_page.write(page, [query], [answer], are_texts)
        assert page.read_text().count("<img ") == count
        assert address in page.read_text()


def test_answers_are_a_table_or_a_page(products, folders, tmp_path, capsys):
    image = str(folders / "known" / "dark" / "01.jpg")
    latin = os.fsencode(tmp_path) + b"/\xe9.png"
    shutil.copy(folders / "loose" / "a.png", latin)

    def search(*images, **options):
        settings = config.SearchSettings("run", images=images, **options)
        gallery.search(settings, products)

    search(image, str(folders / "loose"), neighbors=2)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["query", "answer", "similarity", "class", "match"]
    assert len(rows) == 4 and image in rows[0]
    page = tmp_path / "new" / "answers.html"
    search(image, os.fsdecode(latin), output=str(page))
    assert page.read_text().count("<img ") == 12
    assert r"/\xe9.png" in page.read_text()


def test_a_bad_file_is_an_error_beside_the_answers(
    products, folders, tmp_path, capsys
):
    image, other = (
        str(folders / "known" / "dark" / name) for name in ("01.jpg", "00.png")
    )
    bad = tmp_path / "bad.webp"
    bad.write_bytes(b"RIFF0000WEBP")

    def search(*images, **options):
        settings = config.SearchSettings("run", images=images, **options)
        return gallery.search(settings, products)

    for suffix in ("jsonl", "html"):
        output = str(tmp_path / f"answers.{suffix}")
        assert search(image, str(bad), other, output=output) == 1
    lines = (tmp_path / "answers.jsonl").read_text().splitlines()
    first, refused, last = map(json.loads, lines)
    assert first["matches"][0]["id"] == image
    assert last["matches"][0]["id"] == other
    assert refused == {"query": str(bad), "error": refused["error"]}
    page = html.unescape((tmp_path / "answers.html").read_text())
    assert refused["error"] in page and "no answer" in page
    assert search(str(bad)) == 1
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:4] == [str(bad), "error", "-", "-"]
    with pytest.raises(ValueError, match="must be images that .*bad.webp: "):
        products.search([image, bad])


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


@pytest.mark.slow(but=["this process"])
@pytest.mark.parametrize("process", ["this process", "fresh process"])
def test_an_export_answers_as_python_does(
    index, run, folders, odd_images, tmp_path, monkeypatch, process
):
    """Also in a fresh process without supcon_tf."""
    grown = index(add="loose")
    limit = gallery.Threshold(0.9999, 0.95)
    grown = dataclasses.replace(grown, threshold=limit)
    grown.save(run.galleries / "gallery")
    settings = config.ExportSettings(str(run.path), gallery="gallery", top_k=3)
    version = serving.export(settings)
    images = [str(folders / "known" / "dark" / "01.jpg"), *odd_images]
    file = tmp_path / "answers.npz"
    arguments = [str(version), file, *images]
    if process == "this process":
        monkeypatch.setattr(sys, "argv", ["-c", *arguments])
        exec(ANSWER, {})
    else:
        program = [sys.executable, "-c", ANSWER + ALONE, *arguments]
        subprocess.run(program, check=True, cwd=tmp_path)
    newest_model = supcon_tf.load(run.path)
    grown.save(run.galleries / "gallery", overwrite=True)  # the same rows
    assert not run.outdated_gallery()
    grown.remove([grown.ids[0]]).save(run.galleries / "gallery", overwrite=True)
    with pytest.warns(UserWarning, match="gallery as it was before a change"):
        supcon_tf.load(run.path)
    assert not run.outdated_export()
    query = config.SearchSettings(str(run.path), images=(images[0],))
    with warnings.catch_warnings():  # of a gallery that no search takes
        warnings.filterwarnings("error", "Its newest export")
        commands.search(query)
    version.rmtree()
    answers = newest_model.gallery().search(images, k=3)
    with np.load(file) as exported:
        for row, answer in enumerate(answers):
            cosines = [match.similarity for match in answer.matches]
            np.testing.assert_allclose(
                exported["similarities"][row], cosines, atol=1e-5
            )
            assert exported["is_known"][row] == answer.is_known
        best_match = answers[0].matches[0]
        assert exported["ids"][0, 0] == best_match.id == images[0]
        assert exported["classes"][0, 0] == "dark"
        assert exported["ids"][1, 0] == str(folders / "loose/a.png")
        assert exported["classes"][1, 0] == ""
    is_known = [answer.is_known for answer in answers]
    assert is_known[:2] == [True, True] and not all(is_known)
    names = [prediction.name for prediction in newest_model.predict(images)]
    assert [name != "unknown" for name in names] == is_known


def test_a_gallery_that_no_export_can_hold_is_refused(shelf, run, monkeypatch):
    shelf.part(np.zeros(48, bool)).save(run.galleries / "empty")
    monkeypatch.setattr(bank, "_LARGEST", 48 * 26 * 4 - 1)
    for name, message in (
        ("gallery", "of at most 4,991 bytes .* got 4,992"),
        ("empty", "must have rows to be exported"),
        ("other", "has empty, gallery, got other"),
    ):
        settings = config.ExportSettings(str(run.path), gallery=name)
        with pytest.raises(ValueError, match=message):
            serving.export(settings)
    assert run.exports() == [1]


@pytest.fixture(scope="module")
def text_gallery(finished_text_run, text_folder):
    path, file = str(finished_text_run.path), str(text_folder / "test.tsv")
    return gallery.index(config.IndexSettings(path, data_dir=file))


def test_texts_are_indexed(text_gallery, finished_text_run, text_folder):
    """With the representations of the run."""
    assert text_gallery.class_counts() == {"0": 6, "1": 6}
    assert text_gallery.ids[0] == str(text_folder / "test.tsv:2")
    run = training.runs.open_run(finished_text_run.path)
    rows, labels = training.represent(run.encoder, run.source("test"))
    np.testing.assert_array_equal(text_gallery.labels, labels)
    np.testing.assert_allclose(text_gallery.representations, rows, atol=1e-5)


def test_texts_that_a_gallery_cuts_are_told(
    text_gallery, finished_text_run, tmp_path, capsys
):
    file = tmp_path / "long.tsv"
    file.write_text(f"sentence\tlabel\n{'a ' * 5000}\t0\n")
    path = str(finished_text_run.path)
    gallery.index(config.IndexSettings(path, name="long", data_dir=str(file)))
    assert re.search("note .* and lose what is longer", capsys.readouterr().out)


@pytest.mark.slow
def test_texts_are_searched(
    text_gallery, finished_text_run, text_folder, capsys
):
    run_dir = str(finished_text_run.path)
    more = config.IndexSettings(run_dir, add=str(text_folder / "test.tsv"))
    assert gallery.index(more).ids == text_gallery.ids
    searcher = supcon_tf.load(run_dir).gallery()
    settings = config.SearchSettings(run_dir, text=("a c",), neighbors=2)
    capsys.readouterr()
    gallery.search(settings, searcher)
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("a c") and "test.tsv:" in first + second
    assert searcher.predict("a c") in ("0", "1", "unknown")
    with pytest.raises(ValueError, match="run on texts, got images"):
        path = str(text_folder / "test.tsv")
        gallery.search(config.SearchSettings(run_dir, images=(path,)), searcher)
    version = serving.export(config.ExportSettings(run_dir, gallery="gallery"))
    served = tf.saved_model.load(str(version)).signatures["search"]
    answer = served(text=tf.constant(["a c"]))
    expected = searcher.search("a c", k=5)
    assert answer["ids"].numpy()[0, 0].decode() == expected.matches[0].id
    cosines = [match.similarity for match in expected.matches]
    np.testing.assert_allclose(answer["similarities"][0], cosines, atol=1e-5)


@pytest.mark.slow
def test_a_manifest_with_a_column_of_labels(index, folders):
    rows = ["path,label,split", "known/dark/01.jpg,night,test"]
    rows += [f"known/mid/{file},day,train" for file in ("00.png", "01.jpg")]
    (folders / "list.csv").write_text("\n".join(rows))
    for split, counts in (
        (None, {"day": 2}),
        ("test", {"night": 1}),
        ("all", {"day": 2, "night": 1}),
    ):
        shelf = index(data_dir="list.csv", split=split, name=f"of_{split}")
        assert shelf.class_counts() == counts


def test_all_rows_of_a_manifest_without_splits_are_taken(index, folders):
    """Training would hold a fifth of them out, by a hash."""
    paths = [
        f"known/mid/{path.name}" for path in (folders / "known/mid").iterdir()
    ]
    path = folders / "unsplit.csv"
    path.write_text("\n".join(["path,label", *(f"./{p},day" for p in paths)]))
    shelf = index(data_dir="unsplit.csv", name="unsplit")
    assert {*shelf.ids} == {str(folders / name) for name in paths}
    grown = index(add="unsplit.csv")
    assert grown.class_counts()["day"] == len(paths)
    part = index(data_dir="unsplit.csv", name="part", split="train")
    assert 0 < len(part) < len(paths)


def test_copies_of_another_class_are_named(capsys):
    shelf = galleries.lettered("abc", ("cup", "pen"), [0, 1, -1])
    copies = galleries.lettered("abc", ("pen",), [0, 0, 0])
    grown = shelf.add(dataclasses.replace(copies, ids=tuple("def")))
    indexing._print_other_classes(grown, 3)
    printed = capsys.readouterr().out
    assert "1 earlier rows have a copy of another class by now: a; " in printed
    indexing._print_other_classes(grown.part(grown.labels == 1), 3)
    assert not capsys.readouterr().out


def test_a_class_without_rows_is_no_answer(index, shelf, folders, capsys):
    root = folders / "with_empt\u00fd"  # spelled in two ways
    root_of_mac = folders / "with_empty\u0301"
    shutil.copytree(folders / "new", root_of_mac)
    (root_of_mac / "bare").mkdir()
    (root_of_mac / "odd" / "bad.png").touch()
    indexed = index(data_dir=root_of_mac.name, name="b", skip_bad_images=True)
    assert indexed.class_names == ("odd",)
    assert indexed.ids[0] == f"{root}/odd/0.png"
    printed = capsys.readouterr().out
    assert "left out     classes without rows: bare" in printed
    assert "; 1 bad files skipped: odd/bad.png" in printed
    # Galleries of an earlier version: the mean of no rows would be nearer.
    dark = shelf.remove((), ("bright", "mid"))
    dark = dataclasses.replace(
        dark,
        class_names=("bare", "dark"),
        labels=dark.labels + 1,
        threshold=None,
    )
    query = -dark.class_means[1:]
    for answer_by in searching.ANSWERS:
        (answer,) = searching._answers(dark, query, 3, answer_by)
        assert [*answer.classes] == ["dark"] == [answer.name]
