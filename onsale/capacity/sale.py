"""The sale to plan for, the load on the services in its two hardest moments, and what the whole of it adds up to.

The coefficients of `onsale plan`: figures of `bench/`, defaults of settings, and assumptions, each with its source.

They are kept in `coefficients.yaml`; `python -m bench.scale.coefficients` updates the measured ones.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from onsale.errors import OperatorError

PATH = Path(__file__).with_name("coefficients.yaml")
Kind = Literal["measured", "setting", "derived", "assumed"]


@dataclass(frozen=True)
class Coefficient:
    """One figure. `source` is (measurement, row, column) in `bench/results` for a measured one, the name for a setting,
    the reason for others.
    """

    name: str
    value: float
    unit: str
    kind: Kind
    source: str | tuple[str, str, str]


@dataclass(frozen=True)
class MeasurementSource:
    """When and where a measurement was made."""

    date: str
    machine: str


@dataclass(frozen=True)
class Coefficients:
    """All coefficients by name, and the measurements by theirs."""

    each: dict[str, Coefficient]
    measurements: dict[str, MeasurementSource]

    def __getitem__(self, name: str) -> float:
        return self.each[name].value

    def __iter__(self) -> Iterator[Coefficient]:
        return iter(self.each.values())

    def costs_of(self, service: str, unit: str = "µs") -> dict[str, float]:
        """The cost of each operation for a service: `join.gateway` is the gateway's part of a join."""
        named = ((one.name.partition("."), one) for one in self if one.unit == unit)
        return {operation: one.value for (operation, _, of), one in named if of == service}


def parse(text: str) -> Coefficients:
    """Reads the text of `coefficients.yaml`. Raises `KeyError` or `TypeError` when it is malformed."""
    document: dict[str, Any] = yaml.safe_load(text)
    each = {name: Coefficient(name, **_fields(fields)) for name, fields in document["coefficients"].items()}
    return Coefficients(each, {name: MeasurementSource(**fields) for name, fields in document["measurements"].items()})


def _fields(fields: dict[str, Any]) -> dict[str, Any]:
    source = fields["source"]
    return {**fields, "value": float(fields["value"]), "source": tuple(source) if isinstance(source, list) else source}


@cache
def coefficients() -> Coefficients:
    """The coefficients of this version."""
    return parse(PATH.read_text())


MINUTE_S = 60


@dataclass(frozen=True)
class Sale:
    """Fans, tickets and the minutes in which these are to be sold; then how fans behave and what the operator sets.

    `cached`: a cache in front answers reads of the public line. `reads_line`: pages far back in a long line read it, as
    ours do; other clients poll their status.
    """

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
    minutes_before: float = 0
    polls_per_s: float = 2000
    seated: bool = True
    cached: bool = True
    reads_line: bool = True

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

    @property
    def open_s(self) -> float:
        """From the first fan until all tickets are sold."""
        return (self.minutes_before + self.minutes) * MINUTE_S

    @property
    def waited_s(self) -> float:
        """Seconds in line of all fans together. Those called leave it evenly over the sale."""
        early = self.fans * self.first_minute
        late_s = max(0.0, self.open_s - MINUTE_S)
        until_sold_out = early * max(0.0, self.open_s - MINUTE_S / 2) + (self.fans - early) * late_s / 2
        return max(0.0, until_sold_out - self.admissions * self.minutes * MINUTE_S / 2)


@dataclass(frozen=True)
class Moment:
    """The load at one moment: places waiting, open streams, and operations per second."""

    name: str
    waiting: float
    streams: float
    per_s: Mapping[str, float]


def moments(sale: Sale, known: Coefficients) -> tuple[Moment, Moment]:
    """The end of the first minute, when most fans join; and later, when all of them wait."""
    first, later_s = sale.fans * sale.first_minute, max(1.0, sale.open_s - MINUTE_S)
    return (
        _moment("rush", sale, known, joins_per_s=first / MINUTE_S, waiting=first),
        _moment("height", sale, known, joins_per_s=(sale.fans - first) / later_s, waiting=float(sale.fans)),
    )


def over_sale(sale: Sale, known: Coefficients) -> Mapping[str, float]:
    """How many operations of each kind the whole sale has. Whoever is left polls once more, and hears that it is sold
    out; but those who read the public line hear it there, and send the first heartbeat only after its whole time.
    """
    sale_s, waiting = sale.minutes * MINUTE_S, sale.waited_s / sale.open_s
    calls_left = sale.admissions * (1 - sale_s / 2 / sale.open_s)
    in_line = _waiting_per_s(sale, known, waiting, calls_left=calls_left)
    heartbeats = _heartbeats_per_s(sale, known, _reading(sale, known, waiting, calls_left=calls_left)) * sale.open_s
    last = -min(heartbeats, sale.left_out / 2) if heartbeats else sale.left_out
    return {
        **{operation: per_s * sale.open_s for operation, per_s in in_line.items()},
        "status": in_line["status"] * sale.open_s + last,
        "join": float(sale.fans),
        "claim": float(sale.admissions),
        "seats": _seat_pages_per_s(sale, known) * sale_s,
        "hold": sale.admissions * known["holds_per_admission"],
        "order": sale.orders,
    }


