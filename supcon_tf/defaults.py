"""Numbers that several rooms share."""

TEMPERATURE = 0.1  # tau, the paper's
MOST_CHANNELS = 16  # of images, in arrays, operations and encoders
