"""Numbers and lists that several rooms share."""

TEMPERATURE = 0.1  # tau, the paper's
MOST_CHANNELS = 16  # of images, in arrays, operations and encoders
# How the tokens of a transformer become a representation.
POOLINGS = "auto", "class_token", "mean", "both"
# SimAugment by its name alone: milder than the paper's, it teaches more in few
# epochs.
SIM_AUGMENT = {
    "strength": 0.25,
    "warp_probability": 0.0,
    "blur_probability": 0.0,
}
