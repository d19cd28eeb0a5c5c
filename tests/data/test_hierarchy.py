"""Ancestors of classes, from their names and from a file."""

import unicodedata

import numpy as np
import pytest

from supcon_tf.data import hierarchy

NAMES = ("animal/dog/poodle", "animal/dog/pug", "animal/cat", "stone", "x/cat")
ANCESTORS = [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_names_are_paths():
    ancestors, depths = hierarchy.read_tree("names", NAMES)
    np.testing.assert_array_equal(ancestors, ANCESTORS)
    assert depths.tolist() == [2, 2, 1, 0, 1]


def test_a_file_gives_parents(tmp_path):
    """In any order, of more classes than there are."""
    path = tmp_path / "parents.csv"
    path.write_text(
        "parents,class\nanimal/dog,pug\nanimal/dog,poodle\n,stone\n"
        "animal,cat\nx,other\n"
    )
    names = ("poodle", "pug", "cat", "stone")
    ancestors = hierarchy.read_ancestors(str(path), names)
    np.testing.assert_array_equal(ancestors, ANCESTORS[:4])
    with pytest.raises(ValueError, match="a row for every class, got none for"):
        hierarchy.read_ancestors(str(path), ("pug", "emu"))
    with pytest.raises(ValueError, match="some class a parent, got a, b"):
        hierarchy.read_ancestors("names", ("a", "b"))


def test_blanks_and_forms_of_accents_make_no_new_parents(tmp_path):
    path = tmp_path / "parents.csv"
    text = "class,parents\npoodle,bête/dog\npug , bête / dog\nétoile,bête\n"
    path.write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    ancestors = hierarchy.read_ancestors(str(path), ("poodle", "pug", "étoile"))
    np.testing.assert_array_equal(ancestors, [[0, 0, 0], [0, 0, 1], [0, 1, 2]])
    names = ("bête/dog/poodle", "bête / dog/pug", "bête/étoile")
    np.testing.assert_array_equal(
        hierarchy.read_ancestors("names", names), ancestors
    )


def test_a_class_has_the_same_parents_in_all_rows(tmp_path):
    path = tmp_path / "parents.csv"
    path.write_text("class,parents\ncrane,bird\ncrane,bird\ncrane,machine\n")
    message = "csv:4 must give crane the parents .* before, bird, got machine"
    with pytest.raises(ValueError, match=message):
        hierarchy.read_ancestors(str(path), ("crane",))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("pug,animal|dog\ncat,animal\n", r"csv:2 must have / between parents"),
        ("pug,animal\ncat,animal > cats\n", "csv:3 must have / .* got animal"),
        ("pug,dog/pug\ncat,cat\n", "without the class itself, .* pug, cat$"),
        ("pug,dog\ncat,feline\ndog,animal\nfeline,animal\n",
         "give pug all of its parents, .* got dog for pug, and animal for dog"),
        # A group is called by a class of it; a class by another group.
        ("pug,animal/cat\ncat,animal/cat\nanimal,\n", None),
        ("pug,cat\ncat,animal\nx,y|z/a\n", None),
    ],
)  # fmt: skip
def test_paths_have_all_parents_and_no_class(tmp_path, rows, message):
    """Else every class would have one parent more, or lack all but one."""
    path = tmp_path / "parents.csv"
    path.write_text(f"class,parents\n{rows}")
    if message is None:
        hierarchy.read_ancestors(str(path), ("pug", "cat"))
        return
    with pytest.raises(ValueError, match=message):
        hierarchy.read_ancestors(str(path), ("pug", "cat"))
