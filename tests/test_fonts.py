"""Names that matplotlib's font lacks, whatever fonts are installed."""

import matplotlib
import pytest
from matplotlib import font_manager

from supcon_tf import fonts
from tests import made_fonts

CAT, DOG = "猫", "狗"


@pytest.fixture
def installed():
    with made_fonts.no_fonts() as files:
        yield files


def test_matplotlibs_own_font_is_enough_where_it_is(installed, capsys):
    texts = ["cat", "Straße", "кошка", "γάτα", "two\nlines", ""]
    assert fonts.families(texts) == ["sans-serif"]
    assert fonts.families([]) == ["sans-serif"]
    assert not capsys.readouterr().err


def test_as_few_others_as_have_the_characters(installed, tmp_path, capsys):
    installed += [
        made_fonts.make_font(tmp_path / "c.ttf", "Cat", CAT),
        made_fonts.make_font(tmp_path / "d.ttf", "Dog", DOG),
        str(tmp_path / "removed.ttf"),
    ]
    assert fonts.families([CAT]) == ["sans-serif", "Cat"]
    assert fonts.families([CAT, f"a {DOG}"]) == ["sans-serif", "Cat", "Dog"]
    # Installed while this runs.
    installed.append(
        made_fonts.make_font(tmp_path / "b.ttf", "Zoo", CAT + DOG + "鳥")
    )
    assert fonts.families([CAT + DOG + "鳥"]) == ["sans-serif", "Zoo"]
    assert not capsys.readouterr().err


def test_settings_of_matplotlib_come_first(installed, tmp_path):
    path = made_fonts.make_font(tmp_path / "c.ttf", "Cat", CAT)
    font_manager.fontManager.addfont(path)
    with matplotlib.rc_context({"font.family": ["Cat"]}):
        assert fonts.families([CAT]) == ["Cat"]


def test_what_no_font_has_is_said_once_with_its_package(installed, capsys):
    assert fonts.families(["ok", CAT + DOG, CAT]) == ["sans-serif"]
    assert capsys.readouterr().err == (
        "fonts        no installed font has 狗猫: boxes in figures; "
        "apt-get install fonts-noto-cjk\n"
    )
    fonts.families([CAT])
    assert not capsys.readouterr().err
    fonts.families([CAT, "กา"])
    said = capsys.readouterr().err
    assert "has กา: boxes" in said and "install fonts-noto-core\n" in said
    # Many are not all listed.
    fonts.families(["".join(map(chr, range(0x4E00, 0x4E00 + 300)))])
    said = capsys.readouterr().err
    assert "... (300 characters)" in said and len(said) < 200
