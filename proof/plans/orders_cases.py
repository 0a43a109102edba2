"""The values each statement of orders is run with: a hundred orders, a page of them, or all of an event."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any

from proof.plans.statements import Case, every, fan
from services.orders.audit.invariants import CHECKS

BATCH = 100
NOW = datetime.now(UTC)
PENDING = [f"o{10_000_000 + i}" for i in range(5, 5 + 5 * BATCH, 5)]
CODES = [f"CODE{i % 20 + 1}" for i in range(BATCH)]
REFS = [f"ch{i}" for i in range(1, BATCH + 1)]
NEW = [f"new{i}" for i in range(BATCH)]

VALUES: dict[str, Any] = {
    "event_id": "e", "reference": "o10000005", "references": PENDING, "owner": "me", "lease": "me", "lease_s": 30.0,
    "takeover_s": 5.0, "provider": "sandbox", "after_s": 60,
    "after": None, "count_max": BATCH, "many": BATCH, "event_max": 500, "each_max": 50, "keep_days": 30,
    "batch_max": 10.0, "settled_after_s": 10.0, "codes": CODES, "event_ids": ["e"] * BATCH,
    "customer_keys": [f"c{i}" for i in range(1, BATCH + 1)],
}  # fmt: skip


def _drafts() -> str:
    ticket = {"section_id": "S", "unit_price_minor": 5000, "paid_minor": 5000, "tickets": [{"id": "t"}]}
    order = {
        "fingerprint": "00", "event_id": "e", "lane": 0, "join_seq": 1, "total_minor": 5000, "currency": "EUR",
        "expires_at_ms": 10**12, "grace_s": 5, "extras": [], "language": "en",
        "event": {}, "lines": [ticket], "journal": [],
        "attempts": [{"provider": "sandbox", "method": "card", "status": "unknown"}],
    }  # fmt: skip
    return json.dumps([
        {**order, "key_hash": f"{i:032x}", "reference": name, "reservation_id": name, "owner_id": f"e:{name}"}
        for i, name in enumerate(NEW)
    ])  # fmt: skip


def _listed(name: str) -> dict[str, Any]:
    """Charges as a provider lists them."""
    return {name: json.dumps([{"charge_ref": ref, "reference": ref, "status": "succeeded"} for ref in REFS])}


def _events() -> str:
    """An event of each order, for the three endpoints."""
    return json.dumps([
        {"id": r, "event_id": "e", "type": "a", "occurred_at_ms": 1, "version": 1, "after": {"reference": r}}
        for r in PENDING
    ])  # fmt: skip


def _updates() -> dict[str, Any]:
    """An update of each order, with each kind of row that an update may write."""
    orders = [
        {"reference": r, "owner": "me", "epoch": 0, "wakes": 0, "event_count": 1, "touches": True, "synced": False,
         "status": "review", "releases": True, "due_in_s": 60, "errors": 0,
         "attempts": [{"provider": "sandbox", "method": "card", "status": "failed"}]}
        for r in PENDING
    ]  # fmt: skip
    parts = ("money", "refunds_requested", "refunds_done", "events", "mails")
    return {"orders": json.dumps(orders)} | dict.fromkeys(parts, "[]")


SEARCH: dict[str, Any] = dict.fromkeys(("event_id", "status", "since", "until", "before", "q", "mail_failed")) | {
    "providers": ["sandbox"]
}
ANY_COMMAND: dict[str, Any] = dict.fromkeys(("event_id", "reference", "status", "before", "place"))
CASES = {
    "dispatcher._ANY_SOON": Case(1, soon_s=6.0),
    "dispatcher._ANY_ENDPOINT": Case(1),
    "sql/queue_deliveries": Case(3 * BATCH, events=_events()),
    "sql/apply_webhooks": Case(200, busy=["o10000001"]),
    "sql/save": Case(BATCH, **_updates()),
    "sql/charges": Case(BATCH, after=0, is_rare=True),
    "sql/order_export": Case(BATCH, is_rare=True, reference=None),
    "sql/issued_orders": Case(BATCH, is_rare=True, reference=None),
    "sql/compare_charges": Case(
        every, **_listed("theirs"), refs=REFS, start=NOW - timedelta(days=30), stop=NOW, listed_max=1000
    ),
    "sql/find_key": Case(
        BATCH, owner_ids=["e:" + fan(i) for i in range(1, BATCH + 1)],
        key_hashes=[md5(str(i).encode(), usedforsecurity=False).hexdigest() for i in range(1, BATCH + 1)],
    ),
    "sql/finish_delivery": Case(
        1, delivered=False, pause_s=1.0, answer_status=500, error="e", id=1, gone=False, disable_after_s=10.0
    ),
    "sql/delete_old_deliveries": Case(10_000),
    "sql/read": Case(BATCH),
    "sql/lock_promo_codes": Case(20),
    "sql/claim_batch": Case(1),
    "sql/insert": Case(3 * BATCH, orders=_drafts()),  # an order, its open order and its event
    "sql/insert redemptions": Case(4 * BATCH, orders=_drafts(), uses=json.dumps([
        {"reference": name, "event_id": "e", "code": "CODE1", "customer_key": "c1"} for name in NEW
    ])),  # and its redemption
    "sql/promo_codes": Case(every),
    "sql/event_rules": Case(BATCH),
    "sql/beat": Case(BATCH, free=10),
    "sql/take_over": Case(BATCH, dead=["dead", ""]),
    "sql/read_woken": Case(BATCH),
    "sql/read_unknown": Case(BATCH, known=[]),
    "sql/give_up": Case(BATCH, all=False),
    "sql/wake": Case(BATCH, sync=True, take=True),
    "sql/begin_comparison": Case(1, first_s=3600),
    "sql/end_comparison": Case(1, until_ms=0),
    "sql/differing_charges": Case(BATCH, is_rare=True, **_listed("charges")),
    "sql/list_commands": Case(2 * BATCH, **ANY_COMMAND),
    "sql/read_command": Case(1, place=1),
    "sql/search": Case(every, **{**SEARCH, "q": "o10000500"}),
    "sql/flow": Case(every, seconds=300, reasons_max=20),
    "sql/flow_history": Case(every, start=NOW - timedelta(days=1), step_s=600, steps=240),
    "sql/send_again": Case(1, address="M1@x", in_unicode="M1@x", statuses=["confirmed"]),
    "sql/settlement": Case(every, tz="Europe/Berlin", start=NOW - timedelta(days=30), stop=NOW),
    "sql/settlement_types": Case(every, start=NOW - timedelta(days=30), stop=NOW, first_id=1, last_id=10**9),
    "sql/find_next_orders": Case(BATCH, is_rare=True),
    "sql/store_webhooks": Case(
        BATCH, providers=["sandbox"] * BATCH, webhook_ids=NEW, kinds=["k"] * BATCH,
        references=[None if n % 2 else name for n, name in enumerate(NEW)], abouts=NEW, charge_refs=NEW,
        raws=[b""] * BATCH,
    ),
    "sql/lease_deliveries": Case(BATCH),
    "sql/lease_mails": Case(BATCH),
    "sql/take_mail": Case(1, recipient="r1", mails_max=8),
    "sql/timeline": Case(BATCH, is_rare=True),
    "audit.invariants.CONFIRMED": Case(every),
    "endpoints._PENDING": Case(1, is_rare=True),
    "sql/event_refund_progress": Case(every),
    **{f"sql/{name}": Case(every) for name in CHECKS.values()},
}  # fmt: skip
