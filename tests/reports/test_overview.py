from __future__ import annotations

import html
import re
import shlex

import pytest

from supcon_tf import config
from supcon_tf.reports import commands, contents, overview, page
from supcon_tf.settings import from_flagfile
from tests.reports import pages, run_files


@pytest.mark.parametrize(
    ("settings", "epochs", "expected"),
    [
        ({"epochs": "24", "temperature": "0.1", "width": "0.25"}, 24,
         " of width 0.25, trained for 24 epochs with the supervised "
         "contrastive loss at temperature 0.1."),
        ({"epochs": "24", "objective": "npairs+ce", "width": "1.0"}, 12,
         ", trained for 12 of 24 epochs with the N-pairs loss and "
         "cross-entropy together."),
        ({"epochs": "0", "objective": "ce"}, None,
         ", with random weights, not trained at all."),
    ],
)  # fmt: skip
def test_a_run_in_words(settings, epochs, expected):
    defaults = {"architecture": "vgg8", "dataset": "<folder>"}
    lines = [{"epoch": epochs}] if epochs else []
    run = run_files.bare_run(settings=defaults | settings, epochs=lines)
    lead = re.search('<p class="lead">.*?</p>', page.render([run]), re.DOTALL)
    sentence = f"Encoder vgg8{expected} Data: <folder> , 2 classes."
    assert pages.words(lead[0]) == sentence


@pytest.mark.parametrize(
    ("epochs", "chosen", "count", "expected"),
    [
        ("0", "frozen", 1, "frozen, with the weights that it came with."),
        ("9", "frozen", 4,
         "frozen, which validation images chose among 4 networks: the frozen "
         "one, and those trained for 9 epochs with cross-entropy."),
        ("9", "tuned at 0.01", 4, "tuned at 0.01, which validation images "),
    ],
)  # fmt: skip
def test_a_fine_tuned_run_in_words(epochs, chosen, count, expected):
    finetuning = {"chosen": chosen, "candidates": [{}] * count}
    run = run_files.bare_run(
        settings={"architecture": "a:b", "epochs": epochs, "objective": "ce"},
        finetuning=finetuning,
    )
    text = pages.words(page.render([run]))
    assert f"Encoder a:b, {expected}" in text
    # No epoch is missing where none was to be.
    assert "Learning curves. Not made yet" not in text


def test_the_first_sentence_of_a_flag_is_whole():
    flags = ("formulation", "batch_size", "normalize_representation")
    run = run_files.bare_run(settings=dict.fromkeys(flags, "1"))
    about = {row["flag"]: row["about"] for row in overview.settings([run])}
    assert about["formulation"] == "L_out (Eq. 2) or L_in (Eq. 3)"
    assert about["batch_size"].endswith("until an epoch has 4 steps")
    assert about["normalize_representation"].endswith("as in Sec. 3.1")


def test_commands_repeat_a_module():
    run = run_files.bare_run(settings={"architecture": "mine:network"})
    again = "tools/train_linear.py --run_dir=runs/run --architecture=mine:netwo"
    assert again in pages.left_out(run)


def test_numbers_that_matter_come_first():
    linear = {"top_1": 0.994, "ece": 0.02449, "nll": 0.5}
    run = run_files.bare_run(evaluation={"linear": linear})
    key, every = pages.section("results", run).split("<details>")
    first, second = pages.rows(key)[1:]
    assert first[0].startswith("Top-1 accuracy share of test examples")
    assert first[1] == "99.4 %"
    assert second[0].startswith("Calibration error (ECE)")
    assert second[1] == "0.024"
    assert [row[1] for row in pages.rows(every)[1:]] == [
        "99.4 %",
        "0.024",
        "0.500",
    ]


def test_settings_that_differ_from_the_defaults(tmp_path):
    path = run_files.write_run(tmp_path / "run", parts=(), temperature=0.07)
    rows = overview.settings([contents.read_run(path, "run")])
    changed = {row["flag"]: row for row in rows if row["differs"]}
    assert {*changed} == {"dataset", "temperature", "epochs", "warmup_epochs"}
    assert changed["temperature"]["values"] == ["0.07"]
    field = config.PretrainSettings.__dataclass_fields__["temperature"]
    assert field.metadata["help"].startswith(changed["temperature"]["about"])
    assert {"run_dir", "optimizer"} <= {row["flag"] for row in rows}


