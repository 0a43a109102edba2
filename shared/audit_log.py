"""The audit log of a service: one table of the same shape in each, written in the transaction of the change it records.

An entry says who did what to what, when and why, with the state before and after. Entries are never changed or deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, DateTime, Index, MetaData, Table, Text, func, insert, select
from sqlalchemy.dialects.postgresql import JSONB

from shared.contracts.admin.audit import AuditEntry, AuditPage
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.postgres.pages import PageRequest

CLOCK = func.clock_timestamp()


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts and why; an operator, in which role where that is kept."""

    name: str
    reason: str | None = None
    role: str | None = field(default=None, kw_only=True)


def of_event(event_id: str) -> str:
    """The subject of entries about a whole event."""
    return f"event:{event_id}"


class AuditLog:
    """The table `audit_log` in the schema of this metadata; `at` is the time of an entry, by default its own."""

    def __init__(self, metadata: MetaData, at: ColumnElement[Any] = CLOCK) -> None:
        self._table = Table(
            "audit_log",
            metadata,
            Column("id", BigInteger, primary_key=True, autoincrement=True),
            Column("at", DateTime(timezone=True), nullable=False, server_default=at),
            Column("actor", Text, nullable=False),
            Column("role", Text),
            Column("action", Text, nullable=False),
            Column("subject", Text, nullable=False),
            Column("reason", Text),
            Column("version", BigInteger),
            Column("before", JSONB),
            Column("after", JSONB),
            Index("ix_audit_log_subject", "subject", "id"),
        )

    async def write(
        self, connection: AsyncConnection, action: str, by: Actor, *, subject: str, version: int | None = None,
        before: Mapping[str, Any] | None = None, after: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Writes one entry in the caller's transaction."""
        await connection.execute(
            insert(self._table).values(
                subject=subject, actor=by.name, action=action, reason=by.reason, role=by.role, version=version,
                before=before, after=after,
            )
        )  # fmt: skip

    async def read_page(self, db: AsyncEngine, page: PageRequest[int], *, subject: str | None) -> AuditPage:
        """Entries of this subject, or of all, newest first."""
        entries = select(self._table)
        if subject is not None:
            entries = entries.where(self._table.c.subject == subject)
        rows, following = await page.read(db, entries, self._table.c.id)
        return AuditPage(changes=[AuditEntry.model_validate(dict(row)) for row in rows], next=following)
