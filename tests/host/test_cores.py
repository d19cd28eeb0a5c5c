"""Threads and processes go by the cores that are there for them."""

import os
import pathlib

import pytest

from supcon_tf.host import cores


def test_only_cores_of_this_process_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _: {1, 3}, raising=False
    )
    assert cores.usable() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores.usable() == 64


@pytest.mark.parametrize(
    "text, lacked",
    [
        ("flags\t\t: fpu avx2 f16c\n", {"bfloat16", "float16"}),
        ("flags\t\t: fpu avx512f avx512_bf16\n", {"float16"}),
        ("flags\t\t: amx_bf16 avx512_fp16\n", set()),
        ("Features\t: fp asimd bf16\n", set()),  # ARM
        (None, set()),  # not Linux
    ],
)
def test_instructions_are_those_that_linux_lists(monkeypatch, text, lacked):
    def read_text(path):
        if text is None:
            raise FileNotFoundError(path)
        return f"processor\t: 0\n{text}"

    monkeypatch.setattr(pathlib.Path, "read_text", read_text)
    dtypes = ("float32", "bfloat16", "float16")
    assert {dtype for dtype in dtypes if cores.lack_instructions(dtype)} == (
        lacked
    )