def test_settings_in_which_runs_differ():
    settings_by_run = {"a": {"x": "1", "y": "2"}, "b": {"x": "1"}}
    runs = [
        run_files.bare_run(name, settings={**options, "run_dir": name})
        for name, options in settings_by_run.items()
    ]
    lead = pages.section("settings", *runs).split("<details>")[0]
    assert pages.rows(lead) == [["setting", "a", "b"], ["y", "2", "–"]]
    same = pages.section("settings", runs[0], runs[0])
    assert "<p>The runs have the same settings.</p>" in same


def test_the_commands_repeat_the_run(tmp_path):
    path = run_files.write_run(
        tmp_path / "a run's", parts=("evaluation",), temperature=0.07
    )
    body = pages.section("reproduction", contents.read_run(path, "a"))
    lines = [
        shlex.split(html.unescape(re.sub("<[^>]*>", "", line)))
        for line in re.findall("<code>(?=<span>).*?</code>", body)
    ]
    tools = [
        f"tools/{name}.py" for name in ("pretrain", "train_linear", "evaluate")
    ]
    assert [line[1] for line in lines] == tools
    kinds = config.PretrainSettings, config.LinearSettings
    for line, kind in zip(lines, kinds, strict=False):
        flagfile = line[2].removeprefix("--flagfile=")
        repeated = from_flagfile(kind, flagfile, *line[3:])
        assert repeated.run_dir == f"{path}_again"
    assert lines[2][2:] == [f"--run_dir={path}_again"]


def test_runs_on_different_images_are_not_compared_silently():
    def explanation(**second):
        first = {"dataset": "a", "test_examples": 9, "linear": {"top_1": 0.5}}
        runs = [
            run_files.bare_run(name, evaluation=results)
            for name, results in (("a", first), ("b", first | second))
        ]
        return pages.section("results", *runs)

    assert "different images" not in explanation()
    assert "different images" in explanation(dataset="b")
    assert "different images" in explanation(test_examples=8)


def test_the_card_of_the_newest_export():
    lines = {"Classes": "2: <b>, bee", "Commands": ["python x.py --a=b", "y"]}
    run = run_files.bare_run(card={"Model": lines, "Export": {"Size": "1 MB"}})
    body = pages.section("card", run)
    assert pages.rows(body) == [
        ["", ""],
        ["Classes", "2: <b>, bee"],
        ["Commands", "python x.py --a=b y"],
        ["", ""],
        ["Size", "1 MB"],
    ]
    note = "Model card. Not made yet: python tools/export.py --run_dir=runs/b"
    assert note in pages.left_out(run_files.bare_run("b"))


def test_absent_sections_come_with_a_command():
    empty = run_files.bare_run("b")
    evaluated = run_files.bare_run(
        "c", linear_stage="linear", evaluation={"linear": {"top_1": 0.5}}
    )
    text = pages.words(pages.section("results", empty, evaluated))
    assert text.endswith(
        "Not made yet for b : python tools/train_linear.py --run_dir=runs/b && "
        "python tools/evaluate.py --run_dir=runs/b"
    )
    assert "Not made yet" not in pages.section("results", evaluated)
    text = pages.left_out(evaluated)
    note = "Not made yet: python tools/evaluate.py --run_dir=runs/c"
    # Once for all that one command makes.
    assert "Confusions, Recall of each class, Calibration, Most" in text
    assert text.count(note) == 4
    assert f"contradict. {note} --label_issues=1000" in text
    assert f"Corrupted images. {note} --corruptions=generated" in text
    # The new evaluation replaces the old one, with all that it has.
    settings = {
        **{"corruptions": "generated", "knn_neighbors": "9", "shots": "20,100"},
        **{"label_issues": "50", "sample_images": "0", "linear_stage": "mine"},
    }
    repeated = run_files.bare_run(
        "d", linear_stage="linear", evaluation={"settings": settings}
    )
    text = pages.left_out(repeated)
    note = (
        "tools/evaluate.py --run_dir=runs/d --corruptions=generated "
        "--knn_neighbors=9"
    )
    assert f"Not made yet: python {note} --label_issues=50" in text
    assert f"contradict. Not made yet: python {note} --label_issues=10" in text
    assert "sample_images" not in text
    assert commands.reproduction(repeated)[-1].endswith(
        "--label_issues=50 --sample_images=0"
    )
