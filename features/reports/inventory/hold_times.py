"""Hold times: how long holders take to pay, who returns after leaving, and which length of a hold sells more.

Read from PostgreSQL in one snapshot within `TIME_MAX_MS`; nothing is aggregated while the sale runs. Shares have 95 %
confidence intervals that are right for small counts, too: Wilson's score interval for one share, Newcombe's method 10
(1998) for the difference of two.
"""

from itertools import pairwise
from math import ceil, sqrt
from typing import Any

from fastapi import APIRouter
from sqlalchemy import RowMapping, text

from features.reports.schemas import HoldTimesReport
from services.inventory.layout.layout import Layout
from services.inventory.state import StateDep
from shared.errors.problems import Unavailable
from shared.postgres.engine import AsyncConnection, DBAPIError, snapshot, statement
from shared.rules.sell_out import Estimate, wilson_interval
from shared.security.auth import Viewer
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["admin"])


def newcombe_difference(more: Estimate, less: Estimate) -> Estimate:
    """`more` minus `less`."""
    value = more.value - less.value
    low = value - sqrt((more.value - more.low) ** 2 + (less.high - less.value) ** 2)
    high = value + sqrt((more.high - more.value) ** 2 + (less.value - less.low) ** 2)
    return Estimate(value, max(-1.0, low), min(1.0, high))


EDGES_S = (10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 420, 600, 900, 1800)
PERCENTILES = (10, 25, 50, 75, 90, 95, 99, 100)
COVERED_PERCENT = 99  # of the buyers would have begun to pay within the suggested time
BUYERS_MIN = 100  # with fewer the 99th percentile means nothing
ROUND_TO_S = 10
VARIANTS_MAX = 20
TIME_MAX_MS = 5_000

TIMES = statement(__package__, "hold_times")
RETURNING_HOLDERS = statement(__package__, "returning_holders")
VARIANTS = statement(__package__, "variants")
LIMIT_TIME = text(f"SET LOCAL statement_timeout = {TIME_MAX_MS}")

Row = RowMapping | dict[str, Any]


@router.get("/hold-times", operation_id="read_hold_times", summary="Get hold times")
async def get_hold_times(_operator: Viewer, state: StateDep, event_id: EventIdPath) -> HoldTimesReport:
    """Percentiles, returning holders, a suggested `hold_ttl_s`, and conversion by variant, from the database."""
    layout = state.catalogue.layout(event_id)
    try:
        async with snapshot(state.db) as connection:
            await connection.execute(LIMIT_TIME)
            return await _report(connection, layout)
    except DBAPIError as slow:
        if getattr(slow.orig, "sqlstate", None) != "57014":
            raise
        raise Unavailable(
            f"The report takes more than {TIME_MAX_MS // 1000} s at the moment. Try again later."
        ) from slow


async def _report(connection: AsyncConnection, layout: Layout) -> HoldTimesReport:
    which = {"event_id": layout.event_id}
    measures = {**which, "edges_s": list(EDGES_S), "shares": [percent / 100 for percent in PERCENTILES]}
    rows = (await connection.execute(TIMES, measures)).mappings().all()
    fans = (await connection.execute(RETURNING_HOLDERS, which)).mappings().one()
    settle = {**which, "settle_s": settle_s(layout), "rows_max": VARIANTS_MAX}
    variants = (await connection.execute(VARIANTS, settle)).mappings().all()
    return HoldTimesReport.model_validate({
        "event_id": layout.event_id, "holds": int(fans["holds"]), "fans": fans["fans"],
        "to_payment": distribution([row for row in rows if row["name"] == "payment_begun"]),
        "to_confirmed": distribution([row for row in rows if row["name"] == "confirmed"]),
        "returning": returning(fans),
        "suggestion": suggestion([row for row in rows if row["name"] == "bought"], layout.hold_ttl_s),
        "arms": [_variant(row) for row in variants], "b_minus_a": compare(variants, layout),
    })  # fmt: skip


def settle_s(layout: Layout) -> int:
    """Seconds until a hold has its outcome: twice its length (it may be extended once), the time to pay, and slack."""
    return 2 * max(layout.hold_ttl_s, layout.hold_ttl_b_s or 0) + layout.pay_ttl_s + layout.grace_s + 60


def distribution(rows: list[RowMapping]) -> dict[str, Any]:
    """A `HoldTimeDistribution` of rows by bucket."""
    whole = next((row for row in rows if row["bucket"] is None), None)
    counts = {row["bucket"]: row["holds"] for row in rows}
    edges: list[int | None] = [0, *EDGES_S, None]
    percentiles = zip(PERCENTILES, whole["percentiles_s"], strict=True) if whole else ()
    histogram = [{"from_s": a, "to_s": b, "holds": counts.get(i, 0)} for i, (a, b) in enumerate(pairwise(edges))]
    return {
        "holds": whole["holds"] if whole else 0,
        "percentiles_s": {str(percent): round(seconds, 1) for percent, seconds in percentiles},
        "histogram": histogram,
    }


def returning(fans: Row) -> dict[str, Any]:
    """`ReturningHolders`: of holders whose hold ended unpaid, who held again and who then bought."""
    back = wilson_interval(fans["returned"], fans["fans_left"]) if fans["fans_left"] else None
    counts = {"left": fans["fans_left"], "returned": fans["returned"], "bought": fans["bought"]}
    return {**counts, "share": back.rounded() if back else None}


def suggestion(rows: list[RowMapping], hold_ttl_s: int) -> dict[str, Any]:
    """The shortest hold, in steps of ten seconds, in which 99 % of the buyers had begun to pay.

    Buyers who would have needed a longer hold are not in the data. `late_percent` is the share that came close: in the
    last tenth of their time, or after extending.
    """
    whole = next((row for row in rows if row["bucket"] is None), None)
    buyers = whole["holds"] if whole else 0
    needed_s = whole["percentiles_s"][PERCENTILES.index(COVERED_PERCENT)] if whole and buyers >= BUYERS_MIN else None
    return {
        "hold_ttl_s": max(ROUND_TO_S, ROUND_TO_S * ceil(needed_s / ROUND_TO_S)) if needed_s is not None else None,
        "now_s": hold_ttl_s, "kept_percent": COVERED_PERCENT, "buyers": buyers, "buyers_min": BUYERS_MIN,
        "late_percent": round(100 * whole["late"] / buyers, 1) if whole else 0.0,
    }  # fmt: skip


def _variant(row: Row) -> dict[str, Any]:
    counts = {name: row[name] for name in ("arm", "hold_ttl_s", "fans", "bought", "open")}
    return {**counts, "conversion": _conversion(row).rounded() if row["fans"] else None}


def _conversion(row: Row) -> Estimate:
    return wilson_interval(row["bought"], row["fans"])


def compare(variants: Any, layout: Layout) -> dict[str, Any] | None:
    """How much more of b's holders buy than of a's, at the lengths set now; None while a variant has no holders."""
    lengths = {"a": layout.hold_ttl_s, "b": layout.hold_ttl_b_s}
    found = {row["arm"]: row for row in variants if row["fans"] and row["hold_ttl_s"] == lengths[row["arm"]]}
    if len(found) < 2:
        return None
    by = newcombe_difference(_conversion(found["b"]), _conversion(found["a"]))
    verdict = "b sells more" if by.low > 0 else "a sells more" if by.high < 0 else "no difference shown"
    return {**by.rounded(), "verdict": verdict}
