"""Times, waits, bills, tickets and ways to pay in the words of a language, as the pages' scripts write them
(`web/fans/format.js`, `price.js`, `paying.js`).
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from babel import Locale
from babel.numbers import format_decimal

from shared.contracts.orders import AdjustmentView, LineView, ProviderAnswer
from shared.runtime.clock import zone_of
from shared.words.words import Words, adjustment_name

NINETY_MINUTES, DAY_AND_A_HALF_H = 90, 36


def moment(text: Words, at: datetime, zone: str) -> str:
    """Date and time at the venue, with the name of its time zone."""
    return text.moment(at.astimezone(zone_of(zone)))


def remaining(text: Words, seconds: float) -> str:
    """A countdown: 4:07, 1:02:09, 3 days 4 h."""
    left, locale = max(0, math.ceil(seconds)), Locale.parse(text("locale"), sep="-")
    days, hours, minutes = left // 86_400, left // 3_600 % 24, left // 60 % 60
    two = [format_decimal(number, "00", locale=locale) for number in (minutes, left % 60)]
    if days > 0:
        return text("countdown_days", n=days, hours=hours)
    if hours > 0:
        return f"{format_decimal(hours, locale=locale)}:{two[0]}:{two[1]}"
    return f"{format_decimal(minutes, locale=locale)}:{two[1]}"


def seconds_until(at: str) -> float:
    """Seconds from now until a time in RFC 3339; negative once it has passed."""
    return (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds()


def wait(text: Words, seconds: float) -> str:
    """An estimate, rounded up."""
    if seconds < 45:
        return text("wait_less")
    minutes = math.ceil(seconds / 60)
    if minutes < NINETY_MINUTES:
        return text("wait_minutes", n=minutes)
    hours = round(minutes / 60)
    return text("wait_hours", n=hours) if hours < DAY_AND_A_HALF_H else text("wait_over_a_day")


def wait_between(text: Words, low_s: int, high_s: int | None) -> str:
    """A range of waits; one value if both read the same, and without an upper bound only the lower one."""
    if high_s is None:
        return text("wait_over_hours", n=low_s // 3600)
    least, most = max(1, low_s // 60), math.ceil(high_s / 60)
    if most > NINETY_MINUTES or least >= most:
        return wait(text, high_s)
    return text("wait_range", **{"from": least, "n": most})


REHEARSAL = "sandbox"
TEST_WAYS = ("ok", "decline", "slow", "timeout_after_success", "error_then_ok", "redirect")


class BillLine(NamedTuple):
    """A name and an amount; an included one is part of the others."""

    name: str
    amount: str
    included: bool = False


class Ways(NamedTuple):
    """How an order may be paid: values of the field `method` with names. `rehearses`: test payments are offered."""

    ways: list[tuple[str, str]]
    rehearses: bool


def bill(text: Words, lines: Sequence[LineView], extras: Sequence[AdjustmentView], currency: str) -> list[BillLine]:
    """Nothing if there are only tickets."""
    if not extras:
        return []
    tickets = sum(line.unit_price_minor * line.quantity for line in lines)
    return [
        BillLine(text("bill_tickets"), text.money(tickets, currency)),
        *(BillLine(_label(text, extra), text.money(extra.amount_minor, currency), extra.included) for extra in extras),
    ]


def _label(text: Words, extra: AdjustmentView) -> str:
    name = text("bill_included", name=extra.name) if extra.included else extra.name
    return adjustment_name(text, kind=extra.kind, name=name, percent=extra.percent)


def ways(text: Words, providers: Sequence[ProviderAnswer]) -> Ways:
    rehearses = any(provider.name == REHEARSAL for provider in providers)
    tests = [(f"{REHEARSAL}:{way}", text(f"test_{way}")) for way in TEST_WAYS] if rehearses else []
    pages = [
        (f"{provider.name}:redirect", text("pay_on_page", name=provider.name.title()))
        for provider in providers
        if provider.name != REHEARSAL and "redirect" in provider.methods
    ]
    return Ways(tests + pages, rehearses)


def places(text: Words, lines: Sequence[tuple[str, str | None, int]], names: Mapping[str, str]) -> list[str]:
    """Tickets by section, seat and quantity, in the words of their venue."""
    return [_place(text, names.get(section, section), seat, quantity) for section, seat, quantity in lines]


def _place(text: Words, section: str, seat_id: str | None, quantity: int) -> str:
    if seat_id is None:
        return text("several", n=quantity, name=section)
    _, row, number = seat_id.split("-")
    return text("seat", section=section, row=row, number=number)
