"""Numbers that several rooms share."""

TEMPERATURE = 0.1  # tau, the paper's
MOST_CHANNELS = 16  # of images, in arrays, operations and encoders
# SimAugment where a name alone says it: milder than the paper's, which in few
# epochs teaches more.
SIM_AUGMENT = {
    "strength": 0.25,
    "warp_probability": 0.0,
    "blur_probability": 0.0,
}
