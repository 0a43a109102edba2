"""The forecast of the sell-out holds in simulated sales, and says nothing where it knows nothing."""

import heapq
import math
import random
from dataclasses import dataclass, field
from statistics import median

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.rules.sell_out import BATCHES, ORDERS_MIN, Held, SellOut, forecast

SALES, WINDOW_S = 300, 300
NOTHING = Held(0, 0.0, 0, 0)
SHOWN_AT = (0.3, 0.6, 0.85)  # of the tickets sold
KINDS = ("steady", "steady", "pause", "half the rate", "twice the rate")


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
    _begun: list[tuple[float, bool]] = field(default_factory=list)  # when, and whether it will be paid
    _holds: list[tuple[float, float, int, bool]] = field(default_factory=list)  # end, beginning, tickets, pays
    _next_fan_s: float = 0.0

    @property
    def held(self) -> Held:
        begun_s = min((begun for _, begun, *_ in self._holds), default=self.at_s)
        earlier = [pays for at_s, pays in self._begun if at_s < begun_s]
        return Held(
            sum(hold[2] for hold in self._holds), self.at_s - begun_s, len(earlier), len(earlier) - sum(earlier)
        )

    def forecast(self) -> SellOut | None:
        orders = sum(self.orders[-WINDOW_S:])
        return forecast(self.tickets[-WINDOW_S:], orders=orders, free=self.free, held=self.held)

    def pause(self, seconds: float) -> None:
        self._next_fan_s += seconds

    def run_second(self) -> None:
        self.at_s += 1
        tickets = orders = 0
        while min(self._holds[0][0] if self._holds else math.inf, self._next_fan_s) < self.at_s:
            if self._holds and self._holds[0][0] <= self._next_fan_s:
                _, _, quantity, pays = heapq.heappop(self._holds)
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
            self._begun.append((now_s, pays))


@dataclass(frozen=True)
class ShownBand:
    """A band of a sale: what was shown, the seconds that were really left, and whether any change of the rate was over
    for as long as the forecast looks back. Only then is the band promised.
    """

    found: SellOut
    left_s: int
    promised: bool

    @property
    def held(self) -> bool:
        return self.found.earliest_s <= self.left_s <= (self.found.latest_s or math.inf)

    @property
    def width(self) -> float:
        """Of the time that was left."""
        return ((self.found.latest_s or math.inf) - self.found.earliest_s) / self.left_s


def bands_of(seed: str, kind: str) -> list[ShownBand]:
    """The bands of one sale, shown at `SHOWN_AT`. Its rate, size, holds and returns are drawn, and so is the moment of
    the change: between 5 and 50 % sold, a pause of two to six minutes or another rate for good.
    """
    dice = random.Random(seed)
    rate, gives_up = dice.choice((2, 5, 10, 20)), dice.choice((0.05, 0.15, 0.3))
    least_s, most_s = dice.choice(((20, 90), (30, 180), (60, 300)))
    capacity = round(rate * 2.6 * (1 - gives_up) * 60 * dice.choice((8, 15, 30)))
    sale = SimulatedSale(dice, rate, capacity, gives_up, (least_s, most_s), 1.5 * most_s)
    change_at, pause_s = dice.uniform(0.05, 0.5) * capacity, dice.uniform(120, 360)
    changed_s = 0.0 if kind == "steady" else math.inf
    shown: list[tuple[int, SellOut, float]] = []
    while sale.sold < capacity:
        sale.run_second()
        if changed_s == math.inf and sale.sold >= change_at:
            changed_s = sale.at_s + pause_s * (kind == "pause")
            if kind == "pause":
                sale.pause(pause_s)
            else:
                sale.fans_per_s *= 0.5 if kind == "half the rate" else 2
        if len(shown) < len(SHOWN_AT) and sale.sold >= SHOWN_AT[len(shown)] * capacity:
            found = sale.forecast()
            assert found is not None
            shown.append((sale.at_s, found, changed_s))
    return [
        ShownBand(found, sale.at_s - at_s, kind == "steady" or at_s - changed_s >= WINDOW_S)
        for at_s, found, changed_s in shown
    ]


