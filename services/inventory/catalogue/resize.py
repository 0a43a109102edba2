"""Change the capacity of a GA section while it sells: never below what is held, sold and blocked."""

from sqlalchemy import text

from services.inventory.problems import StockConflict
from services.inventory.stock.change import StockChange
from services.inventory.stock.snapshot import count_sections
from shared.contracts.event_file import SEATS_PER_EVENT_MAX
from shared.postgres.engine import statement

RESIZE = statement(__package__, "resize_section")
TOTAL_CAPACITY = text("SELECT sum(capacity) FROM inventory.section WHERE event_id = :event_id")


async def resize(change: StockChange, section_id: str, capacity: int) -> None:
    """Added and removed places are available ones. Raises `UnknownSection` (also for a seated one), or `StockConflict`
    with what is held, sold and blocked.
    """
    await change.lock([section_id])
    if change.section(section_id, "ga").capacity == capacity:
        return
    values = {"event_id": change.event_id, "section_id": section_id, "capacity": capacity}
    if not (await change.connection.execute(RESIZE, values)).rowcount:
        raise await _capacity_conflict(change, section_id, capacity)
    places = (await change.connection.execute(TOTAL_CAPACITY, {"event_id": change.event_id})).scalar_one()
    if places > SEATS_PER_EVENT_MAX:
        raise StockConflict(
            f"An event has at most {SEATS_PER_EVENT_MAX} places; with this change it would have {places}."
        )
    change.dirty.ga.add(section_id)


async def _capacity_conflict(change: StockChange, section_id: str, capacity: int) -> StockConflict:
    row = (await count_sections(change.connection, change.event_id))[section_id]
    taken = {"held": int(row["held"]), "sold": int(row["sold"]), "blocked": row["blocked"]}
    counts = ", ".join(f"{n} {name}" for name, n in taken.items())
    least = row["capacity"] - row["available"]
    detail = (
        f"{capacity} places are too few for {section_id}: {counts}; at least {least} are needed. Nothing was changed."
    )
    return StockConflict(detail, section_id=section_id, capacity_min=least, **taken)
