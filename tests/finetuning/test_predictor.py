"""Three lines of Python from images to answers."""

import shutil
import warnings

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from etils import epath

import supcon_tf
from supcon_tf import clients, config, serving
from supcon_tf.finetuning import predictor
from supcon_tf.training import representations, runs
from tests import workers


@pytest.fixture(scope="module")
def finished_run(copy_run, tmp_path_factory):
    """Without any export."""
    return copy_run(tmp_path_factory.mktemp("run") / "run")


@pytest.fixture(scope="module")
def model(finished_run):
    return supcon_tf.load(finished_run.path)


@pytest.fixture
def path(image_folder):
    return image_folder / "test/dark/00.png"


def test_an_image_in_any_form_has_one_answer(model, path):
    expected = model.predict(path)
    assert expected.name == "dark"
    assert list(expected.probabilities.values())[0] == expected.probability
    assert sum(expected.probabilities.values()) == pytest.approx(1, abs=1e-5)
    image = PIL.Image.open(path)
    pixels = np.asarray(image)
    for form in (
        str(path),
        path.read_bytes(),
        image,
        pixels,
        pixels.astype(np.float32),
        pixels[..., None],
        np.stack([pixels] * 3, axis=-1),
    ):
        assert model.predict(form) == expected


def test_a_pil_image_of_16_bits_is_read_as_its_file(model, path, tmp_path):
    gray = np.asarray(PIL.Image.open(path).convert("L"))
    pixels = gray.astype(np.uint16) * 256 + 255  # the high byte is not rounded
    PIL.Image.fromarray(pixels).save(tmp_path / "16.png")
    expected = model.predict(tmp_path / "16.png")
    assert expected == model.predict(gray)
    image = PIL.Image.open(tmp_path / "16.png")
    assert image.mode == "I;16"
    forms = [image, image.convert("I"), PIL.Image.fromarray(pixels)]
    forms += [PIL.Image.fromarray(gray.astype(kind)) for kind in ("i4", "f4")]
    for form in forms:
        assert model.predict(form) == expected, form.mode
    scaled = PIL.Image.fromarray(np.float32(gray / 255))
    with pytest.raises(ValueError, match="in 0..255 .multiply images in 0..1"):
        model.predict(scaled)
    with pytest.raises(ValueError, match="in 0..255, got .* to 256"):
        model.predict(PIL.Image.fromarray(np.full([8, 8], 2**16, np.int32)))


def test_several_are_a_list(model, path, image_folder):
    paths = sorted((image_folder / "test").glob("*/0*"))
    answers = model.predict(paths)
    assert [answer.name for answer in answers] == [
        image.parent.name for image in paths
    ]
    assert model.predict([path]) == [model.predict(path)]
    images = np.zeros([2, 20, 24, 3], np.uint8)
    assert len(model.predict(images)) == len(model.predict(list(images))) == 2


def test_representations_are_those_of_the_run(model, finished_run):
    run = runs.Run.open(finished_run.path)
    test = run.source("test")
    expected, _ = representations.represent(run.encoder, test, image_size=16)
    paths = [f"{run.settings.data_dir}/{name}" for name in test.ids]
    encoded = model.encode(paths)
    np.testing.assert_allclose(encoded, expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(paths[0]), expected[0], atol=1e-5)


def test_an_export_is_the_same_model(model, finished_run, path, tmp_path):
    export = tmp_path / "1"
    serving.export(config.ExportSettings(str(finished_run.path)), export)
    for folder in (export, tmp_path):
        other = supcon_tf.load(folder)
        assert other.predict(path) == model.predict(path)


def test_an_export_of_earlier_checkpoints_is_named(
    copy_run, path, tmp_path, capsys
):
    run = copy_run(tmp_path / "run")
    serving.export(config.ExportSettings(str(run.path)))
    settings = config.PredictSettings(str(run.path), images=(str(path),))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        supcon_tf.load(run.path)
    assert not run.outdated_export()
    for part, owner in (("classifier", run.stage("linear")), ("encoder", run)):
        earlier = epath.Path(owner.latest_checkpoint())
        shutil.copytree(earlier, earlier.with_name("step-00000099"))
        text = f"of the {part} {earlier.name}, not of step-00000099, which "
        assert text in run.outdated_export()
    with pytest.warns(UserWarning, match=text):
        supcon_tf.load(run.path)
    assert "note" not in capsys.readouterr().err
    clients.predict(settings)
    assert text in capsys.readouterr().err


def test_a_run_on_texts_takes_texts(finished_text_run):
    model = supcon_tf.load(finished_text_run.path)
    single = model.predict("good film")
    several = model.predict(["good film", "good film"])
    # The last bits of a product depend on the size of a batch.
    probabilities = [answer.probability for answer in several]
    assert probabilities == pytest.approx([single.probability] * 2, abs=1e-5)
    assert model.encode("good film").ndim == 1
    for example, message in ((b"good", "got b"), ("\ud83d", "emoji")):
        with pytest.raises(ValueError, match=f"must be texts.*{message}"):
            model.predict([example])


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        ("nowhere.jpg", FileNotFoundError, "no image nowhere.jpg"),
        ([b"no image"], ValueError, "must be images that .*, got bytes: "),
        (np.full([8, 8, 3], 0.5), ValueError, "floats in 0..255"),
        (np.full([8, 8, 3], 300.0), ValueError, "in 0..255, got 300 to 300"),
        ([np.zeros([8])], ValueError, "height, width, channels"),
        (np.zeros([0, 8], np.uint8), ValueError, r"got shape \(0, 8\)"),
        (np.ones([8, 8], bool), ValueError, "black: multiply them by 255"),
    ],
)
def test_examples_that_are_no_images_are_named(model, example, error, message):
    with pytest.raises(error, match=message):
        model.predict(example)


def test_a_bad_example_ends_a_list_at_its_batch(model, path, monkeypatch):
    counts = []
    predict = model._model.predict

    def counted(signature, contents):
        counts.append(len(contents))
        return predict(signature, contents)

    monkeypatch.setattr(model._model, "predict", counted)
    monkeypatch.setattr(predictor, "_BATCH", 2)
    with pytest.raises(ValueError, match="must be images that .*, got bytes: "):
        model.encode([path, path, path, b"no image", path, path])
    assert counts == [2, 2, 1, 1]  # the second batch again, one by one
    counts.clear()
    assert len(model.encode([path] * 5)) == 5 and counts == [2, 2, 1]


def test_a_model_without_classifier_only_encodes(finished_run, path, tmp_path):
    settings = config.ExportSettings(str(finished_run.path), classifier="none")
    serving.export(settings, tmp_path / "1")
    model = supcon_tf.load(tmp_path)
    assert model.encode(path).shape == (26,)
    with pytest.raises(ValueError, match="must have a classifier to predict"):
        model.predict(path)


def test_a_folder_without_run_or_export_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold an export"):
        supcon_tf.load(tmp_path)


def test_a_saved_model_of_another_program_is_refused(tmp_path):
    module = tf.Module()
    module.call = tf.function(
        lambda texts: {"lengths": tf.strings.length(texts)},
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    tf.saved_model.save(module, str(tmp_path / "1"), {"count": module.call})
    with pytest.raises(ValueError, match="a signature `represent`.*with count"):
        supcon_tf.load(tmp_path / "1")


def test_several_machines_are_refused(image_folder, tmp_path, monkeypatch):
    """Only the tool takes them: each would write the same export."""
    (environment, _) = workers.environments(2)
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    with pytest.raises(ValueError, match="runs on one machine, TF_CONFIG"):
        supcon_tf.finetune(image_folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()
