"""Processes, rounds and files of the benchmarks."""

from __future__ import annotations

import json

from matplotlib import figure

from supcon_tf.benchmarks import processes


def test_messages_of_tensorflow_become_one_line():
    graph = RuntimeError(
        "Graph execution error:\n\nnode\nOOM when allocating x"
    )
    assert processes.one_line(graph) == "RuntimeError: OOM when allocating x"
    autograph = ValueError("in user code:\n\n  File x\n\n    TypeError: bad\n")
    assert processes.one_line(autograph) == "TypeError: bad"
    assert processes.one_line(ValueError()) == "ValueError: "


def test_rounds_are_interleaved_and_failures_not_repeated():
    taken = []

    def measurement(name, *results):
        left = list(results)

        def measure():
            taken.append(name)
            return left.pop(0)

        return measure

    runs = processes.interleave(
        3,
        {
            "a": measurement("a", {"ms": 1}, {"ms": 2}, {"ms": 3}),
            "b": measurement("b", {"ms": 4}, {"error": "gone"}),
            "c": measurement("c", {"error": "never there"}),
        },
    )
    assert "".join(taken) == "abcaba"
    assert runs == {
        "a": [{"ms": 1}, {"ms": 2}, {"ms": 3}],
        "b": [{"ms": 4}, {"error": "gone"}],
        "c": [{"error": "never there"}],
    }


def test_what_a_process_raises_is_its_result():
    done = processes.run("loss_point", {"threads": 1})
    assert done == {"error": "KeyError: 'name'"}
    done = processes.run("nothing", {"threads": 1})
    assert "No module named supcon_tf.benchmarks.nothing" in done["error"]


def test_threads_are_those_asked_for_or_those_allowed(monkeypatch):
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda _: {1, 3, 5}, raising=False
    )
    assert processes.choose_threads(2) == 2
    assert processes.choose_threads(0) == 3
    assert processes.describe_machine(7)["threads"] == 7


def test_results_are_two_whole_files(tmp_path):
    processes.write(tmp_path, "bench", {"points": [1]}, figure.Figure())
    assert json.loads((tmp_path / "bench.json").read_text()) == {"points": [1]}
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 2
