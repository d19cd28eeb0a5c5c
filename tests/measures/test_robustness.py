"""The numbers of the ImageNet-C benchmark against its formulas in loops."""

import numpy as np
import pytest

from supcon_tf import config, measures
from supcon_tf.measures import robustness

# Averages that github.com/google-research/augmix and others divide by.
ALEXNET_MEANS = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
# Corruption errors of ResNet-50, percent of AlexNet: Table 1 of the paper.
RESNET_50 = (80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77)


def scaled(errors, factors):
    return {
        name: {s: factor * error for s, error in row.items()}
        for (name, row), factor in zip(errors.items(), factors, strict=True)
    }


def random_errors(seed):
    rng = np.random.default_rng(seed)
    return {
        name: {s: float(rng.uniform(0.4, 0.9)) for s in ("1", "3", "5")}
        for name in ("fog", "snow")
    }


def test_alexnet_is_the_published_table():
    assert tuple(measures.ALEXNET_ERRORS) == config.CORRUPTIONS
    for name, row in measures.ALEXNET_ERRORS.items():
        assert list(row) == ["1", "2", "3", "4", "5"]
        mean = sum(row.values()) / 5
        assert mean == pytest.approx(ALEXNET_MEANS[name], abs=1e-9)
    mean_error = measures.mean_corruption_error_unnormalized(
        measures.ALEXNET_ERRORS
    )
    assert mean_error == pytest.approx(np.mean(list(ALEXNET_MEANS.values())))


def test_half_the_errors_are_fifty_percent():
    alexnet = measures.ALEXNET_ERRORS
    half = scaled(alexnet, [0.5] * 15)
    clean = measures.ALEXNET_CLEAN_ERROR
    assert measures.mean_corruption_error(half, alexnet) == pytest.approx(50)
    assert measures.relative_mean_corruption_error(
        half, clean / 2, alexnet, clean
    ) == pytest.approx(50)
    # As many errors on all images: no corruption adds any.
    flat = {name: dict.fromkeys(row, 0.3) for name, row in alexnet.items()}
    assert measures.relative_mean_corruption_error(
        flat, 0.3, alexnet, clean
    ) == pytest.approx(0)


def test_numbers_of_the_paper():
    """ResNet-50 has an mCE of 76.7, and 61% of plain errors."""
    alexnet = measures.ALEXNET_ERRORS
    errors = scaled(alexnet, [c / 100 for c in RESNET_50])
    mce = measures.mean_corruption_error(errors, alexnet)
    assert mce == pytest.approx(76.7, abs=0.3)  # of rounded summands
    mean_error = measures.mean_corruption_error_unnormalized(errors)
    assert mean_error == pytest.approx(0.61, abs=0.005)
    # Only the corruptions and severities of the errors are compared.
    mce = measures.mean_corruption_error({"fog": {"2": 0.5}}, alexnet)
    assert mce == pytest.approx(100 * 0.5 / 0.7605)


def test_the_formulas_in_loops():
    errors, reference = random_errors(1), random_errors(2)
    ratios, relative = [], []
    for name in errors:
        total = reference_total = added = reference_added = 0.0
        for severity in errors[name]:
            total += errors[name][severity]
            reference_total += reference[name][severity]
            added += errors[name][severity] - 0.1
            reference_added += reference[name][severity] - 0.2
        ratios.append(total / reference_total)
        relative.append(added / reference_added)
    assert measures.mean_corruption_error(errors, reference) == pytest.approx(
        100 * sum(ratios) / 2
    )
    assert measures.relative_mean_corruption_error(
        errors, 0.1, reference, 0.2
    ) == pytest.approx(100 * sum(relative) / 2)


def test_a_reference_without_errors_gives_no_number():
    errors, perfect = {"fog": {"1": 0.5}}, {"fog": {"1": 0.0}}
    assert measures.mean_corruption_error(errors, perfect) is None
    relative_error = measures.relative_mean_corruption_error(
        errors, 0.1, errors, 0.5
    )
    assert relative_error is None
    # One image of 20 more, one less: rounding is no error that was added.
    balanced = {"fog": {"1": 1 - 19 / 20, "2": 1 - 18 / 20, "3": 1 - 17 / 20}}
    relative_error = measures.relative_mean_corruption_error(
        balanced, 0.1, balanced, 1 - 18 / 20
    )
    assert relative_error is None


def test_bad_errors():
    errors = {"fog": {"1": 0.5, "2": 0.6}, "snow": {"1": 0.5}}
    reference = {"fog": {"1": 0.5}}
    assert robustness.missing_errors(errors, reference) == ["fog 2", "snow 1"]
    with pytest.raises(ValueError, match="got none of fog 2, snow 1"):
        measures.mean_corruption_error(errors, reference)
    for empty in ({}, {"fog": {}}):
        with pytest.raises(ValueError, match="`errors` must not be empty"):
            measures.mean_corruption_error_unnormalized(empty)
