"""Times, waits, bills, tickets, ways to pay and the line in the words of a language, as the pages' scripts write them
(`web/fans/format.js`, `price.js`, `paying.js`, `lobby.js`, `wait_words.js`), so that nothing jumps when they take over.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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


def name_label(text: Words, n: int, section_id: str, seat_id: str | None, names: Mapping[str, str]) -> str:
    """Of the field for the name on a ticket: which one it is, by its number and its place."""
    return text("name_on_ticket", n=n, place=place(text, names.get(section_id, section_id), seat_id))


def place(text: Words, section: str, seat_id: str | None) -> str:
    """A ticket's seat, or its section without seats."""
    return section if seat_id is None else _place(text, section, seat_id, 1)


def _place(text: Words, section: str, seat_id: str | None, quantity: int) -> str:
    """A seat, so many tickets of a section or, without a number, the section."""
    if seat_id is None:
        return text("several", n=quantity, name=section) if quantity else section
    _, row, number = seat_id.split("-")
    return text("seat", section=section, row=row, number=number)


# -- the line: its state before a fan joins, and the wait of a fan who has a place -------------------------------------

LOBBY = {
    "prequeue": ("lobby_prequeue", "lobby_prequeue_text", True),
    "open": ("lobby_open", "lobby_open_text", True),
    "last_chance": ("state_last_chance", "lobby_last_chance_text", True),
    "paused": ("lobby_paused", "lobby_paused_text", True),
    "draining": ("lobby_draining", "lobby_draining_text", False),
    "sold_out": ("state_sold_out", "lobby_sold_out_text", False),
    "closed": ("sale_closed_title", "lobby_closed_text", False),
    "draft": ("state_draft", "lobby_draft_text", False),
}
STANDSTILL = {"paused": "line_paused", "last_chance": "line_last_chance"}
NOBODY_CALLED = {"stock-low": "nobody_stock_low", "room-full": "nobody_room_full", "slower": "nobody_slower"}
CHANGED = {
    name: f"changed_{name.replace('-', '_')}"
    for name in ("rate-lowered", "throttled", "recovering", "other-lanes", "room-full", "fans-returned", "slower",
                 "start-moved")
}  # fmt: skip
CHANGE_SHOWN = timedelta(minutes=10)
Line = Mapping[str, Any]  # the public line, as `GET /events/{event_id}/queue` answers it


class Lobby(NamedTuple):
    """What a fan without a place reads; `lanes` are those that need a code, `starts_at` is a moment in words."""

    title: str
    text: str
    takes_fans: bool
    length: str
    join: str
    lanes: str
    starts_at: str


def lobby(text: Words, line: Line, zone: str) -> Lobby:
    state, lottery = line["state"], line.get("lottery")
    title, more, takes_fans = LOBBY.get(state, LOBBY["closed"])
    if lottery and state == "open":
        more = "lobby_open_lottery"
    lanes = [lane["name"] for lane in line.get("lanes", {}).values() if lane.get("code_required")]
    starts_at = line.get("sale_starts_at") if state == "prequeue" else None
    return Lobby(
        title=text(title), text=text(more), takes_fans=takes_fans, length=_length(text, line) if takes_fans else "",
        join=text("enter_lottery" if lottery == "open" else "join"),
        lanes=text("list_comma").join(lanes),
        starts_at=moment(text, datetime.fromisoformat(starts_at), zone) if starts_at else "",
    )  # fmt: skip


def _length(text: Words, line: Line) -> str:
    waiting = max(0, line["tail_seq"] - line["head_seq"])
    if waiting == 0:
        return text("nobody_waits")
    rate = line["rate_per_s"]
    pace = text("called_per_minute", n=max(1, round(rate * 60))) if rate > 0 else ""
    return f"{text('fans_in_line', n=waiting)} {pace}".strip()


def estimate(text: Words, status: Mapping[str, Any]) -> str:
    """How long it takes, or why nobody can say."""
    if status["state"] in STANDSTILL:
        return text(STANDSTILL[status["state"]])
    if status["position_in_queue"] == 0:
        return text("called_soon")
    low_s, high_s = status.get("estimated_wait_low"), status.get("estimated_wait_high")
    if low_s is not None:
        return text("turn_in", wait=wait_between(text, low_s, high_s))
    changed = status.get("estimate_changed") or {}
    return text(NOBODY_CALLED.get(changed.get("reason", ""), "wait_unknown"))


def change(text: Words, status: Mapping[str, Any]) -> str:
    """Why the wait grew, for some minutes."""
    changed = status.get("estimate_changed")
    if not changed or datetime.now(UTC) - datetime.fromisoformat(changed["at"]) > CHANGE_SHOWN:
        return ""
    return text(CHANGED[changed["reason"]]) if changed["reason"] in CHANGED else ""
