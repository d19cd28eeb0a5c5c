"""Numbers and lists that several rooms share."""

TEMPERATURE = 0.1  # tau, the paper's
MOST_CHANNELS = 16  # of images, in arrays, operations and encoders
# SimAugment by its name alone: milder than the paper's, it teaches more in few
# epochs.
SIM_AUGMENT = {
    "strength": 0.25,
    "warp_probability": 0.0,
    "blur_probability": 0.0,
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
