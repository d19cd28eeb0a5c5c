"""Defaults that a loss and its flag share."""

TEMPERATURE = 0.1  # tau, the paper's
