"""Amounts that a configured provider can never charge: found when an event file or a promo code is applied, and at the
latest in the quote, so that no fan learns it at the last step. An amount of 0 is never charged, and always allowed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from services.orders.pricing.calculator import Quote, all_in
from services.orders.problems import AmountNotPayable
from services.orders.providers.provider import ChargeLimits, Provider
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.prices import PriceRules
from shared.errors.problems import InvalidRequest
from shared.rules.money import format_money

NAMED_MAX = 5


class TicketPrice(NamedTuple):
    """A ticket that is for sale, and how a refusal names it."""

    field: str
    price_minor: int
    fee_minor: int = 0


def refusals(
    tickets: Iterable[TicketPrice], rules: PriceRules, currency: str, providers: Mapping[str, Provider]
) -> list[str]:
    """One sentence for each price and fee that one of the providers can never charge."""
    found = []
    for name, provider in providers.items():
        refused = _refused(tickets, rules, currency, provider.limits(currency))
        found += [f"{field}: {name} cannot charge it: {why}." for field, why in refused]
    return found


def require_chargeable(file: EventFile, providers: Mapping[str, Provider]) -> None:
    """Raises `InvalidRequest`."""
    rules = PriceRules(fees=file.fees, taxes=file.taxes)
    if found := refusals(list(_tickets(file)), rules, file.currency, providers):
        more = f" And {len(found) - NAMED_MAX} more." if len(found) > NAMED_MAX else ""
        raise InvalidRequest(" ".join(found[:NAMED_MAX]) + more)


def require_code_in_steps(amount_minor: int | None, currency: str, providers: Mapping[str, Provider]) -> None:
    """What a code takes off must leave an amount that can be charged. Raises `InvalidRequest`."""
    for name, provider in providers.items():
        step = provider.limits(currency).step_minor
        if (amount_minor or 0) % step:
            off = format_money(amount_minor or 0, currency)
            raise InvalidRequest(
                f"amount_minor: {off} is no multiple of {format_money(step, currency)}, as {name} needs."
            )


def require_payable(quote: Quote, currency: str, providers: Mapping[str, Provider]) -> None:
    """Raises `AmountNotPayable` if no provider takes the total."""
    total = quote.total_minor
    refused = [provider.limits(currency).refusal(total, currency) for provider in providers.values()]
    if total and all(refused):
        raise AmountNotPayable(f"The total cannot be paid here: {refused[0]}. Change the tickets or the promo code.")


def require_payable_by(provider: Provider, amount_minor: int, currency: str) -> None:
    """Raises `AmountNotPayable` if this provider does not take the amount."""
    refused = provider.limits(currency).refusal(amount_minor, currency) if amount_minor else None
    if refused:
        raise AmountNotPayable(f"{provider.name} cannot charge the total: {refused}. Choose another way to pay.")


def _refused(
    tickets: Iterable[TicketPrice], rules: PriceRules, currency: str, limits: ChargeLimits
) -> Iterator[tuple[str, str]]:
    step = limits.step_minor
    in_steps = f"is no multiple of {format_money(step, currency)}"
    for n, fee in enumerate(rules.fees):
        if (fee.amount_minor or 0) % step:
            yield f"fees.{n}.amount_minor", f"{format_money(fee.amount_minor or 0, currency)} {in_steps}"
    for ticket in tickets:
        parts = {"price_minor": ticket.price_minor, "fee_minor": ticket.fee_minor}
        wrong = {name: minor for name, minor in parts.items() if minor % step}
        yield from ((f"{ticket.field}.{name}", f"{format_money(n, currency)} {in_steps}") for name, n in wrong.items())
        total = all_in(rules, [(ticket.price_minor + ticket.fee_minor, 1)], currency)
        if total and not wrong and (why := limits.refusal(total, currency)):
            yield ticket.field, f"one ticket with all fees and taxes: {why}"


def _tickets(file: EventFile) -> Iterator[TicketPrice]:
    for n, section in enumerate(file.sections):
        field = f"sections.{n}"
        yield TicketPrice(field, section.price_minor, section.fee_minor)
        for m, level in enumerate(section.price_levels if isinstance(section, SeatedSection) else ()):
            yield TicketPrice(f"{field}.price_levels.{m}", level.price_minor, level.fee_minor)
