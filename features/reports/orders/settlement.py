"""Settlement: what every provider charged and refunded on each day, the same money by event and price type, and our
charges compared with the provider's list.

Sums come from our money ledger alone; a comparison changes nothing and names each charge that one side does not have.
"""

from datetime import date, datetime, time, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from fastapi import APIRouter, Query, Request

from features.reports.orders.settlement_types import read_types
from features.reports.reading import read
from features.reports.schemas import (
    BookedCharge,
    ChargePage,
    ProviderComparison,
    Settlement,
    SettlementDay,
    SettlementSum,
)
from services.orders.state import OrdersState
from shared.errors.problems import InvalidRequest, Unavailable
from shared.payment_provider import NotSent, OutcomeUnknown, Provider, ProviderRejected
from shared.postgres.engine import AsyncEngine, snapshot, statement
from shared.postgres.pages import IdQuery, LongPageSizeQuery, PageRequest
from shared.runtime.clock import from_datetime
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/orders", tags=["admin"])
TimeZone = Annotated[str, Query(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")]
_SETTLEMENT = statement(__package__, "settlement")
_COMPARE_CHARGES = statement(__package__, "compare_charges")
_CHARGES = statement(__package__, "charges")
DAYS_MAX, COMPARED_DAYS_MAX = 366, 31
LISTED_BEFORE = timedelta(days=7)  # a charge that was created so long before it succeeded is still found
LISTED_MAX = 1000


def span_of(first: date, last: date, zone: str, *, compare: bool) -> dict[str, datetime]:
    """The beginning of the first day as `start`, the end of the last as `stop`, in this time zone. A comparison takes
    fewer days, as it reads the provider's whole list. Raises `InvalidRequest`.
    """
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as unknown:
        raise InvalidRequest("tz: there is no time zone of this name. Send one like Europe/Berlin.") from unknown
    days_max = COMPARED_DAYS_MAX if compare else DAYS_MAX
    if not 0 <= (last - first).days < days_max or not date(2000, 1, 1) <= first <= last <= date(2999, 1, 1):
        raise InvalidRequest(f"to: must not be before from, and the range must have at most {days_max} days.")
    days = {"start": first, "stop": last + timedelta(days=1)}
    return {name: datetime.combine(day, time(), known) for name, day in days.items()}


@router.get(
    "/settlement", operation_id="read_settlement", summary="Show settlement by day, provider and price type",
    response_model_exclude_unset=True,
)  # fmt: skip
async def get_settlement(
    state: OrdersState, _operator: Viewer, first: Annotated[date, Query(alias="from")],
    last: Annotated[date, Query(alias="to")], tz: TimeZone = "UTC", compare: bool = False,
) -> Settlement:  # fmt: skip
    """Days begin and end in the time zone `tz`, and both are included. `compare` reads the providers' own lists."""
    span = span_of(first, last, tz, compare=compare)
    async with snapshot(state.db) as connection:  # the same entries by day and by type
        rows = (await connection.execute(_SETTLEMENT, {"tz": tz, **span})).mappings().all()
        days, totals = ([row for row in rows if bool(row["day"]) is of_day] for of_day in (True, False))
        ids = min((row["first_id"] for row in totals), default=1), max((row["last_id"] for row in totals), default=0)
        types = await read_types(connection, ids, span)
    report: dict[str, Any] = {
        "from": first.isoformat(), "to": last.isoformat(), "tz": tz, "types": types,
        "days": [{name: row[name] for name in SettlementDay.model_fields} for row in days],
        "totals": [{name: row[name] for name in SettlementSum.model_fields} for row in totals],
    }  # fmt: skip
    if compare:
        report["compared"] = [await _compare(state.db, *one, span) for one in state.providers.items()]
    return Settlement.model_validate(report)


async def _compare(db: AsyncEngine, name: str, provider: Provider, span: dict[str, datetime]) -> ProviderComparison:
    """A charge of the last moments may be missing in our ledger because it is on its way there. Raises `Unavailable` if
    the provider does not answer.
    """
    try:
        listed = await provider.list_since(from_datetime(span["start"] - LISTED_BEFORE))
    except (NotSent, OutcomeUnknown, ProviderRejected) as failed:
        raise Unavailable(f"{name} does not answer. Try again later.") from failed
    theirs = list({charge.charge_ref: charge for charge in listed if charge.status == "succeeded"}.values())
    bound = {
        "provider": name, "theirs": orjson.dumps(theirs).decode(), "refs": [charge.charge_ref for charge in theirs],
        "listed_max": LISTED_MAX, **span,
    }  # fmt: skip
    [found] = await read(db, _COMPARE_CHARGES, **bound)
    return ProviderComparison.model_validate(found)


@router.get(
    "/events/{event_id}/charges", operation_id="list_charges", summary="Export charges and refunds, oldest first"
)
async def get_charges(
    event_id: EventIdPath, request: Request, state: OrdersState, _operator: Viewer, after: IdQuery = None,
    page_size: LongPageSizeQuery = 1000,
) -> ChargePage:  # fmt: skip
    # complete and in a fixed order, so that it can be compared with a provider's own list page by page
    page = PageRequest(request.url, after, page_size, newest_first=False)
    found = await read(state.db, _CHARGES, event_id=event_id, after=after or 0, count_max=page_size + 1)
    rows, following = page.cut(found, lambda row: int(row["id"]))
    charges = [BookedCharge(**{name: row[name] for name in BookedCharge.model_fields}) for row in rows]
    return ChargePage(charges=charges, next=following)
