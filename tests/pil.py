"""The named operations on an image in PIL: the oracle of the policies."""

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

GRAY = (128, 128, 128)
_ENHANCERS = ("Color", "Contrast", "Brightness", "Sharpness")
_MATRICES = {
    "ShearX": lambda value: (1, value, 0, 0, 1, 0),
    "ShearY": lambda value: (1, 0, 0, value, 1, 0),
    "TranslateX": lambda value: (1, 0, value, 0, 1, 0),
    "TranslateY": lambda value: (1, 0, 0, 0, 1, value),
}


def apply(
    name: str,
    pixels: np.ndarray,
    argument: float,
    center: tuple[float, float] = (0.5, 0.5),
    fill: tuple[int, int, int] = GRAY,
) -> np.ndarray:
    """An operation on [height, width, 3] uint8; `center` in shares."""
    image = Image.fromarray(pixels)
    if name in _ENHANCERS:
        image = getattr(ImageEnhance, name)(image).enhance(argument)
    elif name in _MATRICES:
        matrix = _MATRICES[name](argument)
        image = image.transform(
            image.size, Image.AFFINE, matrix, Image.NEAREST, fillcolor=fill
        )
    elif name == "Rotate":
        image = image.rotate(argument, Image.NEAREST, fillcolor=fill)
    elif name == "Cutout":
        _cut_out(image, int(argument), center, fill)
    elif name == "SolarizeAdd":
        raised = np.minimum(pixels.astype(int) + int(argument), 255)
        image = Image.fromarray(
            np.where(pixels < 128, raised, pixels).astype(np.uint8)
        )
    else:
        image = {
            "Identity": lambda: image,
            "AutoContrast": lambda: ImageOps.autocontrast(image),
            "Equalize": lambda: ImageOps.equalize(image),
            "Invert": lambda: ImageOps.invert(image),
            "Posterize": lambda: ImageOps.posterize(image, int(argument)),
            "Solarize": lambda: ImageOps.solarize(image, int(argument)),
        }[name]()
    return np.asarray(image)


def _cut_out(
    image: Image.Image,
    half: int,
    center: tuple[float, float],
    fill: tuple[int, int, int],
) -> None:
    """Fills a square; PIL clips it at the borders."""
    row, column = int(center[0] * image.height), int(center[1] * image.width)
    if half:
        ImageDraw.Draw(image).rectangle(
            (column - half, row - half, column + half - 1, row + half - 1),
            fill=fill,
        )
