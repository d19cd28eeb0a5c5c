"""Colours and marks of classes and runs, in every figure the same."""

# Petroff 2021, https://arxiv.org/abs/2107.02270: ten colours that stay apart
# under the common colour-vision deficiencies.
COLORS = tuple(
    "#3f90da #ffa90e #bd1f01 #94a4a2 #832db6 #a96b59 #e76300 #b9ac70 #717581 "
    "#92dadd".split()
)
# Matplotlib's names. Seven, coprime to the ten colours: 70 classes before a
# pair comes again.
MARKERS = "o^sDvPX"
MOST_CLASSES = len(COLORS) * len(MARKERS)


def style(index: int) -> dict[str, str]:
    """Colour and mark of a class or run, as arguments of matplotlib."""
    return {
        "color": COLORS[index % len(COLORS)],
        "marker": MARKERS[index % len(MARKERS)],
    }
