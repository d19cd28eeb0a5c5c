"""Numbers and choices that several rooms share."""

TEMPERATURE = 0.1  # tau, the paper's
MOST_CHANNELS = 16  # of images, in arrays, operations and encoders
# How the tokens of a transformer become a representation.
POOLINGS = "auto", "class_token", "mean", "both"
STRATEGIES = "auto", "one_device", "mirrored", "multi_worker", "tpu"
SPLIT_BY = "image", "class"  # what a split by a hash holds out
# Features of the image, of its labels, and of their names, as Model Garden has.
TFRECORD_FEATURES = "image/encoded", "image/class/label", "image/class/text"
# SimAugment by its name alone: milder than the paper's, it teaches more in few
# epochs.
SIM_AUGMENT = {
    "strength": 0.25,
    "warp_probability": 0.0,
    "blur_probability": 0.0,
}
