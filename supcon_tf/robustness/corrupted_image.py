"""One corrupted image, and the program of a process that makes many.

The program is started by its path: it imports neither TensorFlow, which takes
seconds in every process, nor this package, which does. Of the 15 corruptions
13 are those of `imagecorruptions`; the other two are here.
"""

from __future__ import annotations

import functools
import os
import pickle
import signal
import sys
import zlib

import numpy as np

# Sigma in pixels, farthest row or column a pixel comes from, rounds; per
# severity. Of make_imagenet_c.py in github.com/hendrycks/robustness.
_GLASS_BLUR = ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2))
# Share of the values that become 0 or 255; ibid.
_IMPULSE_NOISE = (0.03, 0.06, 0.09, 0.17, 0.27)


def corrupted(
    image: np.ndarray, name: str, severity: int, seed: int, index: int
) -> np.ndarray:
    """Corrupts one image: a function of the arguments alone.

    NumPy's global generator, which the library draws from, is left as it was.

    Args:
      image: [height, width, 3] uint8, both sides 32 pixels or more.
      name: one of the 15 corruptions of ImageNet-C.
      severity: 1 to 5.
      seed: of the whole set, 0 to 2^32 - 1.
      index: place of the image in its set, 0 to 2^32 - 1.

    Returns:
      [height, width, 3] uint8.
    """
    import imagecorruptions as library

    if not hasattr(np, "float_"):  # NumPy 2; the library's fog asks for it
        np.float_ = np.float64
    mended = {"glass_blur": glass_blur, "impulse_noise": impulse_noise}
    before = np.random.get_state()
    np.random.seed([seed, zlib.crc32(name.encode()), severity, index])
    try:
        if name in mended:
            return mended[name](image, severity)
        return library.corrupt(image, severity, name)
    finally:
        np.random.set_state(before)


def glass_blur(image: np.ndarray, severity: int) -> np.ndarray:
    """Blurs, lets pixels take the colour of near ones, and blurs again.

    The library's own function fails with every scikit-image that has a wheel
    for Python 3.11: its filters have no argument `multichannel`.

    From the last row and column backwards, pixel (h, w) takes what is at
    (h + dy, w + dx) by then, dx and dy uniform in -d..d-1. The benchmark's
    code calls this a swap and writes `x[h, w], x[p, q] = x[p, q], x[h, w]`;
    but rows of a NumPy array are views, so that x[p, q] is assigned the new
    x[h, w], which is itself. ImageNet-C and AlexNet's errors on it were made
    so, and so is this: a copy, in which colours are lost and others doubled.

    Args:
      image: [height, width, 3] uint8.
      severity: 1 to 5.

    Returns:
      [height, width, 3] uint8.

    Reference: Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261.
    """
    sigma, farthest, rounds = _GLASS_BLUR[severity - 1]
    height, width, channels = image.shape
    colors = np.uint8(_blur(image, sigma) * 255).reshape(-1, channels)
    rows = range(height - farthest, farthest, -1)
    columns = range(width - farthest, farthest, -1)
    # A list: reading and writing single elements of an array takes 5 times
    # as long.
    origins = list(range(height * width))
    for _ in range(rounds):
        steps = np.random.randint(
            -farthest, farthest, size=(len(rows), len(columns), 2)
        )
        for row, row_steps in zip(rows, steps @ (1, width), strict=True):
            pixels = (row * width + column for column in columns)
            for pixel, step in zip(pixels, row_steps.tolist(), strict=True):
                origins[pixel] = origins[pixel + step]
    moved = colors[origins].reshape(image.shape)
    return np.uint8(np.clip(_blur(moved, sigma), 0, 1) * 255)


def impulse_noise(image: np.ndarray, severity: int) -> np.ndarray:
    """Sets a share of the values to 0 or 255, half of them to each.

    As the library does it, but seeded: scikit-image draws from a generator of
    its own, which the library leaves to chance. Shapes are as in `glass_blur`.
    """
    import skimage.util

    noisy = skimage.util.random_noise(
        image / 255,
        mode="s&p",
        amount=_IMPULSE_NOISE[severity - 1],
        rng=np.random.randint(2**31),
    )
    return np.uint8(np.clip(noisy, 0, 1) * 255)


def main() -> None:
    """Answers requests, pickled on stdin, on stdout until there are no more.

    A request is (images, indices, name, severity, seed); the answer is the
    corrupted images, or the exception.
    """
    # Ctrl-C is for the parent, which then closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # The library prints; that is no answer.
    import cv2
    import imagecorruptions  # noqa: F401

    cv2.setNumThreads(1)  # The other cores have processes of their own.
    # Frost reads one of its five photos for every image: a tenth of the time.
    cv2.imread = functools.lru_cache(cv2.imread)
    while True:
        try:
            images, indices, *options = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = corrupted_images(images, indices, *options)
        except Exception as error:  # Whatever it is, the parent raises it.
            answer = error
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


def corrupted_images(
    images: np.ndarray, indices: np.ndarray, *options: str | int
) -> np.ndarray:
    """Corrupts [N, height, width, 3] images, one at a time; see `corrupted`."""
    return np.stack(
        [
            corrupted(image, *options, int(index))
            for image, index in zip(images, indices, strict=True)
        ]
    )


def _blur(image: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur of each channel; [height, width, 3] float in [0, 1]."""
    import skimage.filters

    return skimage.filters.gaussian(image / 255, sigma, channel_axis=-1)


if __name__ == "__main__":
    main()
