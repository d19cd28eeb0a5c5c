"""The published tables: operations, their probabilities and levels.

`operations.py` gives names and levels their meaning.
"""

from __future__ import annotations

from supcon_tf.augment.operations import Ranges

# Sub-policies of AutoAugment: pairs of (operation, probability, level).
_Pair = tuple[tuple[str, float, int], tuple[str, float, int]]


def _parse(text: str) -> tuple[_Pair, ...]:
    """Reads rows of `Operation probability level, Operation ...`."""
    return tuple(
        tuple(
            (name, float(probability), int(level))
            for name, probability, level in map(str.split, line.split(","))
        )
        for line in text.strip().splitlines()
    )


# AutoAugment, Table 9: found on a reduced ImageNet. The last five rows repeat
# earlier ones, as published: those are drawn twice as often.
_IMAGENET = """
Posterize 0.4 8, Rotate 0.6 9
Solarize 0.6 5, AutoContrast 0.6 5
Equalize 0.8 8, Equalize 0.6 3
Posterize 0.6 7, Posterize 0.6 6
Equalize 0.4 7, Solarize 0.2 4
Equalize 0.4 4, Rotate 0.8 8
Solarize 0.6 3, Equalize 0.6 7
Posterize 0.8 5, Equalize 1.0 2
Rotate 0.2 3, Solarize 0.6 8
Equalize 0.6 8, Posterize 0.4 6
Rotate 0.8 8, Color 0.4 0
Rotate 0.4 9, Equalize 0.6 2
Equalize 0.0 7, Equalize 0.8 8
Invert 0.6 4, Equalize 1.0 8
Color 0.6 4, Contrast 1.0 8
Rotate 0.8 8, Color 1.0 2
Color 0.8 8, Solarize 0.8 7
Sharpness 0.4 7, Invert 0.6 8
ShearX 0.6 5, Equalize 1.0 9
Color 0.4 0, Equalize 0.6 3
Equalize 0.4 7, Solarize 0.2 4
Solarize 0.6 5, AutoContrast 0.6 5
Invert 0.6 4, Equalize 1.0 8
Color 0.6 4, Contrast 1.0 8
Equalize 0.8 8, Equalize 0.6 3
"""

# The policy that the released code of the SupCon paper runs.
_V0 = """
Equalize 0.8 1, ShearY 0.8 4
Color 0.4 9, Equalize 0.6 3
Color 0.4 1, Rotate 0.6 8
Solarize 0.8 3, Equalize 0.4 7
Solarize 0.4 2, Solarize 0.6 2
Color 0.2 0, Equalize 0.8 8
Equalize 0.4 8, SolarizeAdd 0.8 3
ShearX 0.2 9, Rotate 0.6 8
Color 0.6 1, Equalize 1.0 2
Invert 0.4 9, Rotate 0.6 0
Equalize 1.0 9, ShearY 0.6 3
Color 0.4 7, Equalize 0.6 0
Posterize 0.4 6, AutoContrast 0.4 7
Solarize 0.6 8, Color 0.6 9
Solarize 0.2 4, Rotate 0.8 9
Rotate 1.0 7, TranslateY 0.8 9
ShearX 0.0 0, Solarize 0.8 4
ShearY 0.8 0, Color 0.6 4
Color 1.0 0, Rotate 0.6 2
Equalize 0.8 4, Equalize 0.0 8
Equalize 1.0 4, AutoContrast 0.6 2
ShearY 0.4 7, SolarizeAdd 0.6 7
Posterize 0.8 2, Solarize 0.6 10
Solarize 0.6 8, Equalize 0.6 1
Color 0.8 6, Rotate 0.4 5
"""

