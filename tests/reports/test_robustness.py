from __future__ import annotations

from tests.reports import pages, run_files


def corrupted_run(name="run", reference=None, images=50, **more):
    single = {str(s): {"top_1": 0.9 - 0.1 * s, "ece": 0.1} for s in (1, 3)}
    results = {
        "clean": {"top_1": 0.9, "ece": 0.01},
        "results": {"gaussian_noise": single, "fog": single},
        "by_severity": single,
        "mean_corruption_error_unnormalized": 0.3,
        "mean_ece": 0.1,
        **more,
    }
    corruptions = {
        "source": "generated",
        "images": images,
        "reference": reference,
        "linear": results,
    }
    return run_files.bare_run(name, evaluation={"corruptions": corruptions})


def test_figures_tables_and_conditions():
    body = pages.section("robustness", corrupted_run())
    assert body.count("<svg") == 2
    assert "0: 0.900, 1: 0.800, 3: 0.600" in body  # 0: clean
    text = pages.words(body)
    assert "Gaussian noise 70.0 %" in text
    assert "over all corruptions and severities, not an mCE 30.0 %" in text
    assert "Measured on 50 test images, corruptions generated." in text
    assert "Relative mCE" not in text


def test_errors_in_percent_of_a_reference_name_it():
    run = corrupted_run(reference="alexnet", mce=71.25, relative_mce=None)
    text = pages.words(pages.section("robustness", run))
    assert "in percent of a reference's 71.2" in text
    assert "corruptions generated, reference AlexNet." in text
    assert "Relative mCE" not in text
    run = corrupted_run(reference="a/<b>.json", mce=99.0, relative_mce=98.0)
    text = pages.words(pages.section("robustness", run))
    assert "reference a/<b>.json." in text
    assert "on clean images 98.0" in text


def test_runs_side_by_side():
    runs = [
        corrupted_run("a"),
        run_files.bare_run("b"),
        corrupted_run("c", images=9),
    ]
    text = pages.words(pages.section("robustness", *runs))
    assert "Gaussian noise 70.0 % 70.0 %" in text
    assert "a : 50 test images, corruptions generated." in text
    assert "c : 9 test images" in text
    assert "Not made yet for b : python" in text
    assert text.endswith("--corruptions=generated")