@pytest.mark.parametrize(
    ("seeds", "sales"),
    [("held out", 20), *(pytest.param(*more, marks=pytest.mark.proof) for more in (("held out", 60), ("fresh", 500)))],
    ids=["20", "60", "500"],
)
def test_all_bands_of_a_sale_hold_in_nine_of_ten_simulated_sales(seeds: str, sales: int) -> None:
    """A sale counts if every band promised of it contains the end. `CONFIDENCE` was chosen on other seeds."""
    steady: list[bool] = []
    changed: list[bool] = []
    widths: list[float] = []
    for number in range(sales):
        kind = KINDS[number % len(KINDS)]
        if promised := [band for band in bands_of(f"{seeds} {number}", kind) if band.promised]:
            (steady if kind == "steady" else changed).append(all(band.held for band in promised))
            widths += [band.width for band in promised]
    assert len(steady) + len(changed) >= 0.8 * sales
    for held in (steady, changed):
        assert sum(held) >= 0.9 * len(held)
    assert median(widths) < 0.8, "a band that tells nothing always holds"


@given(
    tickets=st.lists(st.integers(0, 40), min_size=20, max_size=WINDOW_S),
    orders=st.integers(ORDERS_MIN, 1000),
    free=st.integers(0, 10_000),
    held=st.builds(
        lambda tickets, oldest_s, earlier, share: Held(tickets, oldest_s, earlier, round(earlier * share)),
        st.integers(0, 10_000), st.floats(0, 10_000), st.integers(0, 10_000), st.floats(0, 1),
    ),
    more=st.integers(0, 1000),
)  # fmt: skip
@example(tickets=[1] * 20, orders=ORDERS_MIN, free=20, held=Held(0, 100.0, 1000, 0), more=1)
@example(tickets=[1] * 20, orders=ORDERS_MIN, free=20, held=Held(1, 5e-324, 0, 0), more=0)
def test_a_band_is_in_order_never_past_and_later_the_more_is_left(
    tickets: list[int], orders: int, free: int, held: Held, more: int
) -> None:
    found = forecast(tickets, orders=orders, free=free, held=held)
    assert forecast(tickets, orders=ORDERS_MIN - 1, free=free + 1, held=held) is None
    if found is None or free + held.tickets == 0:
        return
    latest_s = math.inf if found.latest_s is None else found.latest_s
    assert 0 <= found.earliest_s <= found.expected_s <= latest_s
    more_held = Held(held.tickets + more, held.oldest_s, held.earlier, held.given_back)
    for later in (
        forecast(tickets, orders=orders, free=free + more, held=held),
        forecast(tickets, orders=orders, free=free, held=more_held),
    ):
        assert later is not None
        assert found.expected_s <= later.expected_s * (1 + 1e-9)
        assert found.earliest_s <= later.earliest_s * (1 + 1e-9) + 1e-6
        assert later.latest_s is None or latest_s <= later.latest_s * (1 + 1e-9)


def test_nobody_says_when_a_sale_ends_before_the_first_holds_have_ended() -> None:
    found = forecast([2] * 300, orders=300, free=0, held=Held(600, 300.0, 0, 0))
    assert found is not None
    assert found.latest_s is None


def test_the_surer_the_share_that_comes_back_the_narrower_is_the_band() -> None:
    few, many = (forecast([2] * 300, orders=300, free=0, held=Held(600, 300.0, n, n // 5)) for n in (50, 5000))
    assert few is not None
    assert many is not None
    assert few.earliest_s < many.earliest_s < (many.latest_s or 0) < (few.latest_s or 0)


def test_the_fewer_are_held_the_sooner_and_the_more_come_back_the_later_a_tail_ends() -> None:
    def expected_s(tickets: int, given_back: int) -> float:
        found = forecast([1] * 300, orders=300, free=0, held=Held(tickets, 200.0, 1000, given_back))
        assert found is not None
        return found.expected_s

    assert expected_s(5, 200) < expected_s(50, 200) < expected_s(50, 400)
