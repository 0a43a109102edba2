"""The sale to plan for, and the load on the services in its two hardest moments."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onsale.capacity.coefficients import Coefficients
from onsale.errors import OperatorError

MINUTE_S = 60


@dataclass(frozen=True)
class Sale:
    """Fans, tickets and the minutes in which these are to be sold; then how fans behave and what the operator sets."""

    fans: int
    tickets: int
    minutes: float = 60
    seats_per_order: float = 2
    checkout_minutes: float = 5
    buying: float = 0.8
    first_minute: float = 0.5
    streams_per_fan: float = 1
    sections: int = 20
    window_ms: int = 250
    liveness_s: int = 30
    busy: float = 0.6

    def __post_init__(self) -> None:
        if self.minutes <= self.checkout_minutes:
            raise OperatorError(
                f"In {self.minutes:g} minutes nobody who takes {self.checkout_minutes:g} has paid: --minutes must be "
                "more than --checkout-minutes."
            )

    @property
    def admissions(self) -> int:
        """Fans who are called until everything is sold; at most all of them."""
        return min(self.fans, math.ceil(self.tickets / self.seats_per_order / self.buying))

    @property
    def rate_per_s(self) -> float:
        """The admission rate: the last one is called early enough to pay within the minutes."""
        return self.admissions / ((self.minutes - self.checkout_minutes) * MINUTE_S)

    @property
    def max_active(self) -> int:
        """Fans inside at once at that rate (Little's law)."""
        return math.ceil(self.rate_per_s * self.checkout_minutes * MINUTE_S)

    @property
    def orders(self) -> float:
        return self.admissions * self.buying

    @property
    def left_out(self) -> int:
        """Fans who stand in line until it is sold out."""
        return self.fans - self.admissions


@dataclass(frozen=True)
class Moment:
    """The load at one moment: places waiting, open streams, and operations per second."""

    name: str
    waiting: float
    streams: float
    per_s: Mapping[str, float]


def moments(sale: Sale, known: Coefficients) -> tuple[Moment, Moment]:
    """The end of the first minute, when most fans join; and later, when all of them wait."""
    first, later_s = sale.fans * sale.first_minute, max(1.0, sale.minutes - 1) * MINUTE_S
    return (
        _moment("rush", sale, known, joins_per_s=first / MINUTE_S, waiting=first),
        _moment("height", sale, known, joins_per_s=(sale.fans - first) / later_s, waiting=float(sale.fans)),
    )


def _moment(name: str, sale: Sale, known: Coefficients, *, joins_per_s: float, waiting: float) -> Moment:
    """A page in line polls and holds a stream. Either shows that the fan is there, a few times a window."""
    polls = waiting / known["poll_every_s"]
    reports = waiting * known["reports_per_window"] / sale.liveness_s
    streams = waiting * sale.streams_per_fan
    holds = sale.rate_per_s * known["holds_per_admission"]
    return Moment(name, waiting, streams, {
        "join": joins_per_s,
        "status": polls,
        "sign": reports * min(1.0, sale.streams_per_fan) + min(polls, reports),
        "seats": sale.max_active / known["look_every_s"],
        "hold": holds,
        "order": sale.rate_per_s * sale.buying,
        "frame": streams * 1000 / sale.window_ms,
    })  # fmt: skip


def frame_bytes(sale: Sale, known: Coefficients) -> float:
    """The size of a frame: the line, and the sections that changed since the last one."""
    changes = sale.rate_per_s * known["holds_per_admission"] * 2 * sale.window_ms / 1000  # held, then sold or released
    return known["frame.bytes"] + known["section.bytes"] * min(sale.sections, changes)
