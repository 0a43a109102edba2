"""Pages of the command log and of the audit log, as operators read them: newest first."""

from services.orders.audit import audit_log, command_log
from shared.contracts.admin.orders import AuditLogEntry, AuditLogPage, Command, CommandPage
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


async def list_changes(db: AsyncEngine, *, subject: str | None, page: int, page_size: int) -> AuditLogPage:
    """Entries of all subjects, or of this one."""
    async with db.connect() as connection:
        rows = await audit_log.read(connection, subject=subject, page=page, page_size=page_size)
    return AuditLogPage(page=page, page_size=page_size, changes=[AuditLogEntry.model_validate(row) for row in rows])
