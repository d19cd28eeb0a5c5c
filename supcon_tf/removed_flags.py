"""Flags of earlier versions, which no tool takes any more.

Flagfiles, and the recorded settings of runs, name them still: with the value
that such a setting always has now they are read in silence, with another one
they are refused in a line.
"""

from __future__ import annotations

from collections.abc import Mapping

from absl import flags

from supcon_tf import exceptions

# Flags defined here belong to the tool that runs.
flags.disclaim_key_flags()

# By name: the value that it always has now, "" where it was left out by
# default, and what takes other values.
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
    "workers": ("1", "a process of --role=worker for each"),
}


class _Parser(flags.ArgumentParser):
    """Takes the value that a removed flag always has now."""

    def __init__(self, name: str):
        self._name = name

    def parse(self, argument: str) -> str:
        """See `flags.ArgumentParser`."""
        if not _is_usual(self._name, argument):
            raise exceptions.InvalidValue(describe(self._name))
        return argument


def define(values: flags.FlagValues) -> None:
    """Defines the removed flags, which no --help shows, beside those there."""
    for name in REMOVED:
        if name not in values:
            parser = _Parser(name)
            flags.DEFINE(parser, name, None, "", flag_values=values)


def describe(name: str) -> str:
    """What became of a removed flag, for an error."""
    value, others = REMOVED[name]
    line = "there is no such flag any more, "
    line += f"its value is always {value}" if value else "it is left out"
    return f"{line}; {others} takes others" if others else line


def without(recorded: Mapping[str, str]) -> dict[str, str]:
    """Recorded settings, as texts, without the removed ones of usual value."""
    return {
        name: text
        for name, text in recorded.items()
        if name not in REMOVED or not _is_usual(name, text)
    }


def _is_usual(name: str, text: str) -> bool:
    """Whether the text is the value of a removed flag, as 1e-3 is 0.001."""
    value, _ = REMOVED[name]
    return _items(text) == _items(value)


def _items(text: str) -> list[str | float]:
    """The parts between commas, of which numbers are numbers."""

    def item(part: str) -> str | float:
        try:
            return float(part)
        except ValueError:
            return part.strip()

    return [item(part) for part in text.split(",")]
