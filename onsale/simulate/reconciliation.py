"""Reconciliation after a chaos run: compares our charges with the provider's, one by one and to the cent."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from rich.table import Table

from onsale.admin_client import AdminClient
from onsale.errors import OperatorError
from shared.contracts.admin import order_reports

PAGE = 1000
SETTLE_S, QUIET_S, READ_INTERVAL_S = 150.0, 4.0, 1.0
Sums = dict[str, tuple[int, int]]
"""Charged and refunded amounts in minor units, by the provider's id of the charge."""


@dataclass
class Reconciliation:
    """Both lists of an event's charges; `broken` are the invariants that the audit found broken."""

    ours: Sums = field(default_factory=dict)
    theirs: Sums = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    orders_confirmed: int = 0

    @property
    def differing(self) -> list[str]:
        both = self.ours.keys() | self.theirs.keys()
        return sorted(each for each in both if self.ours.get(each) != self.theirs.get(each))

    @property
    def agree(self) -> bool:
        return not self.differing and not self.broken

    def result(self) -> dict[str, Any]:
        return {
            "orders_confirmed": self.orders_confirmed, "ours": _summed(self.ours), "theirs": _summed(self.theirs),
            "differing": self.differing, "broken": self.broken,
        }  # fmt: skip

    def table(self) -> Table:
        table = Table("charges", "ours", "the provider's", title=f"{self.orders_confirmed} orders confirmed")
        ours, theirs = _summed(self.ours), _summed(self.theirs)
        for name in ours:
            table.add_row(name.replace("_", " "), f"{ours[name]:,}", f"{theirs[name]:,}")
        for what, found in (("charges that differ", self.differing), ("invariants broken", self.broken)):
            colour = "red" if found else "green"
            table.add_row(what, f"[{colour}]{len(found)}[/] (must be 0)", ", ".join(found[:3]))
        return table


def _summed(sums: Sums) -> dict[str, int]:
    charged, refunded = (sum(each[side] for each in sums.values()) for side in (0, 1))
    return {
        "charges": len(sums), "charged_minor": charged, "refunded_minor": refunded, "kept_minor": charged - refunded,
    }  # fmt: skip


async def compare(
    admin: AdminClient, client: httpx.AsyncClient, sandbox_url: str, event_id: str, since: datetime
) -> Reconciliation:
    """Both lists, once they have agreed for `QUIET_S` or after `SETTLE_S`. A charge of no order counts if it was made
    after `since`.
    """
    deadline_s, agreed_s = time.monotonic() + SETTLE_S, 0.0
    while True:
        books = await _read_both(admin, client, sandbox_url, event_id, since)
        now_s = time.monotonic()
        agreed_s = (agreed_s or now_s) if books.agree else 0.0
        if now_s > deadline_s or (agreed_s and now_s - agreed_s > QUIET_S):
            return books
        await asyncio.sleep(READ_INTERVAL_S)


async def _read_both(
    admin: AdminClient, client: httpx.AsyncClient, sandbox_url: str, event_id: str, since: datetime
) -> Reconciliation:
    theirs, late = await _theirs(client, sandbox_url, since)
    ours = await _ours(admin, event_id)
    for stray in theirs.keys() - ours.keys():
        if stray not in late or await _of_another_event(admin, late[stray], event_id):
            del theirs[stray]
    audit = await admin.audit(event_id)
    confirmed = (await admin.check_orders_invariants(event_id)).confirmed
    return Reconciliation(ours, theirs, [row.invariant for row in audit if not row.holds], confirmed)


async def _ours(admin: AdminClient, event_id: str) -> Sums:
    return {
        charge.charge_ref: (charge.charged_minor, charge.refunded_minor)
        async for page in admin.pages(order_reports.LIST_CHARGES, query={"page_size": PAGE}, event_id=event_id)
        for charge in page.charges
    }


async def _theirs(client: httpx.AsyncClient, sandbox_url: str, since: datetime) -> tuple[Sums, dict[str, str]]:
    """All charges with captured money; and the order references of those made after `since`."""
    theirs, late, since_id, more = Sums(), dict[str, str](), "1970-01-01T00:00:00Z", True
    while more:
        try:
            answer = await client.get(f"{sandbox_url}/charges", params={"since": since_id, "limit": PAGE}, timeout=20)
        except httpx.HTTPError as unreachable:
            raise OperatorError(f"No payment sandbox answers at {sandbox_url}.") from unreachable
        page = answer.json()
        for charge in page["charges"]:
            since_id = charge["id"]
            if charge["captured_minor"]:
                theirs[since_id] = charge["captured_minor"], charge["refunded_minor"]
            if datetime.fromisoformat(charge["created_at"]) >= since:
                late[since_id] = charge["reference"]
        more = page["has_more"] and page["charges"]
    return theirs, late


async def _of_another_event(admin: AdminClient, reference: str, event_id: str) -> bool:
    found = (await admin.search_orders(q=reference)).orders
    return any(order.reference == reference and order.event_id != event_id for order in found)
