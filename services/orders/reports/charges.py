"""Every charge of an event and what was refunded of it, by our money ledger.

The list is complete and in a fixed order, so that it can be compared with a provider's own list page by page.
"""

from shared.contracts.admin.order_reports import BookedCharge, ChargePage
from shared.postgres.engine import AsyncEngine, statement

_CHARGES = statement(__package__, "charges")


async def list_charges(db: AsyncEngine, event_id: str, *, page: int, page_size: int) -> ChargePage:
    bound = {"event_id": event_id, "many": page_size, "skipped": (page - 1) * page_size}
    async with db.connect() as connection:
        rows = (await connection.execute(_CHARGES, bound)).mappings()
        charges = [BookedCharge.model_validate(dict(row)) for row in rows]
    return ChargePage(page=page, page_size=page_size, charges=charges)
