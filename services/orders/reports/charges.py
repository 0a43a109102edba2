"""Every charge of an event and what was refunded of it, by our money ledger.

The list is complete and in a fixed order, so that it can be compared with a provider's own list page by page.
"""

from shared.contracts.admin.order_reports import BookedCharge, ChargePage
from shared.postgres.engine import AsyncEngine, statement
from shared.postgres.pages import PageRequest

_CHARGES = statement(__package__, "charges")


async def list_charges(db: AsyncEngine, event_id: str, page: PageRequest[int]) -> ChargePage:
    bound = {"event_id": event_id, "after": page.cursor or 0, "count_max": page.size + 1}
    async with db.connect() as connection:
        found = (await connection.execute(_CHARGES, bound)).mappings().all()
    rows, following = page.cut(found, lambda row: int(row["id"]))
    charges = [BookedCharge(**{name: row[name] for name in BookedCharge.model_fields}) for row in rows]
    return ChargePage(charges=charges, next=following)
