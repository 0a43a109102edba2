"""A bill, tickets and ways to pay in words (`web/fans/price.js`, `paying.js`)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.contracts.orders import AdjustmentView, LineView, ProviderAnswer
from shared.web.pages.bill_words import adjustment_name
from shared.words.words import Words

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
