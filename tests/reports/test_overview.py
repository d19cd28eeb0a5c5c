from __future__ import annotations

import html
import re
import shlex

import pytest

from supcon_tf import config, settings
from supcon_tf.reports import contents, overview
from tests.reports import run_files


def text_of(markup):
    return " ".join(re.sub("<[^>]*>", "", markup).split())


@pytest.mark.parametrize(
    ("chosen", "epochs", "expected"),
    [
        (
            {"epochs": "24", "temperature": "0.1", "width": "0.25"},
            [{"epoch": 24}],
            "Encoder vgg8 of width 0.25, trained for 24 epochs with the "
            "supervised contrastive loss at temperature 0.1.",
        ),
        (
            {"epochs": "24", "objective": "npairs+ce", "width": "1.0"},
            [{"epoch": 12}],
            "Encoder vgg8, trained for 12 of 24 epochs with the N-pairs loss "
            "and cross-entropy together.",
        ),
        (
            {"epochs": "0", "objective": "ce"},
            [],
            "Encoder vgg8, with random weights, not trained at all.",
        ),
    ],
)
def test_a_run_in_words(chosen, epochs, expected):
    known = {"architecture": "vgg8", "dataset": "<folder>"}
    run = run_files.bare_run(settings=known | chosen, epochs=epochs)
    words = overview.introduction([run])
    assert text_of(words) == f"{expected} Data: &lt;folder&gt;, 2 classes."


def test_settings_that_differ_from_the_defaults(tmp_path):
    path = run_files.write_run(tmp_path / "run", parts=(), temperature=0.07)
    section = overview.settings_section([contents.read_run(path, "run")])
    shown, folded = section.body.split("<details>")
    flags = re.findall(r"<code>(\w+)</code>", shown)
    changed = {"dataset", "temperature", "epochs", "warmup_epochs"}
    assert set(flags) == changed
    assert "0.07" in shown
    help_text = config.PretrainSettings.__dataclass_fields__["temperature"]
    assert help_text.metadata["help"].split(":")[0] in shown
    everything = re.findall(r"<code>(\w+)</code>", folded)
    assert {"run_dir", "optimizer", *flags} <= set(everything)


def test_settings_in_which_runs_differ(tmp_path):
    runs = [
        run_files.bare_run("a", settings={"x": "1", "y": "2", "run_dir": "a"}),
        run_files.bare_run("b", settings={"x": "1", "run_dir": "b"}),
    ]
    shown = overview.settings_section(runs).body.split("<details>")[0]
    assert re.findall(r"<code>(\w+)</code>", shown) == ["y"]
    assert "<td><bdi>2</bdi></td><td><bdi>–</bdi></td>" in shown
    same = overview.settings_section(runs[:1] * 2).body
    assert same.startswith("<p>The runs have the same settings.</p>")


def test_the_commands_repeat_the_run(tmp_path):
    path = run_files.write_run(tmp_path / "a run's", temperature=0.07)
    section = overview.reproduction_section([contents.read_run(path, "a")])
    lines = [
        shlex.split(html.unescape(text_of(line)))
        for line in re.findall("<code>(?=<span>).*?</code>", section.body)
    ]
    assert [line[1] for line in lines] == [
        "tools/pretrain.py",
        "tools/train_linear.py",
        "tools/evaluate.py",
    ]
    for line, kind in zip(
        lines, (config.PretrainSettings, config.LinearSettings), strict=False
    ):
        flagfile = line[2].removeprefix("--flagfile=")
        again = settings.from_flagfile(kind, flagfile, *line[3:])
        assert again.run_dir == f"{path}_again"
    assert lines[2][2:] == [f"--run_dir={path}_again"]


def test_runs_on_different_images_are_not_compared_silently():
    def section(**second):
        first = {"dataset": "a", "test_images": 9, "linear": {"top_1": 0.5}}
        runs = [first, first | second]
        return overview.results_section(
            [
                run_files.bare_run(str(i), evaluation=x)
                for i, x in enumerate(runs)
            ]
        ).explanation

    assert "different images" not in section()
    assert "different images" in section(dataset="b")
    assert "different images" in section(test_images=8)


def test_what_is_absent_comes_with_a_command():
    runs = [
        run_files.bare_run("a", linear_stage="linear"),
        run_files.bare_run("b"),
    ]
    words = text_of(overview.absent(runs, [True, False], extra="--k=1"))
    assert words == (
        "Not made yet for a: python tools/evaluate.py --run_dir=runs/a --k=1"
    )
    words = text_of(overview.absent(runs[1:], [True]))
    assert words.startswith("Not made yet: python tools/train_linear.py --run")
    assert not overview.absent(runs, [False, False])
