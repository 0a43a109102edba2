"""When an event sells out, as a range, and how many tickets each section should have had on sale.

The forecast extrapolates the recent rate. The last seconds are cut into `BATCHES` equal batches, whose totals are
nearly independent of each other even if orders come in bursts (the method of batch means: Law, Simulation Modeling and
Analysis, chapter 9). The total of the next m batches then lies, with 95 % confidence, in m x ± t s √(m + m²/n): x and s
are mean and standard deviation of the n batches, t is Student's quantile for n - 1 (prediction interval for the mean of
m future observations: Hahn, Meeker, Statistical Intervals, chapter 4). Sold out is when that total is what is left;
solved for m it gives the band. A change that the last minutes do not show, as of the admission rate, is not foreseen.

Once nothing is free, the sale lives on what holders give back: of what is held a share comes back by the end of the
longest hold, is held again, and so on until less than one ticket is left. These generations last as long as the oldest
hold is old, each; by simulation (`tests/shared/rules/test_sell_out.py`) the real end lies between half of that time and
two fifths more.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

BATCHES = 10
STUDENT_T = 2.262  # two-sided 95 %, BATCHES - 1 degrees of freedom
ORDERS_MIN = 20
SECONDS_MIN = 2 * BATCHES
SOLD_MIN = 20  # of a section, before its rate says anything
GIVEN_BACK_MIN, GIVEN_BACK_MAX = 0.02, 0.9
TAIL_EARLIEST, TAIL_EXPECTED, TAIL_LATEST = 0.5, 0.95, 1.4


@dataclass(frozen=True, slots=True)
class SellOut:
    """Seconds until nothing is left: the expected ones, and the band; no `latest_s` if the sale may as well end."""

    expected_s: float
    earliest_s: float
    latest_s: float | None


@dataclass(frozen=True, slots=True)
class Held:
    """How many tickets are held, how old the oldest hold is, and the share of ended holds that were given back."""

    tickets: int
    oldest_s: float
    given_back: float

    @property
    def tail_s(self) -> float:
        """How long what is given back may be sold again, at most, once nothing is free."""
        if self.tickets <= 0:
            return 0.0
        share = min(max(self.given_back, GIVEN_BACK_MIN), GIVEN_BACK_MAX)
        return self.oldest_s * (1 + math.log(self.tickets) / math.log(1 / share))


def given_back(by_status: Mapping[Any, int]) -> float:
    """The share of ended reservations that expired or were cancelled."""
    gone = by_status.get("expired", 0) + by_status.get("cancelled", 0)
    return gone / (gone + by_status.get("confirmed", 0)) if gone else 0.0


def forecast(tickets: Sequence[int], *, orders: int, free: int, held: Held) -> SellOut | None:
    """`tickets` sold in each of the last seconds, oldest first, in how many `orders`; `free` are for sale.

    None while there is too little data: fewer than `ORDERS_MIN` orders or `SECONDS_MIN` seconds since the first ticket.
    """
    if free + held.tickets <= 0:
        return SellOut(0.0, 0.0, 0.0)
    gone = _until_nothing_is_free(tickets, orders=orders, left=max(1, free))
    if gone is None:
        return None
    tail_s, latest_s = held.tail_s, gone.latest_s
    return SellOut(
        expected_s=gone.expected_s + TAIL_EXPECTED * tail_s,
        earliest_s=gone.earliest_s + TAIL_EARLIEST * tail_s,
        latest_s=None if latest_s is None else latest_s + TAIL_LATEST * tail_s,
    )


def _until_nothing_is_free(tickets: Sequence[int], *, orders: int, left: int) -> SellOut | None:
    first = next((second for second, sold in enumerate(tickets) if sold), len(tickets))
    batch_s = (len(tickets) - first) // BATCHES
    if orders < ORDERS_MIN or batch_s * BATCHES < SECONDS_MIN:
        return None
    recent = tickets[len(tickets) - batch_s * BATCHES :]
    totals = [sum(recent[start : start + batch_s]) for start in range(0, len(recent), batch_s)]
    mean, spread = fmean(totals), (STUDENT_T * stdev(totals)) ** 2
    if not mean:
        return None
    # (m mean - left)² = spread (m + m² / n): both solutions m are the band.
    a, b, c = mean**2 - spread / BATCHES, -(2 * left * mean + spread), float(left) ** 2
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return SellOut(
        expected_s=left / mean * batch_s,
        earliest_s=2 * c / (-b + root) * batch_s,
        latest_s=(-b + root) / (2 * a) * batch_s if a > 0 else None,
    )


@dataclass(frozen=True, slots=True)
class SectionDemand:
    """Tickets a section sold, and for how many seconds it had any to sell."""

    sold: int
    on_sale: int
    selling_s: float


def suggest_quantities(sections: Mapping[str, SectionDemand]) -> dict[str, int]:
    """How to divide the tickets on sale so that all sections would have sold out together: in proportion to the rate at
    which each sold while it had tickets. Sections that sold less than `SOLD_MIN` tickets keep what they have.

    A section that sold out early hides the demand that came later; its rate while it was open stands for it, as in the
    unconstraining of revenue management (Talluri, van Ryzin: The Theory and Practice of Revenue Management, chapter 9).
    Fans who took another section instead are counted there: the suggestion moves too little rather than too much.
    """
    rates = {name: one.sold / max(1.0, one.selling_s) for name, one in sections.items() if one.sold >= SOLD_MIN}
    total, rate = sum(sections[name].on_sale for name in rates), sum(rates.values())
    shares = {name: total * rates[name] / rate for name in rates}
    whole = {name: math.floor(share) for name, share in shares.items()}
    for name in _largest_remainders(shares, total - sum(whole.values())):
        whole[name] += 1
    return {name: whole.get(name, one.on_sale) for name, one in sections.items()}


def _largest_remainders(shares: Mapping[str, float], count: int) -> Iterable[str]:
    return sorted(shares, key=lambda name: math.floor(shares[name]) - shares[name])[:count]
