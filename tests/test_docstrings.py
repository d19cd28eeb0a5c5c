"""The examples in docstrings of public names run."""

import doctest

import pytest

import supcon_tf


def _examples():
    finder = doctest.DocTestFinder(recurse=False)
    for room in supcon_tf.__all__:
        value = getattr(supcon_tf, room)
        # Of a room its names, and a name itself.
        named = vars(value) if hasattr(value, "__path__") else {room: value}
        for name, public in named.items():
            if name[0] != "_" and callable(public):
                yield from (x for x in finder.find(public, name) if x.examples)


EXAMPLES = {example.name: example for example in _examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name):
    outcome = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name])
    assert outcome.failed == 0


def test_what_is_imported_first_has_an_example():
    public = {x for x in supcon_tf.__all__ if callable(getattr(supcon_tf, x))}
    assert public - {"load_encoder"} <= set(EXAMPLES)
