"""When an event sells out, as a range.

The forecast extrapolates the recent rate. The last seconds are cut into `BATCHES` equal batches, whose totals are
nearly independent of each other even if orders come in bursts (the method of batch means: Law, Simulation Modeling and
Analysis, chapter 9). The total of the next m batches then lies, with confidence `CONFIDENCE`, in
m x ± t s √(m + m²/n): x and s are mean and standard deviation of the n batches, t is Student's quantile for n - 1
(prediction interval for the mean of m future observations: Hahn, Meeker, Statistical Intervals, chapter 4). Nothing is
free when that total is what is free now; solved for m it gives a band.

From then on the sale lives on what holders give back. A share g of what is held comes back when a hold has lasted as
long as the oldest, D seconds; it is held again, g of it comes back, and so on: after t seconds g^(t/D) of the R
tickets that will be given back is still open. Few of many are left at the end, so their number is Poisson distributed,
and the last is gone by t with the probability exp(-R g^(t/D)): a Gumbel distribution (David, Nagaraja, Order
Statistics, chapter 10), whose quantiles are the second band. g is seen from the holds that began before the oldest
open one: they have all ended, whereas among all ended holds those given back are too few, as they end last. How sure g
is, says Wilson's interval, with its middle as what is expected. R is the rate times D g / (1 - g), by Little's law, as
is the time that the last fan takes to pay: the rest of what is held, by the rate.

Expectations add up; so do variances, as these uncertainties are independent. Nothing is fitted to sales. A change that
the last minutes do not show, as of the admission rate, is not foreseen.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist, fmean, stdev

BATCHES = 10
CONFIDENCE = 0.975  # so that three bands of a sale hold together in nine of ten (Bonferroni: 92.5 %)
MISSED = (1 - CONFIDENCE) / 2  # on either side
STUDENT_T = 2.685  # two-sided 97.5 %, BATCHES - 1 degrees of freedom
NORMAL_Z = NormalDist().inv_cdf(1 - MISSED)
ORDERS_MIN = 20
SECONDS_MIN = 2 * BATCHES
SHARE_MIN = 1e-4  # of holds given back, and of those sold: never is not known


@dataclass(frozen=True, slots=True)
class SellOut:
    """Seconds until nothing is left: the expected ones, and the band; no `latest_s` if the sale may as well end."""

    expected_s: float
    earliest_s: float
    latest_s: float | None

    def then(self, other: "SellOut") -> "SellOut":
        """This span and an independent one after it."""
        expected_s, latest_s = self.expected_s + other.expected_s, None
        earlier_s = math.hypot(self.expected_s - self.earliest_s, other.expected_s - other.earliest_s)
        if self.latest_s is not None and other.latest_s is not None:
            latest_s = expected_s + math.hypot(self.latest_s - self.expected_s, other.latest_s - other.expected_s)
        return SellOut(expected_s, max(0.0, expected_s - earlier_s), latest_s)


@dataclass(frozen=True, slots=True)
class Held:
    """How many tickets are held and how old the oldest open hold is; how many holds began before it, which have all
    ended, and how many of these were given back.
    """

    tickets: int
    oldest_s: float
    earlier: int
    given_back: int


def forecast(tickets: Sequence[int], *, orders: int, free: int, held: Held) -> SellOut | None:
    """`tickets` sold in each of the last seconds, oldest first, in how many `orders`; `free` are for sale.

    None while there is too little data: fewer than `ORDERS_MIN` orders or `SECONDS_MIN` seconds since the first ticket.
    """
    if free + held.tickets <= 0:
        return SellOut(0.0, 0.0, 0.0)
    first = next((second for second, sold in enumerate(tickets) if sold), len(tickets))
    batch_s = (len(tickets) - first) // BATCHES
    if orders < ORDERS_MIN or batch_s * BATCHES < SECONDS_MIN:
        return None
    recent = tickets[len(tickets) - batch_s * BATCHES :]
    totals = [sum(recent[start : start + batch_s]) for start in range(0, len(recent), batch_s)]
    if not any(totals):
        return None
    return _until_nothing_is_free(totals, batch_s, free).then(_until_nothing_is_held(held, fmean(totals) / batch_s))


def _until_nothing_is_free(totals: Sequence[int], batch_s: int, left: int) -> SellOut:
    if left <= 0:
        return SellOut(0.0, 0.0, 0.0)
    mean, spread = fmean(totals), (STUDENT_T * stdev(totals)) ** 2
    # (m mean - left)² = spread (m + m² / n): both solutions m are the band.
    a, b, c = mean**2 - spread / BATCHES, -(2 * left * mean + spread), float(left) ** 2
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return SellOut(
        expected_s=left / mean * batch_s,
        earliest_s=2 * c / (-b + root) * batch_s,
        latest_s=(-b + root) / (2 * a) * batch_s if a > 0 else None,
    )


def _until_nothing_is_held(held: Held, tickets_per_s: float) -> SellOut:
    """Until a hold is known to have ended, the band has no end. Holds begun in this second tell nothing."""
    if held.tickets <= 0 or held.oldest_s < 1:
        return SellOut(0.0, 0.0, 0.0)

    def gone_s(share: float, probability: float) -> float:
        share = min(max(share, SHARE_MIN), 1 - SHARE_MIN)
        given_back_s = held.oldest_s * share / (1 - share)  # that many seconds of sales are held and will come back
        back = min(held.tickets, tickets_per_s * given_back_s)
        pays_s = min(max(0.0, held.tickets / tickets_per_s - given_back_s), held.oldest_s)
        return pays_s + held.oldest_s * math.log(back / -math.log(probability)) / -math.log(share)

    share = wilson_interval(held.given_back, held.earlier, z=NORMAL_Z)
    least, middle, most = share.low, (share.low + share.high) / 2, share.high
    expected_s = gone_s(middle, 0.5)
    earlier_s = math.hypot(expected_s - gone_s(middle, MISSED), expected_s - gone_s(least, 0.5))
    later_s = math.hypot(gone_s(middle, 1 - MISSED) - expected_s, gone_s(most, 0.5) - expected_s)
    earliest_s, latest_s = max(0.0, expected_s - earlier_s), max(0.0, expected_s + later_s)
    return SellOut(max(0.0, expected_s), earliest_s, latest_s if held.earlier else None)


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
    """How sure a share is that was counted, `part` of `whole`: Wilson's score interval, which is right for small
    counts, too (Brown, Cai, DasGupta, Interval Estimation for a Binomial Proportion, 2001). It is 0 to 1 if `whole` is
    0. `z`: the normal quantile on either side.
    """
    if whole <= 0:
        return Estimate(0.0, 0.0, 1.0)
    p, z2 = part / whole, z * z
    middle = (p + z2 / (2 * whole)) / (1 + z2 / whole)
    reach = z / (1 + z2 / whole) * sqrt(p * (1 - p) / whole + z2 / (4 * whole * whole))
    return Estimate(p, max(0.0, middle - reach), min(1.0, middle + reach))
