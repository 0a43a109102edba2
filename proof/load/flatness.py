"""Whether a series of samples is flat: how much it grows over its period, by a slope that outliers do not move and by
its last third against its first.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

POINTS_MAX = 100
Series = Sequence[tuple[float, float]]
"""Seconds and values, in the order of time."""


@dataclass(frozen=True)
class Bound:
    """The most that a series may grow over its period: a share of its median, and at least so much."""

    share: float
    least: float

    def most(self, series: Series) -> float:
        return max(self.least, self.share * statistics.median(value for _, value in series))


def slope(series: Series) -> float:
    """By Theil and Sen, in units a second: the median of the slopes between all pairs of windows' medians."""
    points = _windows(series)
    return statistics.median((v - u) / (t - s) for (s, u), (t, v) in combinations(points, 2) if t > s)


def growth(series: Series) -> float:
    """How much it grew: by its slope, or from the median of its first third to that of its last if that is more."""
    third = max(1, len(series) // 3)
    step = statistics.median(value for _, value in series[-third:]) - statistics.median(
        value for _, value in series[:third]
    )
    return max(slope(series) * (series[-1][0] - series[0][0]), step)


def not_flat(name: str, series: Series, bound: Bound, unit: str = "") -> list[str]:
    """A sentence if it grew more than its bound. Fewer than six samples prove nothing."""
    if len(series) < 6:
        return []
    grew, most = growth(series), bound.most(series)
    seconds = series[-1][0] - series[0][0]
    sentence = f"{name} grew by {grew:,.1f}{unit} in {seconds:.0f} s, at most {most:,.1f}{unit} are allowed"
    return [sentence] * (grew > most)


def after(series: Series, warm_up_s: float) -> Series:
    """What was sampled after the warm-up, counted from the first sample."""
    return [point for point in series if point[0] - series[0][0] >= warm_up_s]


def _windows(series: Series) -> list[tuple[float, float]]:
    """At most `POINTS_MAX` medians of samples in a row."""
    size = -(-len(series) // POINTS_MAX)
    edges = [*range(0, len(series), size), len(series)]
    parts = [series[begin:end] for begin, end in pairwise(edges)]
    return [(statistics.mean(t for t, _ in part), statistics.median(v for _, v in part)) for part in parts]
