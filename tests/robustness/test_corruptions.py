"""Corrupted images: the library's, the two mended ones, in any processes."""

import subprocess
import sys
import types

import numpy as np
import pytest
import skimage.filters

from supcon_tf import config, data
from supcon_tf.robustness import corrupted_image, corruptions

# The paper's make_imagenet_c.py: sigma, max_delta, iterations.
GLASS_BLUR = [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)]


def photos(count, side=32):
    """Smooth colours with edges: something that every corruption changes."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(30, 226, (count, 8, 8, 3), np.uint8)
    tile = np.ones((1, side // 8, side // 8, 1), np.uint8)
    # Moved, or pixelate might find its own pixels there.
    return np.roll(np.kron(coarse, tile), (1, 1), axis=(1, 2))


@pytest.fixture(scope="module")
def images():
    return photos(3)


@pytest.fixture(scope="module")
def two_processes():
    with corruptions.Corruptor(2) as corruptor:
        yield corruptor


def corrupt(images, name, severity, seed, indices=None, corruptor=None):
    indices = np.arange(len(images)) if indices is None else np.array(indices)
    corruptor = corruptor or corruptions.Corruptor(0)
    return corruptor.corrupt(images, indices, name, severity, seed)


def blurred(image, sigma):
    return skimage.filters.gaussian(image / 255, sigma, channel_axis=-1)


def glass_blur_in_loops(image, severity):
    """The benchmark's definition, swap of NumPy views included."""
    sigma, farthest, rounds = GLASS_BLUR[severity - 1]
    x = np.uint8(blurred(image, sigma) * 255)
    for _ in range(rounds):
        for h in range(x.shape[0] - farthest, farthest, -1):
            for w in range(x.shape[1] - farthest, farthest, -1):
                dx, dy = np.random.randint(-farthest, farthest, size=(2,))
                a, b = (h, w), (h + dy, w + dx)
                x[a], x[b] = x[b], x[a]
    return np.uint8(np.clip(blurred(x, sigma), 0, 1) * 255)


@pytest.mark.parametrize("severity", range(1, 6))
def test_glass_blur_is_the_benchmarks(severity):
    image = photos(1, 40)[0, :, :32]  # not square
    np.random.seed(severity)
    expected = glass_blur_in_loops(image, severity)
    np.random.seed(severity)
    results = corrupted_image.glass_blur(image, severity)
    np.testing.assert_array_equal(results, expected)


def test_impulse_noise_is_the_librarys(images):
    import imagecorruptions as library

    for severity, share in enumerate((0.03, 0.06, 0.09, 0.17, 0.27), 1):
        noisy = corrupt(images, "impulse_noise", severity, 0)
        changed = noisy[noisy != images]
        assert changed.size / images.size == pytest.approx(share, rel=0.2)
        assert set(changed) == {0, 255}
        assert np.mean(changed == 255) == pytest.approx(0.5, abs=0.1)
        unseeded = library.corrupt(images[0], severity, "impulse_noise")
        assert np.mean(unseeded != images[0]) == pytest.approx(share, rel=0.3)


def test_images_of_floats_are_refused_before_any_work():
    images = np.zeros([2, 32, 32, 3], np.float32)
    source = data.from_arrays(images, [0, 1], pixel_range=(0, 1))
    run = types.SimpleNamespace(
        source=lambda split: source,
        settings=types.SimpleNamespace(image_size=32),
    )
    settings = config.EvaluateSettings("x", corruptions="generated")
    with pytest.raises(ValueError, match="none for images that are no bytes"):
        corruptions.CorruptedImages(settings, run)


@pytest.mark.parametrize("name", config.CORRUPTIONS)
def test_every_corruption_at_every_severity(images, name, two_processes, capfd):
    """A stronger one changes more; processes and chunks change nothing."""
    changes = []
    for severity in range(1, 6):
        corrupted = corrupt(images, name, severity, 0)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == np.uint8
        changes.append(np.abs(corrupted - images.astype(float)).mean())
    assert min(changes) > 1
    assert changes[4] > changes[0]
    for extreme in (0, 255):
        corrupt(np.full_like(images[:1], extreme), name, 5, 0)
    assert capfd.readouterr().out == ""
    many = photos(40)
    whole = corrupt(many, name, 2, 11, corruptor=two_processes)
    assert whole.shape == many.shape
    part = corrupt(many[31:34], name, 2, 11, range(31, 34))
    np.testing.assert_array_equal(part, whole[31:34])


def test_corruptions_of_the_library_leave_its_generator_alone(images):
    state = np.random.get_state()
    fog = corrupt(images[:1], "fog", 3, seed=7, indices=[5])[0]
    np.testing.assert_equal(np.random.get_state(), state)
    import imagecorruptions as library

    expected = library.corrupt(images[0], 2, "jpeg_compression")
    jpeg = corrupt(images[:1], "jpeg_compression", 2, 0)[0]
    np.testing.assert_array_equal(jpeg, expected)
    assert (fog != library.corrupt(images[0], 3, "fog")).any()


def test_the_seed_the_name_the_severity_and_the_index_count(images):
    same = np.stack([images[0]] * 2)

    def noise(**changed):
        options = {"name": "gaussian_noise", "severity": 1, "seed": 0}
        return corrupt(same, **{**options, **changed})

    first, second = noise()
    assert (first != second).any()
    np.testing.assert_array_equal(noise(), [first, second])
    np.testing.assert_array_equal(noise(indices=[1, 0]), [second, first])
    assert (noise(seed=1)[0] != first).any()
    # Not the noise of severity 1, made stronger.
    stronger = noise(severity=2)[0] - same[0].astype(float)
    correlation = np.corrcoef(
        stronger.ravel(), (first - same[0].astype(float)).ravel()
    )[0, 1]
    assert abs(correlation) < 0.1


def test_processes_import_no_tensorflow():
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); import numpy;"
        "print(sorted(m for m in sys.modules if m[:6] in ('tensor', 'supcon')))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program, corrupted_image.__file__],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert output.strip() == "[]"


def test_errors_and_the_end_of_a_process_are_raised_here(two_processes):
    small = np.zeros([2, 8, 8, 3], np.uint8)
    with pytest.raises(AttributeError, match="at least 32 pixels"):
        corrupt(small, "fog", 1, 0, corruptor=two_processes)
    with corruptions.Corruptor(1) as corruptor:
        corruptor._programs[0].kill()
        with pytest.raises(RuntimeError, match="ended, exit status -9"):
            corrupt(photos(2), "fog", 1, 0, corruptor=corruptor)


def test_the_end_of_a_process_within_an_answer_is_named(monkeypatch, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import os, pickle, signal\n"
        "answer = pickle.dumps(bytes(2**20), pickle.HIGHEST_PROTOCOL)\n"
        "os.write(1, answer[:1000])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setattr(corrupted_image, "__file__", str(program))
    with (
        corruptions.Corruptor(1) as corruptor,
        pytest.raises(RuntimeError, match="ended, exit status -9"),
    ):
        corrupt(photos(2), "fog", 1, 0, corruptor=corruptor)


def test_opencv_needs_no_display_libraries():
    """Both OpenCV packages are installed; the headless one must be last."""
    from cv2 import version

    assert version.headless
