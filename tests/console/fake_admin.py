"""The admin APIs of queue, inventory and orders as the console sees them: one app that counts what it is asked."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shared.contracts.catalogue import EventLimits
from shared.security.auth import AdminKeys, read_session
from shared.security.tokens import Keyring

EVENT = "arena"
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


def change(number: int, action: str = "change") -> dict[str, Any]:
    return {
        "id": number, "at": NOW, "actor": "ann", "role": None, "action": action, "subject": f"event:{EVENT}",
        "reason": "a test", "version": number, "before": {"rate_per_s": 1}, "after": {"rate_per_s": 2},
    }  # fmt: skip


PREVIEW = {
    "status": "waiting", "join_seq": 240, "position_in_queue": 120, "estimated_wait_time": 40, "estimated_wait_low": 31,
    "estimated_wait_high": 54, "head_seq": 120, "state": "open", "poll_after_ms": 5_000, "message": "Doors at eight.",
    "estimate_changed": {"reason": "throttled", "at": NOW},
}  # fmt: skip


@dataclass
class FakeAdmin:
    """`silent` parts answer late and with nothing. `questions` counts by part and last word of the path."""

    keys: Keyring
    admin_keys: str = ""
    silent: set[str] = field(default_factory=set)
    questions: Counter[tuple[str, str]] = field(default_factory=Counter)
    changes: list[dict[str, Any]] = field(default_factory=lambda: [change(1, "create")])
    broken: set[str] = field(default_factory=set)
    under_way: Counter[str] = field(default_factory=Counter)
    under_way_max: int = 0
    silent_s: float = 0.9
    providers: tuple[str, ...] = ("sandbox",)
    closed: list[tuple[str, str]] = field(default_factory=list)  # rooms, and by whom

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        words = request.url.path.strip("/").split("/")
        part = _part(words)
        self.questions[part, words[-1]] += 1
        if words[0] == "admin":
            token = request.headers["authorization"].removeprefix("Bearer ")
            known = AdminKeys(self.admin_keys if request.method == "POST" else "")
            asker = read_session(self.keys, known, token, now_s=datetime.now(UTC).timestamp()).operator
            assert (asker.role == "viewer") == (request.method == "GET")
            if request.method == "POST":
                self.closed.append((words[2], asker.name))
        if part in self.silent:
            self.under_way[words[-1]] += 1
            self.under_way_max = max(self.under_way_max, self.under_way["flow"])
            await asyncio.sleep(self.silent_s)
            self.under_way[words[-1]] -= 1
            await Response(b"", 502)(scope, receive, send)
            return
        status, body = self._answer(part, words)
        await Response(orjson.dumps(body), status, media_type="application/json")(scope, receive, send)

    def _answer(self, part: str, words: list[str]) -> tuple[int, Any]:
        head = {
            "event_id": EVENT, "name": "The Arena", "venue": "A hall", "starts_at": NOW, "timezone": "UTC",
            "currency": "EUR", "price_from_minor": 3000, "sections": [],
            "limits": dict.fromkeys(EventLimits.model_fields, 0),
        }  # fmt: skip
        match words[-1]:
            case "flow":
                return 200, {"queue": LINE, "inventory": HOLDS, "orders": ORDERS}[part]
            case "room" | "close":
                return 200, ROOM
            case "providers":
                return 200, {"providers": [{"name": name, "methods": []} for name in self.providers]}
            case "audit":
                rows = [
                    {"invariant": name, "holds": name not in self.broken, "detail": ""} for name in INVARIANTS[part]
                ]
                return 200, {"invariants": rows, "confirmed": 50}
            case "changes" | "price-changes":
                return 200, {"changes": list(reversed(self.changes)) if part == "queue" else [], "next": None}
            case "preview":
                return 200, PREVIEW
            case "events":
                return 200, {"events": [head], "next": None}
        if words == ["events", EVENT]:
            return 200, head
        return 404, {"type": "/problems/unknown-event", "status": 404, "title": "", "detail": "There is no such event."}


def _part(words: list[str]) -> str:
    """The part that answers a path."""
    if words[0] == "payments":
        return "orders"
    if words[0] == "events":
        return "gateway" if "queue" in words else "inventory"
    return "queue" if words[1] == "events" else words[1]