# AutoAugment, Table 7: found on a reduced CIFAR-10.
_CIFAR10 = """
Invert 0.1 7, Contrast 0.2 6
Rotate 0.7 2, TranslateX 0.3 9
Sharpness 0.8 1, Sharpness 0.9 3
ShearY 0.5 8, TranslateY 0.7 9
AutoContrast 0.5 8, Equalize 0.9 2
ShearY 0.2 7, Posterize 0.3 7
Color 0.4 3, Brightness 0.6 7
Sharpness 0.3 9, Brightness 0.7 9
Equalize 0.6 5, Equalize 0.5 1
Contrast 0.6 7, Sharpness 0.6 5
Color 0.7 7, TranslateX 0.5 8
Equalize 0.3 7, AutoContrast 0.4 8
TranslateY 0.4 3, Sharpness 0.2 6
Brightness 0.9 6, Color 0.2 8
Solarize 0.5 2, Invert 0.0 3
Equalize 0.2 0, AutoContrast 0.6 0
Equalize 0.2 8, Equalize 0.6 4
Color 0.9 9, Equalize 0.6 6
AutoContrast 0.8 4, Solarize 0.2 8
Brightness 0.1 3, Color 0.7 0
Solarize 0.4 5, AutoContrast 0.9 3
TranslateY 0.9 9, TranslateY 0.7 9
AutoContrast 0.9 2, Solarize 0.8 3
Equalize 0.8 8, Invert 0.1 3
TranslateY 0.7 9, AutoContrast 0.9 1
"""

# AutoAugment, Table 8: found on a reduced SVHN.
_SVHN = """
ShearX 0.9 4, Invert 0.2 3
ShearY 0.9 8, Invert 0.7 5
Equalize 0.6 5, Solarize 0.6 6
Invert 0.9 3, Equalize 0.6 3
Equalize 0.6 1, Rotate 0.9 3
ShearX 0.9 4, AutoContrast 0.8 3
ShearY 0.9 8, Invert 0.4 5
ShearY 0.9 5, Solarize 0.2 6
Invert 0.9 6, AutoContrast 0.8 1
Equalize 0.6 3, Rotate 0.9 3
ShearX 0.9 4, Solarize 0.3 3
ShearY 0.8 8, Invert 0.7 4
Equalize 0.9 5, TranslateY 0.6 6
Invert 0.9 4, Equalize 0.6 7
Contrast 0.3 3, Rotate 0.8 4
Invert 0.8 5, TranslateY 0.0 2
ShearY 0.7 6, Solarize 0.4 8
Invert 0.6 4, Rotate 0.8 4
ShearY 0.3 7, TranslateX 0.9 3
ShearX 0.1 6, Invert 0.6 5
Solarize 0.7 2, TranslateY 0.6 7
ShearY 0.8 4, Invert 0.8 8
ShearX 0.7 9, TranslateY 0.8 3
ShearY 0.8 5, AutoContrast 0.7 3
ShearX 0.7 2, Invert 0.1 5
"""

# AutoAugment, Table 6, stated for images of 331 pixels.
_SEARCHED = Ranges(posterize=(4, 8), translate=150 / 331, cutout=30 / 331)
# The released code, stated in pixels of images of 224.
_RELEASED = Ranges(posterize=(0, 4), translate=250 / 224, cutout=100 / 224)

# By `AutoAugment(policy=...)`: sub-policies, and the ranges of levels.
AUTO_AUGMENT = {
    "imagenet": (_parse(_IMAGENET), _SEARCHED),
    "v0": (_parse(_V0), _RELEASED),
    "cifar10": (_parse(_CIFAR10), _SEARCHED),
    "svhn": (_parse(_SVHN), _SEARCHED),
}

_PAPERS_OPERATIONS = (
    *("Identity", "AutoContrast", "Equalize", "Rotate", "Solarize", "Color"),
    *("Posterize", "Contrast", "Brightness", "Sharpness"),
    *("ShearX", "ShearY", "TranslateX", "TranslateY"),
)
# Operations of `RandAugment(num_operations=...)`, drawn uniformly. 14: the list
# of its paper, Sec. 3, with the identity. 16: the list of the released code,
# which does not count its identity.
RAND_AUGMENT = {
    14: _PAPERS_OPERATIONS,
    16: (*_PAPERS_OPERATIONS, "Invert", "SolarizeAdd", "Cutout"),
}

RAND_AUGMENT_RANGES = Ranges(
    posterize=(0, 4), translate=100 / 224, cutout=40 / 224
)
