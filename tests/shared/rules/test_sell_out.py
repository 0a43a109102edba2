"""The forecast of the sell-out holds in simulated sales, and says nothing where it knows nothing."""

import heapq
import math
import random
from dataclasses import dataclass, field

import pytest

from shared.rules.sell_out import BATCHES, ORDERS_MIN, Held, SectionDemand, forecast, given_back, suggest_quantities

SALES, WINDOW_S = 300, 300
NOTHING = Held(0, 0.0, 0.0)


class Sale:
    """Orders of one to four tickets come at random, at a rate that wanders around a mean: an AR(1) process in its
    logarithm, which forgets a deviation within about `memory_s`.
    """

    def __init__(self, rng: random.Random, *, orders_per_s: float, noise: float, memory_s: float) -> None:
        self._rng, self._orders_per_s, self._noise = rng, orders_per_s, noise
        self._kept, self._deviation = math.exp(-1 / memory_s), rng.gauss(0, noise)
        self.tickets: list[int] = []
        self.orders: list[int] = []

    def run_second(self) -> None:
        fresh = self._noise * math.sqrt(1 - self._kept**2)
        self._deviation = self._kept * self._deviation + self._rng.gauss(0, fresh)
        orders = self._poisson(self._orders_per_s * math.exp(self._deviation - self._noise**2 / 2))
        self.orders.append(orders)
        self.tickets.append(sum(self._rng.randint(1, 4) for _ in range(orders)))

    def _poisson(self, mean: float) -> int:
        arrivals, at = 0, self._rng.expovariate(1)
        while at < mean:
            arrivals, at = arrivals + 1, at + self._rng.expovariate(1)
        return arrivals


@pytest.mark.parametrize(
    ("orders_per_s", "noise", "memory_s", "seen_s"),
    [(0.5, 0.0, 1, 300), (2.0, 0.3, 10, 300), (5.0, 0.5, 5, 120), (20.0, 0.3, 2, 40)],
    ids=["steady", "bursts", "strong noise", "a fast sale"],
)
def test_the_moment_lies_in_the_band_in_nine_sales_of_ten(
    orders_per_s: float, noise: float, memory_s: float, seen_s: int
) -> None:
    rng, hits = random.Random(f"{orders_per_s} {noise}"), 0
    for _ in range(SALES):
        sale = Sale(rng, orders_per_s=orders_per_s, noise=noise, memory_s=memory_s)
        for _ in range(seen_s):
            sale.run_second()
        left = rng.randint(1, round(orders_per_s * 2.5 * 2 * seen_s))
        found = forecast(sale.tickets[-WINDOW_S:], orders=sum(sale.orders[-WINDOW_S:]), free=left, held=NOTHING)
        assert found is not None
        goal, seconds = sum(sale.tickets) + left, 0
        sold = sum(sale.tickets)
        while sold < goal:
            sale.run_second()
            sold, seconds = sold + sale.tickets[-1], seconds + 1
        hits += found.earliest_s - 1 <= seconds <= (found.latest_s or math.inf) + 1
    assert hits >= 0.9 * SALES


def test_a_steady_sale_has_an_exact_forecast() -> None:
    found = forecast([2] * 300, orders=300, free=100, held=NOTHING)
    assert found is not None
    assert (found.expected_s, found.earliest_s, found.latest_s) == pytest.approx((50, 50, 50))


def test_a_rate_that_may_be_nothing_has_no_latest_moment() -> None:
    found = forecast([0] * 150 + [0, 0, 0, 0, 30] * 6 + [0] * 120, orders=40, free=1000, held=NOTHING)
    assert found is not None
    assert found.latest_s is None
    assert 0 < found.earliest_s < found.expected_s


@pytest.mark.parametrize(
    ("tickets", "orders"),
    [([1] * 300, ORDERS_MIN - 1), ([0] * 290 + [9] * 10, 90), ([0] * 300, 0), ([0] * 271 + [50] + [0] * 28, 25)],
    ids=["few orders", "a sale of seconds", "nothing sold", "one burst, cut off"],
)
def test_there_is_no_forecast_from_too_little_data(tickets: list[int], orders: int) -> None:
    assert forecast(tickets, orders=orders, free=100, held=NOTHING) is None


def test_nothing_left_is_sold_out_now() -> None:
    found = forecast([], orders=0, free=0, held=NOTHING)
    assert found is not None
    assert found.latest_s == 0


