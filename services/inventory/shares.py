"""Shares of a count and how sure they are: 95 % intervals that stay right when counts are small or shares extreme.

Wilson's score interval for one share, Newcombe's hybrid of two for a difference (his method 10, 1998).
"""

from dataclasses import dataclass
from math import sqrt

Z = 1.959964  # leaves out 2.5 % on either side


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, or a difference of two, and between what it lies."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def share(part: int, whole: int) -> Estimate:
    """`part` of `whole`; of nothing, anything."""
    if whole <= 0:
        return Estimate(0.0, 0.0, 1.0)
    p, z2 = part / whole, Z * Z
    middle = (p + z2 / (2 * whole)) / (1 + z2 / whole)
    reach = Z / (1 + z2 / whole) * sqrt(p * (1 - p) / whole + z2 / (4 * whole * whole))
    return Estimate(p, max(0.0, middle - reach), min(1.0, middle + reach))


def difference(more: Estimate, less: Estimate) -> Estimate:
    """How much `more` is above `less`."""
    value = more.value - less.value
    low = value - sqrt((more.value - more.low) ** 2 + (less.high - less.value) ** 2)
    high = value + sqrt((more.high - more.value) ** 2 + (less.value - less.low) ** 2)
    return Estimate(value, max(-1.0, low), min(1.0, high))
