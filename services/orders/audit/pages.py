"""Pages of the command log, as operators read it: newest first."""

from services.orders.audit import command_log
from shared.contracts.admin.orders import Command, CommandPage
from shared.postgres.engine import AsyncEngine


async def list_commands(
    db: AsyncEngine, *, status: str | None, reference: str | None, event_id: str | None, page: int, page_size: int
) -> CommandPage:
    """Commands of all orders, or of those with this status, reference and event."""
    async with db.connect() as connection:
        rows = await command_log.find(
            connection, status=status, reference=reference, event_id=event_id, page=page, page_size=page_size
        )
    return CommandPage(page=page, page_size=page_size, commands=[Command.model_validate(row) for row in rows])
