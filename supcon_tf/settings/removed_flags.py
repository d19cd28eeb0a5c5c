"""Removed flags, which old flagfiles and recorded settings may still have.

A removed flag is accepted with the value that is fixed now, and refused in one
line with another value.
"""

from __future__ import annotations

from collections.abc import Mapping

from absl import flags

from supcon_tf import exceptions

# Flags defined here belong to the tool that runs.
flags.disclaim_key_flags()

# By name: the fixed value, "" for none, and the replacement for other values.
REMOVED = {
    "anchor_views": ("all", "losses.SupConLoss(anchor_views=...)"),
    "hierarchy_penalty": ("2.0", "losses.HierarchicalSupConLoss(penalty=...)"),
    "softmax_margin": ("0.35", "losses.MaxMarginLoss(margin=...)"),
    "softmax_scale": ("30.0", "losses.MaxMarginLoss(scale=...)"),
    "triplet_margin": ("0.2", "losses.TripletLoss(margin=...)"),
    "triplet_mining": ("semi_hard", "losses.TripletLoss(mining=...)"),
    "fill": ("128,128,128", "augment.RandAugment(fill=...)"),
    "jitter_probability": ("0.8", "augment.SimAugment(jitter_probability=...)"),
    "randaugment_operations": ("16", "augment.RandAugment(num_operations=...)"),
    "randaugment_probability": ("1.0", "augment.RandAugment(probability=...)"),
    "rmsprop_decay": ("0.9", "training.RMSProp(rho=...)"),
    "trust_coefficient": ("0.001", "training.LARS(trust_coefficient=...)"),
    "corruption_seed": ("0", ""),
    "image": ("0", "another --seed"),
    "max_iterations": ("1000", ""),
    "names": ("", "reports.write_report(names=...)"),
    "requests_in_flight": ("2", ""),
    "retrieval_at": ("1,5,10", "measures.retrieval_summary(ks=...)"),
    "shard_examples": ("1024", "data.write_tfrecords(shard_examples=...)"),
    "workers": ("1", "a process with --role=worker for each"),
}
# Of one tool, by its settings. The others never had the flag: `--image` of
# tools/search.py is a typing error, and its remedy is --images.
_OF_ONE_TOOL = {
    "image": "ShowAugmentSettings",
    "names": "ReportSettings",
    "requests_in_flight": "PredictSettings",
    "shard_examples": "MakeTfrecordsSettings",
    "workers": "DataServiceSettings",
}


class _Parser(flags.ArgumentParser):
    """Accepts the fixed value of a removed flag."""

    def __init__(self, name: str):
        self._name = name

    def parse(self, argument: str) -> str:
        """See `flags.ArgumentParser`."""
        if not _is_fixed_value(self._name, argument):
            raise exceptions.InvalidValue(describe(self._name))
        return argument


def define(values: flags.FlagValues, owner: str) -> None:
    """Defines the removed flags of a tool, except those that `values` has.

    Args:
      values: the flags of the tool.
      owner: the name of its settings.
    """
    for name in REMOVED:
        if name not in values and _OF_ONE_TOOL.get(name, owner) == owner:
            parser = _Parser(name)
            flags.DEFINE(parser, name, None, "", flag_values=values)


def describe(name: str) -> str:
    """The end of an error: the fixed value and the replacement."""
    value, replacement = REMOVED[name]
    text = "this flag was removed"
    text += f", its value is fixed at {value}" if value else ""
    return f"{text}; use {replacement} instead" if replacement else text


def without(recorded: Mapping[str, str]) -> dict[str, str]:
    """Recorded settings, as texts, without removed flags of fixed value."""
    return {
        name: text
        for name, text in recorded.items()
        if name not in REMOVED or not _is_fixed_value(name, text)
    }


def _is_fixed_value(name: str, text: str) -> bool:
    """Whether a text is the fixed value; numbers are equal as numbers."""
    value, _ = REMOVED[name]
    return _items(text) == _items(value)


def _items(text: str) -> list[str | float]:
    """The texts and numbers between commas."""

    def item(part: str) -> str | float:
        try:
            return float(part)
        except ValueError:
            return part.strip()

    return [item(part) for part in text.split(",")]