def polls_per_s(sale: Sale, known: Coefficients, waiting: float, *, calls_left: float) -> float:
    """Polls of so many waiting fans, as the gateway paces them (`Polls` in services/gateway/waiting_line/snapshot.py).

    In a long line all but those near the head read the public line, and ask for their status as a heartbeat. In others,
    the first of those whom the tickets may reach poll at the usual pace, the others of them share `polls_per_s`. Those
    behind have no news until all is sold: they poll only to show within their liveness window that they are there.
    """
    usual_s, share = known["poll_max_s"], known["poll_share"]
    reached = min(waiting, calls_left + known["more_calls"])

    def polls(fans: float, every_s: float) -> float:
        return fans / (every_s * share)

    if reading := _reading(sale, known, waiting, calls_left=calls_left):
        return polls(waiting - reading, min(usual_s, sale.liveness_s)) + _heartbeats_per_s(sale, known, reading)
    first = min(reached, long_line(sale, known))
    shared_s = min(sale.liveness_s, max(usual_s, waiting / sale.polls_per_s))
    return (
        polls(first, min(usual_s, sale.liveness_s))
        + polls(reached - first, shared_s)
        + polls(waiting - reached, sale.liveness_s)
    )


def long_line(sale: Sale, known: Coefficients) -> float:
    """How many fans may wait before the line is long."""
    return sale.polls_per_s * known["poll_max_s"]


def _reading(sale: Sale, known: Coefficients, waiting: float, *, calls_left: float) -> float:
    """How many of so many waiting fans read the public line: of a long one all but those who may be called soon."""
    if not sale.reads_line or waiting <= long_line(sale, known):
        return 0.0
    return max(0.0, waiting - min(_near_places(sale, known, waiting), calls_left + known["more_calls"]))


def _heartbeats_per_s(sale: Sale, known: Coefficients, reading: float) -> float:
    return reading / (_heartbeat_s(sale, known) * known["poll_share"])


def _heartbeat_s(sale: Sale, known: Coefficients) -> float:
    return known["heartbeat_windows"] * sale.liveness_s


def _read_after_s(sale: Sale, known: Coefficients, waiting: float) -> float:
    """How often a page without a stream reads the public line."""
    if waiting <= long_line(sale, known):
        return known["line_read_s"]
    paced_s = waiting / (known["line_reads_per_poll"] * sale.polls_per_s)
    return min(_heartbeat_s(sale, known), max(known["poll_max_s"], paced_s))


def _near_places(sale: Sale, known: Coefficients, waiting: float) -> float:
    seconds = 2 * _read_after_s(sale, known, waiting) + known["near_s"]
    return known["calls_at_once"] + seconds * sale.rate_per_s


def _moment(name: str, sale: Sale, known: Coefficients, *, joins_per_s: float, waiting: float) -> Moment:
    """A page in line polls and holds a stream. A long line was a shorter one before, whose fans poll more often."""
    in_line = _waiting_per_s(sale, known, waiting, calls_left=sale.admissions)
    shorter = _waiting_per_s(sale, known, min(waiting, long_line(sale, known)), calls_left=sale.admissions)
    return Moment(name, waiting, waiting * sale.streams_per_fan, {
        **{operation: max(per_s, shorter[operation]) for operation, per_s in in_line.items()},
        "join": joins_per_s,
        "claim": sale.rate_per_s,
        "seats": _seat_pages_per_s(sale, known),
        "hold": sale.rate_per_s * known["holds_per_admission"],
        "order": sale.rate_per_s * sale.buying,
    })  # fmt: skip


def _waiting_per_s(sale: Sale, known: Coefficients, waiting: float, *, calls_left: float) -> dict[str, float]:
    """The operations of waiting fans. Streams and polls show that a fan is there, a few times a window."""
    polls = polls_per_s(sale, known, waiting, calls_left=calls_left)
    reports = waiting * known["reports_per_window"] / sale.liveness_s
    reads = (
        waiting * max(0.0, 1 - sale.streams_per_fan) / _read_after_s(sale, known, waiting) if sale.reads_line else 0.0
    )
    return {
        "status": polls,
        "read": reads,
        "line": min(reads, known["cache_reads_per_s"]) if sale.cached else reads,
        "sign": reports * min(1.0, sale.streams_per_fan) + min(polls, reports),
        "frame": waiting * sale.streams_per_fan * 1000 / sale.window_ms,
    }


def _seat_pages_per_s(sale: Sale, known: Coefficients) -> float:
    """General admission has no seats to look at."""
    return sale.max_active / known["look_every_s"] if sale.seated else 0.0


def frame_bytes(sale: Sale, known: Coefficients) -> float:
    """The size of a frame: the line, and the sections that changed since the last one."""
    changes = sale.rate_per_s * known["holds_per_admission"] * 2 * sale.window_ms / 1000  # held, then sold or released
    return known["frame.bytes"] + known["section.bytes"] * min(sale.sections, changes)
