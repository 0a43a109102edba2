"""The admin APIs of queue, inventory and orders as the console sees them: the services' own, over one address that
counts what it is asked and falls silent on command. And facts of a sale, as the services tell them, for the figures
that are made of them.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.contracts.event_file import EventFile
from tests.support.neighbours import answer_of
from tests.support.running.services import Neighbours

EVENT, FANS = "arena", 3
FILE = EventFile.model_validate({
    "event_id": EVENT, "name": "The Arena", "venue": "A hall", "currency": "EUR", "starts_at": "2027-03-05T19:30:00Z",
    "sections": [{"section_id": "A", "name": "A", "kind": "ga", "capacity": 100, "price_minor": 3000}],
})  # fmt: skip


NOW = datetime(2026, 11, 25, 12, tzinfo=UTC).isoformat()
INVARIANTS = {
    "queue": (
        "3 a holder has one live place", "3 no number is given twice: the counter is at or past the database",
        "5 nobody is called beyond the head",
    ),
    "inventory": (
        "1 database: available + held + sold + blocked = capacity", "2 a seat has at most one live owner",
        "2 sold ≤ capacity",
    ),
    "orders": (
        "6 one order per idempotency key", "6 one order per reservation", "6 one live attempt per order",
        "7 a confirmed order is paid exactly, or authorised",
    ),
}  # fmt: skip
LINE = {
    "event_id": EVENT, "at": NOW, "epoch": 1, "joined": 500, "called": 120, "claimed": 100, "waiting": 380,
    "missed_calls": 3, "completed": 50, "expired": 1, "left_early": 2, "first_at": NOW, "last_at": NOW,
    "wait": {"fans": 120, "p50_s": 4.0, "p95_s": 9.0, "longest_s": 12.0},
}  # fmt: skip
HOLDS = {
    "event_id": EVENT, "at": NOW, "fans_held": 90, "holds": 95, "oldest_hold_s": 7.0, "oldest_payment_s": None,
    "oldest_open_s": 7.0, "earlier": 40, "earlier_given_back": 4,
    "by_status": {"pending_payment": 5, "paying": 2, "confirmed": 50}, "first_at": NOW, "last_at": NOW,
    "sections": [{"section_id": "A", "name": "A", "on_sale": 100, "available": 30, "held": 20, "sold": 50}],
}  # fmt: skip
ORDERS = {
    "event_id": EVENT, "at": NOW, "fans_ordered": 60, "fans_confirmed": 50, "confirmed_ever": 50, "due": 1,
    "by_status": {"pending": 8, "confirmed": 50, "review": 0}, "oldest_pending_s": 1.0, "oldest_due_s": -0.5,
    "declines": {"card_declined": 4}, "recent": {"tickets": [1] * 60, "orders": 60}, "first_at": NOW, "last_at": NOW,
}  # fmt: skip
ROOM = {
    "event_id": EVENT, "version": 7, "epoch": 1, "state": "open", "shown_state": "open", "ready": True,
    "rate_per_s": 50.0, "burst": 10, "max_active": 400, "session_s": 300, "claim_window_s": 60,
    "liveness_window_s": 30, "max_misses": 2, "returning_share": 0.2, "max_line": None, "tickets_per_order": 4,
    "stock_coupling": True, "ordering": "fifo", "queue_opens_at": None, "sale_starts_at": None, "sale_ends_at": None,
    "lanes": {}, "called": 1, "active": 40, "calls_per_s": 45.0, "live_ratio": 1.0, "message": None,
    "effective_rate_per_s": 50.0, "throttled": None, "guard_sees": None, "autotune_rate_per_s": None,
}  # fmt: skip
PREVIEW = {
    "status": "waiting", "join_seq": 240, "position_in_queue": 120, "estimated_wait_time": 40, "estimated_wait_low": 31,
    "estimated_wait_high": 54, "head_seq": 120, "state": "open", "poll_after_ms": 5_000, "message": "Doors at eight.",
    "estimate_changed": {"reason": "throttled", "at": NOW},
}  # fmt: skip


@dataclass
class Admin:
    """`silent` parts answer late and with nothing. `questions` counts by part and last word of the path; for these,
    `given` has a document of the contract that is answered in place of the service's.
    """

    neighbours: Neighbours
    silent: set[str] = field(default_factory=set)
    questions: Counter[tuple[str, str]] = field(default_factory=Counter)
    given: dict[tuple[str, str], BaseModel] = field(default_factory=dict)
    under_way: Counter[str] = field(default_factory=Counter)
    under_way_max: int = 0
    silent_s: float = 0.9

    async def open(self) -> None:
        """Opens all three services."""
        for service in (self.neighbours.real_queue, self.neighbours.real_inventory, self.neighbours.real_orders):
            await service.open()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        words = Request(scope).url.path.strip("/").split("/")
        part, word = part_of(words), words[-1]
        self.questions[part, word] += 1
        if part in self.silent:
            self.under_way[word] += 1
            self.under_way_max = max(self.under_way_max, self.under_way["flow"])
            await asyncio.sleep(self.silent_s)
            self.under_way[word] -= 1
            await Response(b"", 502)(scope, receive, send)
        elif (part, word) in self.given:
            await answer_of(self.given[part, word])(scope, receive, send)
        else:
            await self._service(part)(scope, receive, send)

    def _service(self, part: str) -> ASGIApp:
        services: dict[str, ASGIApp] = {
            "queue": self.neighbours.queue, "inventory": self.neighbours.inventory, "orders": self.neighbours.orders
        }  # fmt: skip
        return services[part]


def part_of(words: list[str]) -> str:
    """The part that answers a path, as the gateway of a suite sends it on."""
    if words[0] == "payments":
        return "orders"
    if words[0] == "events":
        return "gateway" if "queue" in words else "inventory"
    return "queue" if words[1] == "events" else words[1]
