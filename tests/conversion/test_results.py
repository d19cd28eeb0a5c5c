"""The table that a user sees."""

from __future__ import annotations

from supcon_tf import conversion

FLOAT = {"top_1": 0.5, "top_5": 1.0, "ece": 0.01, "nll": 0.7}
INT8 = {
    "bytes": 1_234_567,
    **FLOAT,
    "top_1": 0.4875,
    "max_difference": 0.0123,
    "mean_difference": 1e-4,
    "agreement": 0.99,
    "milliseconds": 1.5,
}


def test_a_row_per_model():
    found = {"float_model": FLOAT, "models": {"tflite_int8": INT8}}
    titles, first, second = conversion.conversion_table(found).splitlines()
    assert titles.split() == (
        "MB top-1 top-5 ECE NLL max diff mean diff agreement ms/image".split()
    )
    assert first.removeprefix("float model").split() == (
        "- 0.5000 1.0000 0.0100 0.7000 - - - -".split()
    )
    assert second.split() == (
        "tflite_int8 1.23 0.4875 1.0000 0.0100 0.7000 1.2e-02 1.0e-04 0.9900 "
        "1.50".split()
    )
    assert len(titles) == len(first) == len(second)


def test_what_was_not_measured_has_no_column():
    found = {"float_model": {}, "models": {"onnx": {"bytes": 5}}}
    assert "top-1" not in conversion.conversion_table(found)
