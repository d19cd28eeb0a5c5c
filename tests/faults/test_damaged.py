"""Files that are cut or of another kind: one line that names the file."""

import io
import json

import numpy as np
import pytest

from supcon_tf import config, evaluation, reports, run_files
from supcon_tf.disk import files
from supcon_tf.run_files import contents
from supcon_tf.sweeps import grid
from supcon_tf.training import runs
from tests import runs as shared_runs


@pytest.fixture(scope="module")
def evaluated(copy_evaluated_run, tmp_path_factory):
    return copy_evaluated_run(tmp_path_factory.mktemp("damaged") / "run")


def evaluate(run):
    return evaluation.evaluate(shared_runs.evaluation_settings(run.path))


def pickled():
    content = io.BytesIO()
    np.savez(content, labels=np.array([print], object))
    return content.getvalue()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("classes.json", lambda _: b""),
        ("classes.json", lambda _: b'{"a": 1}'),
        ("linear/evaluation.json", lambda content: content[:100]),
        ("linear/predictions.npz", lambda content: content[:1000]),
        ("linear/predictions.npz", lambda _: pickled()),
        ("linear/samples.npz", lambda _: b""),
        ("metrics.jsonl", lambda content: content[:20] + b"\n" + content),
        ("metrics.jsonl", lambda content: b"[1]\n" + content),
        ("linear/metrics.jsonl", lambda content: b"{\n" + content),
        ("checkpoints/step-00000006/progress.json", lambda _: b"[]"),
    ],
)
def test_a_report_names_the_damaged_file(evaluated, name, damage, tmp_path):
    path = evaluated.path / name
    content = path.read_bytes()
    path.write_bytes(damage(content))
    line = r":1 must be" if name.endswith("jsonl") else " must be"
    try:
        with pytest.raises(ValueError, match=f"run/{name}{line}") as raised:
            reports.write_report([evaluated.path], tmp_path / "report.html")
    finally:
        path.write_bytes(content)
    assert "but is damaged: " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["made_of.json", "labels.npy", "representations.npy"]
)
def test_damaged_representations_are_made_anew(
    evaluated, name, tmp_path, capsys
):
    path = evaluated.encoded / "test" / name
    before = path.read_bytes()
    path.write_bytes(before[:100])
    evaluate(evaluated)
    assert f"encoded/test/{name} must be as it was" in capsys.readouterr()[0]
    assert path.read_bytes() == before


def test_an_evaluation_replaces_a_damaged_evaluation(evaluated):
    evaluated.stage("linear").evaluation_file.write_text("{")
    evaluated.evaluation_file.write_text("{")  # of an earlier version
    measured = evaluate(evaluated)
    evaluated.evaluation_file.unlink()
    written = evaluated.stage("linear").evaluation()
    assert written["encoder"] == measured["encoder"]


def test_the_best_epoch_must_have_its_figures(finished_text_run):
    run = finished_text_run
    best = run_files.steps_in(run.best)[-1]
    lines = run.metrics_file.read_text().splitlines(keepends=True)
    other_lines = [line for line in lines if json.loads(line)["epoch"] != best]
    run.metrics_file.write_text("".join(other_lines))
    with pytest.raises(ValueError, match=f"metrics.jsonl .*epoch {best}, the"):
        _ = runs.open_run(run.path).validation
    run.metrics_file.write_text("".join(lines))
    figures = runs.open_run(run.path).validation
    assert set(figures) == {"top_1", "nll"}


def test_the_state_of_a_cell_is_named(tmp_path):
    sweep = config.SweepSettings(str(tmp_path), sweep=("seed=0",))
    (cell,) = grid.list_cells(sweep)
    cell.record()
    (cell.directory / "state.json").write_text('{"states": 1}')
    with pytest.raises(ValueError, match=r"state\.json must be as it was wri"):
        cell.state()


def test_json_of_another_type_is_damaged(tmp_path):
    path = tmp_path / "a.json"
    assert files.read_json(path, []) == []
    path.write_text("[1]")
    assert files.read_json(path, []) == [1]
    with pytest.raises(ValueError, match="list in it. Make it again"):
        files.read_json(path, {}, "Make it again")


def test_json_of_a_hundred_thousand_brackets_is_damaged(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="but is damaged: .*recursion"):
        files.read_json(path, [])
    with pytest.raises(ValueError, match="figures of an epoch as JSON"):
        path.write_text("[" * 100_000 + "\n")
        contents.read_metrics(path)
