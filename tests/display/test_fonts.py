"""Names that matplotlib's font lacks, whatever fonts are installed."""

import matplotlib

from supcon_tf.display import fonts
from tests import system_fonts


def test_installed_fallbacks_follow_matplotlibs_own_font(tmp_path):
    with system_fonts.only_fonts():
        assert fonts.families() == ["sans-serif"]
    files = [
        system_fonts.make_font(tmp_path / f"{name}.ttf", name, "猫")
        for name in ("Arial Unicode MS", "Noto Sans CJK JP", "Another")
    ]
    with system_fonts.only_fonts(*files, str(tmp_path / "removed.ttf")):
        others = ["Noto Sans CJK JP", "Arial Unicode MS"]
        assert fonts.families() == ["sans-serif", *others]
        with matplotlib.rc_context({"font.family": ["Mine"]}):
            assert fonts.families() == ["Mine", *others]
