"""How sure a share is that was counted: Wilson's score interval, which is right for small counts, too (Brown, Cai,
DasGupta, Interval Estimation for a Binomial Proportion, 2001).
"""

from dataclasses import dataclass
from math import sqrt

Z_95 = 1.959964  # of the normal distribution: 2.5 % on either side


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share, or the difference of two, with its confidence interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def wilson_interval(part: int, whole: int, *, z: float = Z_95) -> Estimate:
    """`part` of `whole`; the interval is 0 to 1 if `whole` is 0. `z`: the normal quantile on either side."""
    if whole <= 0:
        return Estimate(0.0, 0.0, 1.0)
    p, z2 = part / whole, z * z
    middle = (p + z2 / (2 * whole)) / (1 + z2 / whole)
    reach = z / (1 + z2 / whole) * sqrt(p * (1 - p) / whole + z2 / (4 * whole * whole))
    return Estimate(p, max(0.0, middle - reach), min(1.0, middle + reach))
