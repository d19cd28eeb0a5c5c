"""Corrupted test images, and the classifiers of a run on them."""
