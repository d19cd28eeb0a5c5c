"""What C++ code prints is dropped, and only while it is meant to be."""

from __future__ import annotations

import os
import threading

import pytest

from supcon_tf.conversion import silence


def test_nothing_is_printed_meanwhile(capfd):
    print("before", flush=True)
    with pytest.raises(KeyError), silence.silenced():
        os.write(1, b"of C++\n")
        os.write(2, b"of C++\n")
        raise KeyError
    print("after", flush=True)
    assert capfd.readouterr() == ("before\nafter\n", "")


def test_threads_bring_the_outputs_back(capfd):
    inside = threading.Event()

    def first():
        with silence.silenced():
            inside.set()
            threading.Event().wait(0.05)

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with silence.silenced(), silence.silenced():
        os.write(1, b"of C++\n")
    thread.join()
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"
