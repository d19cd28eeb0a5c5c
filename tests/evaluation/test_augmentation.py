"""What the pictures of the augmentation show, against training and PIL."""

import shutil

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from supcon_tf import augment, config, data
from supcon_tf.augment.operations import OPERATIONS
from supcon_tf.evaluation import augmentation, plots
from supcon_tf.training import input_pipeline
from tests import pil

SIZE = 24  # enlarged to 96
FILL = (128, 128, 128)
SIM_AUGMENT = ("ColorJitter", "Hue", "Warp", "GaussianBlur", "ResizedCrop")
SEED = 1  # whose first image has colours


def _settings(run_dir, data_dir, **overrides):
    return config.ShowAugmentSettings(
        **{
            "run_dir": str(run_dir),
            "dataset": "folder",
            "data_dir": str(data_dir),
            "image_size": SIZE,
            "images": 3,
            "views": 2,
            **overrides,
        }
    )


def _panels(path, rows: int, columns: int, pitch: int) -> np.ndarray:
    """The images of a picture, [rows, columns, SIZE, SIZE, 3]."""
    pixels = np.asarray(Image.open(path).convert("RGB"))
    height, width, _ = pixels.shape
    tops = [height - pitch * (rows - row) for row in range(rows)]
    lefts = [width - 100 * (columns - column) for column in range(columns)]
    return np.stack(
        [[pixels[y : y + 96 : 4, x : x + 96 : 4] for x in lefts] for y in tops]
    )


def inverted(images, seeds):
    return 255 - images


