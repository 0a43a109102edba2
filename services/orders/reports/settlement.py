"""Settlement: what every provider charged and refunded on each day, and our charges compared with the provider's list.

Sums come from our money ledger alone; a comparison changes nothing and names each charge that one side does not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson

from shared.contracts.admin.order_reports import (
    BookedCharge,
    ChargePage,
    ProviderComparison,
    Settlement,
    SettlementSum,
)
from shared.errors.problems import InvalidRequest, Unavailable
from shared.payment_provider import NotSent, OutcomeUnknown, Provider, ProviderRejected
from shared.postgres.engine import AsyncEngine, statement
from shared.postgres.pages import PageRequest
from shared.runtime.clock import from_datetime

_SETTLEMENT = statement(__package__, "settlement")
_COMPARE_CHARGES = statement(__package__, "compare_charges")
_CHARGES = statement(__package__, "charges")
DAYS_MAX, COMPARED_DAYS_MAX = 366, 31
LISTED_BEFORE = timedelta(days=7)  # a charge that was created so long before it succeeded is still found
LISTED_MAX = 1000


@dataclass(frozen=True, slots=True)
class DateRange:
    """From the first day to the last, both included, as they begin and end in a time zone."""

    first: date
    last: date
    zone: ZoneInfo

    def span(self) -> dict[str, datetime]:
        """The beginning of the first day as `start`, the end of the last as `stop`."""
        days = {"start": self.first, "stop": self.last + timedelta(days=1)}
        return {name: datetime.combine(day, time(), self.zone) for name, day in days.items()}


def date_range(first: date, last: date, zone: str, *, compare: bool) -> DateRange:
    """Raises `InvalidRequest`. A comparison takes fewer days, as it reads the provider's whole list."""
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise InvalidRequest("tz: there is no time zone of this name. Send one like Europe/Berlin.") from unknown
    days_max = COMPARED_DAYS_MAX if compare else DAYS_MAX
    if not 0 <= (last - first).days < days_max or not date(2000, 1, 1) <= first <= last <= date(2999, 1, 1):
        raise InvalidRequest(f"to: must not be before from, and the range must have at most {days_max} days.")
    return DateRange(first, last, known)


async def settlement(
    db: AsyncEngine, days: DateRange, *, compare_with: Mapping[str, Provider] | None = None
) -> Settlement:
    """Sums by day, provider and currency, and those of all days; with a comparison if providers are given. Raises
    `Unavailable` if one of them does not answer.
    """
    async with db.connect() as connection:
        rows = (await connection.execute(_SETTLEMENT, {"tz": str(days.zone), **days.span()})).mappings().all()
    report: dict[str, Any] = {
        "from": days.first.isoformat(), "to": days.last.isoformat(), "tz": str(days.zone),
        "days": [row for row in rows if row["day"]],
        "totals": [{name: row[name] for name in SettlementSum.model_fields} for row in rows if not row["day"]],
    }  # fmt: skip
    if compare_with is not None:
        report["compared"] = [await _compare(db, name, provider, days) for name, provider in compare_with.items()]
    return Settlement.model_validate(report)


async def _compare(db: AsyncEngine, name: str, provider: Provider, days: DateRange) -> ProviderComparison:
    """A charge of the last moments may be missing in our ledger because it is on its way there."""
    span = days.span()
    try:
        listed = await provider.list_since(from_datetime(span["start"] - LISTED_BEFORE))
    except (NotSent, OutcomeUnknown, ProviderRejected) as failed:
        raise Unavailable(f"{name} does not answer. Try again later.") from failed
    theirs = list({charge.charge_ref: charge for charge in listed if charge.status == "succeeded"}.values())
    bound = {
        "provider": name, "theirs": orjson.dumps(theirs).decode(), "refs": [charge.charge_ref for charge in theirs],
        "listed_max": LISTED_MAX, **span,
    }  # fmt: skip
    async with db.connect() as connection:
        found = (await connection.execute(_COMPARE_CHARGES, bound)).mappings().one()
    return ProviderComparison.model_validate(dict(found))


async def list_charges(db: AsyncEngine, event_id: str, page: PageRequest[int]) -> ChargePage:
    """Every charge of an event and what was refunded of it. The list is complete and in a fixed order, so that it can
    be compared with a provider's own list page by page.
    """
    bound = {"event_id": event_id, "after": page.cursor or 0, "count_max": page.size + 1}
    async with db.connect() as connection:
        found = (await connection.execute(_CHARGES, bound)).mappings().all()
    rows, following = page.cut(found, lambda row: int(row["id"]))
    charges = [BookedCharge(**{name: row[name] for name in BookedCharge.model_fields}) for row in rows]
    return ChargePage(charges=charges, next=following)
