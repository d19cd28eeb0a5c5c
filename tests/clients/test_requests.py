"""Batches, their order, and what goes wrong on the way."""

from __future__ import annotations

import math
import threading
from concurrent import futures

import pytest

from supcon_tf import exceptions
from supcon_tf.clients import model, requests


class Sizes:
    """A model that gives the sizes of files, and refuses those with an x."""

    def __init__(self):
        self.batches = []
        self.lock = threading.Lock()

    def __call__(self, contents):
        with self.lock:
            self.batches.append(list(contents))
        for file in contents:
            if b"x" in file:
                raise model.Refused(f"no image: {file.decode()}")
        return [{"size": len(file)} for file in contents]


@pytest.fixture
def files(tmp_path):
    paths = []
    for index in range(23):
        paths.append(tmp_path / f"{index:02}.png")
        paths[-1].write_bytes(b"." * (index + 1))
    return paths


def ask(service, files, batch_size=4, **options):
    return list(
        requests.answers(service, files, batch_size=batch_size, **options)
    )


@pytest.mark.parametrize("requests_in_flight", [1, 3, 50])
def test_rows_come_in_the_order_of_the_files(files, requests_in_flight):
    service = Sizes()
    rows = ask(service, files, requests_in_flight=requests_in_flight)
    assert rows == [
        {"path": str(file), "size": index + 1}
        for index, file in enumerate(files)
    ]
    assert sorted(map(len, service.batches)) == [3, 4, 4, 4, 4, 4]


def test_requests_are_made_at_the_same_time(files):
    together = threading.Barrier(3, timeout=600)

    class Together(Sizes):
        def __call__(self, contents):
            together.wait()  # passes three at a time
            return super().__call__(contents)

    rows = ask(Together(), files[:6], batch_size=1, requests_in_flight=3)
    assert [row["size"] for row in rows] == [1, 2, 3, 4, 5, 6]


def test_no_more_requests_are_made_than_are_allowed(files, monkeypatch):
    def start(function):
        future = futures.Future()
        future.set_result(function())
        return future

    monkeypatch.setattr(requests, "_start", start)
    service = Sizes()
    rows = requests.answers(service, files, batch_size=1, requests_in_flight=3)
    for taken in range(1, 5):
        next(rows)
        assert len(service.batches) == 2 + taken


def test_bad_files_do_not_take_the_others_with_them(files):
    bad = {0: b"x", 9: b"xx", 10: b"xyz", 22: b"x"}
    for index, contents in bad.items():
        files[index].write_bytes(contents)
    service = Sizes()
    rows = ask(service, files, batch_size=8)
    for index, (file, row) in enumerate(zip(files, rows, strict=True)):
        answer = {"size": index + 1}
        if index in bad:
            answer = {"error": f"no image: {bad[index].decode()}"}
        assert row == {"path": str(file), **answer}
    sizes = [len(batch) for batch in service.batches]
    assert sorted(sizes) == [1] * 23 + [7, 8, 8]


def test_a_file_that_cannot_be_read_has_an_error(files):
    files[1].unlink()
    files[2].unlink()
    files[2].mkdir()
    rows = ask(Sizes(), files[:3], batch_size=3)
    reasons = [None, "No such file or directory", "Is a directory"]
    assert [row.get("error") for row in rows] == reasons
    assert "error" in ask(Sizes(), files[1:2])[0]


def test_outputs_that_are_not_finite_are_an_error(files):
    """JSON has no NaN, and a NaN would be the probability of a class."""

    def diverged(contents):
        return [
            {"score": [0.5, [value]], "name": "nan", "rank": 1}
            for value in (0.5, math.nan, -math.inf)
        ]

    rows = ask(diverged, files[:3])
    assert rows[0]["score"] == [0.5, [0.5]]
    error = "the model's score must be finite numbers"
    assert [row.get("error") for row in rows] == [None, error, error]
    # As `Predictor`, and a gallery that grows in Python, ask for them.
    outputs = requests.outputs(diverged, [b"1", b"2", b"3"])
    assert [row.get("error") for row in outputs] == [None, error, error]


def test_an_error_of_the_server_ends_the_requests(files):
    class Away(Sizes):
        def __call__(self, contents):
            super().__call__(contents)
            raise exceptions.Failed("away")

    service = Away()
    with pytest.raises(exceptions.Failed, match="away"):
        ask(service, files, batch_size=8, requests_in_flight=1)
    assert [len(batch) for batch in service.batches] == [8]


def test_names_that_are_no_text_can_be_written(tmp_path):
    file = tmp_path / "a\udcff.png"
    file.write_bytes(b".")
    (row,) = ask(Sizes(), [file])
    assert row["path"] == str(tmp_path / "a?.png")
