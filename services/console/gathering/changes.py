"""What operators did to one event, from the audit logs of three services: the newest, and what is new since."""

import asyncio

from services.console.gathering.admin_api import AdminApi
from shared.contracts.admin import inventory, orders, prices, queue
from shared.contracts.admin.audit import AuditEntry, AuditPage
from shared.contracts.admin.console import Change
from shared.contracts.admin.endpoint import Endpoint
from shared.errors.problems import Problem
from shared.runtime.clock import from_datetime

KEPT_MAX, FIRST_PAGE, NEXT_PAGE = 200, 100, 20
LOGS: tuple[tuple[str, Endpoint[AuditPage], str | None], ...] = (
    ("queue", queue.LIST_CHANGES, None),
    ("inventory", inventory.LIST_CHANGES, None),
    ("orders", orders.LIST_AUDIT_LOG, "event:{event_id}"),
    ("orders", prices.LIST_PRICE_CHANGES, None),
)


class Changes:
    """Of one event. `newest` has at most 200, the newest first."""

    def __init__(self, event_id: str, admin: AdminApi) -> None:
        self._event_id, self._admin = event_id, admin
        self._last_ids: dict[str, int] = {}
        self.newest: list[Change] = []

    async def read(self) -> list[Change]:
        """The changes since the last time, oldest first. A service that does not answer is asked again next time."""
        found = [change for log in await asyncio.gather(*(self._read(*log) for log in LOGS)) for change in log]
        found.sort(key=lambda change: (change.at_ms, change.id))
        self.newest = sorted([*found, *self.newest], key=lambda change: -change.at_ms)[:KEPT_MAX]
        return found

    async def _read(self, service: str, endpoint: Endpoint[AuditPage], subject: str | None) -> list[Change]:
        last_id = self._last_ids.get(endpoint.path)
        query: dict[str, str | int] = {"page_size": FIRST_PAGE if last_id is None else NEXT_PAGE}
        if subject:
            query["subject"] = subject.format(event_id=self._event_id)
        path = {} if "{" not in endpoint.path else {"event_id": self._event_id}
        try:
            page = await self._admin.ask(service, endpoint, query, **path)
        except Problem:
            return []
        new = [entry for entry in page.changes if entry.id > (last_id or 0)]
        self._last_ids[endpoint.path] = max([last_id or 0, *(entry.id for entry in new)])
        return [_change(service, entry) for entry in new]


def _change(service: str, entry: AuditEntry) -> Change:
    return Change(
        service=service, id=entry.id, at_ms=from_datetime(entry.at), actor=entry.actor, action=entry.action,
        subject=entry.subject, reason=entry.reason, before=entry.before, after=entry.after,
    )  # fmt: skip
