"""Errors on corrupted images as one number, as ImageNet-C defines them.

An error is a share in [0, 1], per corruption and severity. Three numbers that
are easily confused have three names: the plain mean of the errors, and two
percentages of the errors of a reference model, which itself has 100 in both.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from supcon_tf import exceptions

# Errors by corruption, then by severity, "1" to "5".
Errors = Mapping[str, Mapping[str, float]]

# Top-1 errors of torchvision's AlexNet on ImageNet-C, severities 1 to 5, as
# quoted in https://github.com/hendrycks/robustness/issues/10.
_ALEXNET = {
    "gaussian_noise": (0.69528, 0.82542, 0.93554, 0.98138, 0.99452),
    "shot_noise": (0.71224, 0.85108, 0.93574, 0.98182, 0.99146),
    "impulse_noise": (0.78374, 0.89808, 0.94870, 0.98720, 0.99548),
    "defocus_blur": (0.65624, 0.73202, 0.85036, 0.91364, 0.94714),
    "glass_blur": (0.64308, 0.75054, 0.88806, 0.91622, 0.93344),
    "motion_blur": (0.58430, 0.70048, 0.82108, 0.89750, 0.92638),
    "zoom_blur": (0.70008, 0.76992, 0.80784, 0.84198, 0.87198),
    "snow": (0.71726, 0.88392, 0.86468, 0.91870, 0.94952),
    "frost": (0.61390, 0.79734, 0.88790, 0.89942, 0.93430),
    "fog": (0.67474, 0.76050, 0.84378, 0.87260, 0.94500),
    "brightness": (0.45140, 0.48502, 0.54048, 0.62166, 0.72440),
    "contrast": (0.64548, 0.76150, 0.88874, 0.97760, 0.99270),
    "elastic_transform": (0.52596, 0.70116, 0.55686, 0.64076, 0.80554),
    "pixelate": (0.52218, 0.54620, 0.73728, 0.87092, 0.91262),
    "jpeg_compression": (0.51002, 0.54718, 0.57294, 0.65458, 0.74778),
}
ALEXNET_ERRORS: Errors = {
    name: {str(severity): error for severity, error in enumerate(errors, 1)}
    for name, errors in _ALEXNET.items()
}
# Top-1 accuracy 56.522% on the validation images, in torchvision's table of
# weights; 43.5% error in Table 1 of the benchmark's paper.
ALEXNET_CLEAN_ERROR = 0.43478
# Sums of errors that are equal may differ by their rounding, and one image of
# ten million counts more than this.
_ROUNDING = 1e-9


def mean_corruption_error_unnormalized(errors: Errors) -> float:
    """Mean error over severities, then over corruptions, without a reference.

    Example:
      >>> from supcon_tf import measures
      >>> errors = {"fog": {"1": 0.25, "5": 0.75}, "snow": {"5": 1.0}}
      >>> measures.mean_corruption_error_unnormalized(errors)  # (0.5 + 1) / 2
      0.75

    Raises:
      ValueError: `errors` or one of its rows is empty.
    """
    _check_not_empty(errors)
    means = [
        statistics.fmean(by_severity.values())
        for by_severity in errors.values()
    ]
    return statistics.fmean(means)


def mean_corruption_error(errors: Errors, reference: Errors) -> float | None:
    """Mean corruption error (mCE): errors in percent of a reference's errors.

      CE_c = sum_s E_{s,c} / sum_s E^ref_{s,c},  mCE = 100 * mean_c CE_c

    In percent, 100 for the reference itself; None if the reference makes no
    error on a corruption c. Corruptions that only the reference has are left
    out; one that it lacks raises a ValueError.

    Example:
      >>> from supcon_tf import measures
      >>> errors, reference = {"fog": {"1": 0.25}}, {"fog": {"1": 0.5}}
      >>> measures.mean_corruption_error(errors, reference)
      50.0

    Reference: Hendrycks and Dietterich 2019, https://arxiv.org/abs/1903.12261,
    Sec. 4.2.
    """
    return relative_mean_corruption_error(errors, 0.0, reference, 0.0)


def relative_mean_corruption_error(
    errors: Errors,
    clean_error: float,
    reference: Errors,
    reference_clean_error: float,
) -> float | None:
    """Relative mCE: error added by corruptions, in percent of a reference's.

      CE_c = sum_s (E_{s,c} - E_clean) / sum_s (E^ref_{s,c} - E^ref_clean)

    100 * mean_c CE_c, percent, as `mean_corruption_error`; below 0 where
    corruptions lower the error, None if a corruption adds no error to the
    reference. The clean errors are those on the same images before corruption.

    Example:
      >>> from supcon_tf import measures
      >>> errors, reference = {"fog": {"1": 0.375}}, {"fog": {"1": 1.0}}
      >>> measures.relative_mean_corruption_error(errors, 0.25, reference, 0.5)
      25.0
    """
    _check_not_empty(errors)
    missing = missing_errors(errors, reference)
    exceptions.require(
        not missing,
        "`reference` must have every error of `errors`",
        f"none of {', '.join(missing)}",
    )
    ratios = []
    for name, by_severity in errors.items():
        added_error = sum(error - clean_error for error in by_severity.values())
        reference_added_error = sum(
            reference[name][severity] - reference_clean_error
            for severity in by_severity
        )
        if reference_added_error <= _ROUNDING:
            return None
        ratios.append(added_error / reference_added_error)
    return 100 * statistics.fmean(ratios)


def missing_errors(errors: Errors, reference: Errors) -> list[str]:
    """Names of errors that `reference` lacks, such as "fog 3".

    Example:
      >>> from supcon_tf import measures
      >>> errors = {"fog": {"1": 0.25, "3": 0.5}}
      >>> measures.missing_errors(errors, {"fog": {"1": 0.5}})
      ['fog 3']
    """
    return [
        f"{name} {severity}"
        for name, by_severity in errors.items()
        for severity in by_severity
        if severity not in reference.get(name, {})
    ]


def _check_not_empty(errors: Errors) -> None:
    """Raises ValueError for no corruption, or for one without severities."""
    exceptions.require(
        errors and all(errors.values()), "`errors` must not be empty", errors
    )
