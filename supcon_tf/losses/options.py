"""The options of the supervised contrastive loss."""

from __future__ import annotations

import dataclasses
import numbers

from supcon_tf import defaults, exceptions
from supcon_tf.losses import inputs

POSITIVES = "any", "all", "jaccard", "soft", "cosine"
DENOMINATORS = "all", "one_positive", "sincere", "only_negatives"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the formula; `SupConLoss` documents each of them.

    Raises:
      ValueError: an option does not exist.
    """

    temperature: float = defaults.TEMPERATURE
    formulation: str = "out"
    denominator: str = "all"
    anchor_views: str = "all"
    positives: str | None = None
    positives_cap: int | None = None
    scale_by_temperature: bool = True
    margin: float = 0.0
    hardness: float = 0.0
    spread: float = 0.0
    unsupervised_classes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        inputs.require_positive(temperature=self.temperature)
        for name, choices in (
            ("formulation", ("out", "in")),
            ("denominator", DENOMINATORS),
            ("anchor_views", ("all", "first")),
            ("positives", POSITIVES),
        ):
            value = getattr(self, name)
            if name != "positives" or value is not None:
                exceptions.require_one_of(choices, name, value)
        inputs.require_at_least_0(margin=self.margin, hardness=self.hardness)
        exceptions.require(
            not self.margin or self.has_one_positive,
            "`margin` must be 0 but with the denominator sincere",
            f"{self.margin} with {self.denominator}",
        )
        exceptions.require(
            0 <= self.spread < 1, "`spread` must be in 0 ... 1", self.spread
        )
        inputs.require_integers(unsupervised_classes=self.unsupervised_classes)
        exceptions.require(
            self.positives_cap is None
            or isinstance(self.positives_cap, numbers.Integral),
            "`positives_cap` must be an integer, or None for no cap",
            repr(self.positives_cap),
        )
        exceptions.require(
            not self.unsupervised_classes or self.positives is None,
            "`unsupervised_classes` must be empty with `positives`",
            self.unsupervised_classes,
        )

    @property
    def has_one_positive(self) -> bool:
        """Whether D_ip sums over N(i) and p alone."""
        return self.denominator in ("one_positive", "sincere")

    @property
    def is_plain(self) -> bool:
        """Whether L_i = log D_i - mean s_ip, with D_i of all pairs (Eq. 2)."""
        return (
            (self.formulation, self.denominator) == ("out", "all")
            and self.positives_cap is None
            and not self.hardness
            and not self.spread
        )

    def check_views(self, views: int) -> None:
        """Raises ValueError for options that do not fit so many views."""
        exceptions.require(
            views > 1 or not self.spread,
            "`spread` must be 0 with one view (it keeps the others near)",
            self.spread,
        )
        exceptions.require(
            views > 1 or not self.unsupervised_classes,
            "`unsupervised_classes` must be empty with one view (the others "
            "are the only positives of their samples)",
            self.unsupervised_classes,
        )
        minimum = max(views - 1, 1)
        exceptions.require(
            self.positives_cap is None or self.positives_cap >= minimum,
            f"`positives_cap` must be at least {minimum} with {views} views "
            "(the other views of an anchor always stay)",
            self.positives_cap,
        )