@pytest.fixture(scope="module", autouse=True)
def inverting_policy():
    """SimAugment inverts images; its operations take seconds to trace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(augment, "SimAugment", lambda **_: inverted)
        yield


@pytest.fixture(scope="module")
def pictures(image_folder, tmp_path_factory):
    """The settings, both pictures and what is written on them, by file."""
    path = tmp_path_factory.mktemp("pictures") / "a"
    settings = _settings(path, image_folder, seed=SEED)
    figures = []
    plot_grid = plots.plot_grid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plots,
            "plot_grid",
            lambda *rows: figures.append(plot_grid(*rows)) or figures[-1],
        )
        views, operations = augmentation.show_augment(settings)
    texts = {
        path.name: [text.get_text() for text in fig.axes[0].texts]
        for path, fig in zip((views, operations), figures, strict=True)
    }
    return settings, views, operations, texts


@pytest.fixture(scope="module")
def operation_rows(pictures):
    """Per row of operations.png: the images and what is written below."""
    _, _, path, texts = pictures
    words = iter(texts["operations.png"][11:])
    names = {}
    with_levels = sum(
        bool(operation.caption) for operation in OPERATIONS.values()
    )
    plain = len(OPERATIONS) - with_levels
    for count in (*[11] * (with_levels + len(SIM_AUGMENT)), plain + 1):
        name = next(words)
        names[name] = [next(words) for _ in range(count)]
    assert not list(words)
    panels = _panels(path, len(names), 11, 96 + 16 + 3 * 4)
    return {
        name: (panel[: len(captions)], captions)
        for panel, (name, captions) in zip(panels, names.items(), strict=True)
    }


def test_views_are_the_first_of_training(pictures, image_folder):
    settings, path, _, texts = pictures
    panels = _panels(path, 3, 3, 100)
    data_dir = str(image_folder)
    pretraining = config.PretrainSettings(
        "x", dataset="folder", data_dir=data_dir, image_size=SIZE,
        batch_size=16, seed=SEED,
    )  # fmt: skip
    source = input_pipeline.source(pretraining, "train")
    batches = input_pipeline.views(pretraining, source, SIZE, 2)
    views, labels = next(batches.as_numpy_iterator())
    np.testing.assert_array_equal(panels[:, 1:], views[:3])
    names = [f"{i}: {source.class_names[labels[i]]}" for i in range(3)]
    assert texts["views.png"] == ["original", "view 1", "view 2", *names]
    # 20 x 24 in 24 x 24: two white lines above and below, and no resizing.
    wholes = panels[:, 0]
    assert (wholes[:, [0, 1, 22, 23]] == 255).all()
    contents = [
        np.asarray(Image.open(image_folder / name).convert("RGB"))
        for name in source.ids
        if name.endswith("png")
    ]
    inside = wholes[:, 2:22].astype(int)
    errors = [min(abs(c - image).max() for c in contents) for image in inside]
    assert min(errors) == 0  # of a PNG; JPEG decoders differ


def test_every_operation_has_its_row(operation_rows, pictures):
    panels, names = operation_rows["no level"]
    rows = {*operation_rows} - {*SIM_AUGMENT, "no level"}
    assert rows | {*names} == {*OPERATIONS, "Grayscale"}
    assert {"Identity", "AutoContrast", "Equalize", "Invert"} <= {*names}
    settings, *_ = pictures
    batches = data.make_views(
        input_pipeline.source(settings, "train"),
        batch_size=3,
        num_views=1,
        image_size=SIZE,
        crop_area=None,
        horizontal_flip=False,
        seed=settings.seed,
    )
    images, _ = next(batches.as_numpy_iterator())
    np.testing.assert_array_equal(panels[0], images[0, 0])


def test_operations_are_pils_with_the_written_argument(
    operation_rows, pictures
):
    plain, names = operation_rows["no level"]
    image = Image.fromarray(plain[0])
    gray = np.asarray(image.convert("L").convert("RGB"))
    np.testing.assert_array_equal(plain[-1], gray)
    for panel, name in zip(plain[:-1], names[:-1], strict=True):
        np.testing.assert_array_equal(panel, pil.apply(name, plain[0], 0.0))

    def enhanced(kind):
        return lambda text: kind(image).enhance(float(text[2:]))

    def sheared(text):
        matrix = (1, float(text), 0, 0, 1, 0)
        affine = Image.Transform.AFFINE
        return image.transform(image.size, affine, matrix, fillcolor=FILL)

    expected = {
        "Posterize": lambda text: ImageOps.posterize(image, int(text[0])),
        "Solarize": lambda text: ImageOps.solarize(image, int(text[2:])),
        "Color": enhanced(ImageEnhance.Color),
        "Brightness": enhanced(ImageEnhance.Brightness),
        "Sharpness": enhanced(ImageEnhance.Sharpness),
        "Rotate": lambda text: image.rotate(float(text[:-1]), fillcolor=FILL),
        "ShearX": sheared,
    }
    for name, operation in expected.items():
        panels, captions = operation_rows[name]
        reference = np.stack([np.asarray(operation(text)) for text in captions])
        # Factors such as 1.18 are float32 in ours and float64 here.
        assert abs(panels.astype(int) - reference).max() <= 1, name
    half = operation_rows["Cutout"][1][-1]
    assert half == "± 4 px"  # 40 / 224 of 24
    cut = operation_rows["Cutout"][0][-1]
    assert (cut[8:16, 8:16] == FILL).all()
    np.testing.assert_array_equal(cut[:8], plain[0, :8])


def test_effects_grow_from_none(operation_rows):
    image = operation_rows["no level"][0][0].astype(int)
    for name in SIM_AUGMENT:
        panels, captions = operation_rows[name]
        change = abs(panels - image).mean(axis=(1, 2, 3))
        assert change[0] == 0, name
        assert change[1:4].mean() < change[4:7].mean(), name
        assert change[4] > 1 and change[10] > change[1], name
        assert len(set(captions)) == 11, name
    assert operation_rows["ColorJitter"][1][-1] == "s = 2.50"
    assert operation_rows["GaussianBlur"][1][0] == "σ 0.10 px"
    assert operation_rows["ResizedCrop"][1][-1] == "50%"


def test_ranges_are_those_of_the_policy():
    for policy, bits, shift in (
        (("simaugment", "v0"), (0, 4), 100 / 224),
        (("autoaugment", "cifar10"), (4, 8), 150 / 331),
        (("autoaugment", "v0"), (0, 4), 250 / 224),
    ):
        names = ("augmentation", "autoaugment_policy")
        flags = dict(zip(names, policy, strict=True))
        ranges = augmentation._ranges(_settings("x", "y", **flags))
        assert ranges.posterize == bits and ranges.translate == shift


def test_images_of_a_folder_without_classes_have_their_names(image_folder):
    photographs = image_folder / "train" / "mid"
    source = augmentation._photographs(_settings("x", photographs))
    assert source.class_names == source.ids
    assert source.ids[:2] == ("00.png", "01.jpg") and source.num_examples == 16
    for row in (0, 15):
        content, label = source.read(row)
        assert label == row
        assert content.numpy() == (photographs / source.ids[row]).read_bytes()
    # Folders of classes, and other data sets, are loaded as in training.
    assert augmentation._photographs(_settings("x", image_folder)) is None
    digits = config.ShowAugmentSettings("x", dataset="digits")
    assert augmentation._photographs(digits) is None


def test_images_of_floats_are_refused(tmp_path, monkeypatch):
    floats = np.zeros([2, SIZE, SIZE, 3], np.float32)
    source = data.from_arrays(floats, [0, 1], pixel_range=(0, 1))
    monkeypatch.setattr(input_pipeline, "source", lambda *_: source)
    settings = config.ShowAugmentSettings(str(tmp_path / "run"))
    with pytest.raises(ValueError, match="bytes, as .*, got 3 channels of flo"):
        augmentation.show_augment(settings)
    assert not (tmp_path / "run").exists()


def test_an_image_that_cannot_be_read_is_named(image_folder, tmp_path):
    folder = tmp_path / "images"
    shutil.copytree(image_folder / "train" / "mid", folder)
    (folder / "03.jpg").write_text("no image")
    with pytest.raises(ValueError, match="1 bad files of 16 in .*: 03.jpg"):
        augmentation.show_augment(_settings(tmp_path / "run", folder))
    assert not (tmp_path / "run").exists()
