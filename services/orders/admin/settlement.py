"""What every provider took and gave back on each day, by our books; and our charges against the provider's own list."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import text

from services.orders.payments.provider import NotSent, OutcomeUnknown, Provider, ProviderCharge, ProviderRejected
from shared.postgres.engine import AsyncEngine, statement
from shared.runtime.clock import from_datetime
from shared.web.problems import InvalidRequest, Unavailable

_SETTLEMENT = statement(__package__, "settlement")
_OURS = text(
    "SELECT provider_ref, reference, amount_minor, currency FROM orders.money_entry "
    "WHERE kind = 'charge' AND provider = :provider AND (provider_ref = ANY(CAST(:refs AS text[])) "
    "OR (occurred_at >= :start AND occurred_at < :stop))"
)
DAYS_MAX, COMPARED_DAYS_MAX = 366, 31
LISTED_BEFORE = timedelta(days=7)  # a charge made so long before it succeeded is still found
SHOWN_MAX = 1000


@dataclass(frozen=True, slots=True)
class DateRange:
    """From the first day to the last, both included, as they begin and end in a time zone."""

    first: date
    last: date
    zone: ZoneInfo

    def bounds(self) -> list[tuple[str, datetime, datetime]]:
        days = [self.first + timedelta(days=n) for n in range((self.last - self.first).days + 1)]
        return [(day.isoformat(), self._begins(day), self._begins(day + timedelta(days=1))) for day in days]

    def _begins(self, day: date) -> datetime:
        return datetime.combine(day, time(), self.zone)

    @property
    def span(self) -> tuple[datetime, datetime]:
        return self._begins(self.first), self._begins(self.last + timedelta(days=1))


def days(first: date, last: date, zone: str, *, compare: bool) -> DateRange:
    """Raises `InvalidRequest`."""
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise InvalidRequest("tz: there is no time zone of this name.") from unknown
    most = COMPARED_DAYS_MAX if compare else DAYS_MAX
    if not 0 <= (last - first).days < most or not date(2000, 1, 1) <= first <= last <= date(2999, 1, 1):
        raise InvalidRequest(f"to: the last day, at or after the first, and at most {most} days in all.")
    return DateRange(first, last, known)


async def settlement(db: AsyncEngine, asked: DateRange) -> dict[str, Any]:
    """By day, provider and currency, and the sums of all days."""
    names, starts, ends = (list(column) for column in zip(*asked.bounds(), strict=True))
    async with db.connect() as connection:
        found = await connection.execute(_SETTLEMENT, {"days": names, "starts": starts, "ends": ends})
        rows = [_row(dict(row._mapping)) for row in found]  # noqa: SLF001 - the public name of a row's mapping
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        total = totals.setdefault((row["provider"], row["currency"]), dict.fromkeys(row, 0))
        total |= {name: total[name] + value for name, value in row.items() if isinstance(value, int)}
        total |= {"provider": row["provider"], "currency": row["currency"]}
        total.pop("day", None)
    return {
        "from": asked.first.isoformat(), "to": asked.last.isoformat(), "tz": str(asked.zone), "days": rows,
        "totals": list(totals.values()),
    }  # fmt: skip


def _row(row: dict[str, Any]) -> dict[str, Any]:
    counted = {name: int(row[name]) for name in ("charges", "charged_minor", "refunds", "refunded_minor")}
    return {**row, **counted, "net_minor": counted["charged_minor"] - counted["refunded_minor"]}


class BookedCharge(NamedTuple):
    """One charge by our books."""

    reference: str
    amount_minor: int
    currency: str


async def reconcile_with_provider(
    db: AsyncEngine, providers: Mapping[str, Provider], asked: DateRange
) -> list[dict[str, Any]]:
    """For each provider what it took and we do not have, what we have and it does not, and what differs. A charge of
    the last moments may be on its way to our books. Raises `Unavailable`.
    """
    start, stop = asked.span
    compared = []
    for name, provider in providers.items():
        try:
            listed = await provider.list_since(from_datetime(start - LISTED_BEFORE))
        except (NotSent, OutcomeUnknown, ProviderRejected) as silent:
            raise Unavailable(f"{name} does not answer.") from silent
        took = {charge.charge_ref: charge for charge in listed if charge.status == "succeeded"}
        bound = {"provider": name, "refs": list(took), "start": start, "stop": stop}
        async with db.connect() as connection:
            rows = await connection.execute(_OURS, bound)
            ours = {row.provider_ref: BookedCharge(row.reference, row.amount_minor, row.currency) for row in rows}
        since, until = from_datetime(start), from_datetime(stop)
        theirs = {ref: c for ref, c in took.items() if since <= c.occurred_at_ms < until or ref in ours}
        compared.append({"provider": name, "compared": len(theirs.keys() | ours.keys()), **differences(theirs, ours)})
    return compared


def differences(
    theirs: Mapping[str, ProviderCharge], ours: Mapping[str, BookedCharge]
) -> dict[str, list[dict[str, Any]]]:
    """`missing` in our books, `extra` in them, and `different` amounts; the first thousand of each."""
    missing = (_told(ref, theirs[ref]) for ref in theirs.keys() - ours.keys())
    extra = (_told(ref, ours[ref]) for ref in ours.keys() - theirs.keys())
    different = (
        {**_told(ref, ours[ref]), "theirs_minor": theirs[ref].amount_minor, "their_currency": theirs[ref].currency}
        for ref in theirs.keys() & ours.keys()
        if (theirs[ref].amount_minor, theirs[ref].currency) != (ours[ref].amount_minor, ours[ref].currency)
    )
    return {"missing": _first(missing), "extra": _first(extra), "different": _first(different)}


def _told(charge_ref: str, charge: ProviderCharge | BookedCharge) -> dict[str, Any]:
    return {
        "charge_ref": charge_ref, "reference": charge.reference, "amount_minor": charge.amount_minor,
        "currency": charge.currency,
    }  # fmt: skip


def _first(told: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(told, key=lambda each: str(each["charge_ref"]))[:SHOWN_MAX]
