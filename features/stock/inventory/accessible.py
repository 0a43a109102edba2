"""Wheelchair and companion places are offered to everybody from when an operator releases them, once."""

from fastapi import APIRouter
from sqlalchemy import text

from features.stock.inventory.blocking import change_stock
from features.stock.schemas import ChangeReason, StockChanged
from services.inventory.problems import StockConflict
from services.inventory.state import StateDep
from services.inventory.store.change import StockChange
from shared.security.auth import AnOperator
from shared.web.request import EventIdPath

router = APIRouter(prefix="/admin/inventory/events/{event_id}", tags=["stock"])
HAS_ACCESSIBLE = text(
    "SELECT EXISTS (SELECT FROM inventory.section WHERE event_id = :event_id "
    "AND traits ?| CAST(ARRAY['wheelchair', 'companion'] AS text[]))"
)
RELEASE = text(
    "UPDATE inventory.event SET accessible_released_at = clock_timestamp() "
    "WHERE event_id = :event_id AND accessible_released_at IS NULL"
)


async def release(change: StockChange) -> None:
    """Raises `StockConflict` if the event has no such places."""
    which = {"event_id": change.event_id}
    if not (await change.connection.execute(HAS_ACCESSIBLE, which)).scalar():
        raise StockConflict("This event has no wheelchair or companion places. Nothing was changed.")
    if (await change.connection.execute(RELEASE, which)).rowcount:
        change.detail |= {"accessible_released": True}


@router.post(
    "/accessible/release", operation_id="release_accessible",
    summary="Offer wheelchair and companion places to everybody",
)  # fmt: skip
async def post_release(operator: AnOperator, state: StateDep, event_id: EventIdPath, why: ChangeReason) -> StockChanged:
    """From now on best available offers them to everybody when no others are left. Releasing them again changes
    nothing.
    """
    return await change_stock(state, event_id, "release-accessible", why, release, by=operator.name)