def test_the_suggestion_divides_the_tickets_by_demand_and_keeps_their_sum() -> None:
    sections = {
        "sold out in a minute": SectionDemand(sold=100, on_sale=100, selling_s=60),
        "sold out in five": SectionDemand(sold=100, on_sale=100, selling_s=300),
        "slow": SectionDemand(sold=50, on_sale=100, selling_s=600),
        "hardly open": SectionDemand(sold=3, on_sale=40, selling_s=600),
    }
    suggested = suggest_quantities(sections)
    assert suggested["sold out in a minute"] > 2 * suggested["sold out in five"] > 4 * suggested["slow"]
    assert suggested["hardly open"] == 40
    assert sum(suggested.values()) == sum(section.on_sale for section in sections.values())


def test_the_window_is_cut_into_equal_batches() -> None:
    """A remainder at its beginning is left out, so that no batch is shorter than the others."""
    whole, with_remainder = ([3] * BATCHES * 5, [100] * 3 + [3] * BATCHES * 5)
    assert forecast(with_remainder, orders=50, free=30, held=NOTHING) == forecast(
        whole, orders=50, free=30, held=NOTHING
    )


@dataclass
class SimulatedSale:
    """Fans are admitted at a rate, hold one to four tickets if there are any, and pay after a while or never: then
    their hold lasts to its end, and what they held is for sale again.
    """

    dice: random.Random
    fans_per_s: float
    free: int
    gives_up: float
    pays_after_s: tuple[float, float]
    hold_s: float
    sold: int = 0
    at_s: int = 0
    tickets: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=lambda: {"confirmed": 0, "expired": 0})
    _holds: list[tuple[float, float, int, bool]] = field(default_factory=list)  # end, beginning, tickets, pays
    _next_fan_s: float = 0.0

    @property
    def held(self) -> Held:
        begun_s = min((begun for _, begun, *_ in self._holds), default=self.at_s)
        return Held(sum(hold[2] for hold in self._holds), self.at_s - begun_s, given_back(self.ended))

    def run_second(self) -> None:
        self.at_s += 1
        tickets = orders = 0
        while min(self._holds[0][0] if self._holds else math.inf, self._next_fan_s) < self.at_s:
            if self._holds and self._holds[0][0] <= self._next_fan_s:
                _, _, quantity, pays = heapq.heappop(self._holds)
                self.ended["confirmed" if pays else "expired"] += 1
                if pays:
                    tickets, orders = tickets + quantity, orders + 1
                else:
                    self.free += quantity
            else:
                self._admit(self._next_fan_s)
                self._next_fan_s += self.dice.expovariate(self.fans_per_s)
        self.sold += tickets
        self.tickets.append(tickets)
        self.orders.append(orders)

    def _admit(self, now_s: float) -> None:
        quantity, pays = min(self.free, self.dice.choice((1, 2, 2, 2, 3, 4, 4))), self.dice.random() >= self.gives_up
        if quantity:
            self.free -= quantity
            lasts_s = self.dice.uniform(*self.pays_after_s) if pays else self.hold_s
            heapq.heappush(self._holds, (now_s + lasts_s, now_s, quantity, pays))


def test_the_end_lies_in_the_band_in_nine_of_ten_simulated_sales() -> None:
    """Told at a quarter, a half and three quarters of each sale; the end is when the last ticket is sold."""
    told = hits = 0
    for seed in range(20):
        dice = random.Random(seed)
        rate, gives_up = dice.choice((2, 5, 10, 20)), dice.choice((0.05, 0.15, 0.3))
        least_s, most_s = dice.choice(((20, 90), (30, 180), (60, 300)))
        capacity = round(rate * 2.6 * (1 - gives_up) * 60 * dice.choice((8, 15, 30)))
        sale = SimulatedSale(dice, rate, capacity, gives_up, (least_s, most_s), 1.5 * most_s)
        bands, shares = [], [0.25, 0.5, 0.75]
        while sale.sold < capacity:
            sale.run_second()
            if shares and sale.sold >= shares[0] * capacity:
                shares.pop(0)
                orders = sum(sale.orders[-WINDOW_S:])
                bands.append(
                    (sale.at_s, forecast(sale.tickets[-WINDOW_S:], orders=orders, free=sale.free, held=sale.held))
                )
        for at_s, found in bands:
            assert found is not None
            told += 1
            hits += found.earliest_s <= sale.at_s - at_s <= (found.latest_s or math.inf)
    assert told == 60
    assert hits >= 0.9 * told
