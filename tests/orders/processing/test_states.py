"""The transitions of orders and attempts, and the next step of an order, which follows from its rows.

Query plans of the most frequent statements, planned when the statistics still describe empty tables.
"""

from dataclasses import replace

import pytest
from sqlalchemy import text

from services.orders.model.order import (
    ATTEMPT_TRANSITIONS,
    LIVE_STATUSES,
    ORDER_TRANSITIONS,
    Attempt,
    Charge,
    Order,
    Refund,
    TicketReturn,
    attempt_after,
    can_become,
)
from services.orders.model.rules import next_step
from services.orders.model.update import OrderUpdate
from services.orders.store import store
from services.orders.worker import worker
from shared.payment_provider import ProviderCharge

ORDER = Order(
    reference="R", status="pending", event_id="e", reservation_id="r", owner_id="e:h", lane=0, join_seq=1,
    total_minor=100, currency="EUR", customer_name="n", customer_email="m", language="en", created_at_ms=0,
    expires_at_ms=10_000, grace_s=5, confirmed_at_ms=None, ended_at_ms=None, end_reason=None, cancel_requested=False,
    extended=False, released=False, charge_ref=None, fulfilled_at_ms=1, version=1, now_ms=1000,
)  # fmt: skip
ATTEMPT = Attempt(
    n=1, provider="sandbox", method="ok", token=None, return_url=None, amount_minor=100, currency="EUR",
    provider_key="R:1", provider_ref=None, status="created", checkout_url=None, reason=None, errors=0,
)  # fmt: skip
CHARGE = Charge(
    provider="sandbox", charge_ref="c1", amount_minor=100, currency="EUR", occurred_at_ms=1000, refunded_minor=0
)
REFUNDED = replace(CHARGE, refunded_minor=100)
RETURN = TicketReturn(id=1, reason="", tickets=[], return_to_sale=False)
REFUND = Refund(
    id=1, provider="sandbox", charge_ref="c2", amount_minor=1, currency="EUR", reason="", idem_key="k", tickets=[]
)


def with_attempt(status, **fields):
    return {"attempts": (replace(ATTEMPT, status=status, **fields),)}


AUTHORISED = with_attempt("authorised", provider_ref="c1")
LATE = {"now_ms": 20_000}
CANCEL = {"cancel_requested": True}
ENDED = {"status": "expired", "released": True, "end_reason": "expired"}


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        (with_attempt("created"), "charge"),
        (with_attempt("unknown"), "charge"),
        (with_attempt("processing"), "wait"),
        ({**with_attempt("processing"), "sync_due": True}, "sync_provider"),
        ({**with_attempt("created"), **CANCEL}, "abandon_attempt"),
        ({**with_attempt("created"), **LATE}, "abandon_attempt"),
        ({**with_attempt("unknown"), **LATE}, "sync_provider"),
        ({**with_attempt("unknown"), **CANCEL}, "sync_provider"),
        ({**with_attempt("processing"), **LATE}, "cancel_charge"),
        ({**with_attempt("requires_action"), **CANCEL}, "cancel_charge"),
        ({**with_attempt("unknown"), "now_ms": 10_000 + 61_000}, "review"),
        ({**with_attempt("unknown"), "now_ms": 10_000 + 61_000, "sync_due": True}, "sync_provider"),
        ({**with_attempt("processing"), "now_ms": 10_000 + 61_000, "sync_due": True}, "cancel_charge"),
        ({**with_attempt("processing"), "now_ms": 10_000 + 61_000, "sync_due": True, "errors": 1}, "review"),
        (with_attempt("failed"), "wait"),
        ({**with_attempt("failed"), **LATE}, "expire"),
        ({**with_attempt("cancelled"), **CANCEL}, "cancel"),
        (with_attempt("failed", reason="provider-error"), "cancel"),
        ({**with_attempt("succeeded"), "charges": (CHARGE,)}, "confirm"),
        ({**with_attempt("succeeded"), "charges": (CHARGE,), **LATE}, "confirm"),
        ({**with_attempt("succeeded"), "charges": (CHARGE,), **CANCEL}, "confirm"),
        ({**with_attempt("succeeded"), "charges": (replace(CHARGE, amount_minor=99),)}, "review"),
        ({**with_attempt("succeeded"), "charges": (replace(CHARGE, currency="USD"),)}, "review"),
        (with_attempt("authorised"), "confirm"),
        ({**with_attempt("authorised"), **LATE}, "confirm"),
        ({**with_attempt("authorised"), **CANCEL}, "cancel_charge"),
        (with_attempt("authorised", reason="mismatch"), "review"),
        ({**with_attempt("authorised"), "status": "review", "end_reason": "unknown"}, "confirm"),
        ({**with_attempt("authorised", reason="mismatch"), "status": "review", "end_reason": "unknown"}, "wait"),
        ({**AUTHORISED, "status": "confirmed", "charge_ref": "c1"}, "capture"),
        ({**with_attempt("authorised", provider_ref="c1", errors=3), "status": "confirmed", "charge_ref": "c1"},
         "cancel_charge"),
        ({**AUTHORISED, "status": "confirmed", "charge_ref": "c2", "charges": (replace(CHARGE, charge_ref="c2"),)},
         "cancel_charge"),
        ({**AUTHORISED, **ENDED}, "cancel_charge"),
        ({**with_attempt("cancelled", capture=False), "status": "confirmed", "charge_ref": "c1"}, "revoke_unpaid_sale"),
        ({**with_attempt("succeeded"), "status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,)}, "wait"),
        ({"status": "confirmed", "total_minor": 0}, "wait"),
        ({**ENDED, "status": "late_paid", "end_reason": "capture", "charges": (CHARGE,)}, "request_refund"),
        ({"total_minor": 0}, "confirm"),
        ({**with_attempt("cancelled"), **ENDED}, "wait"),
        ({**with_attempt("cancelled"), **ENDED, "released": False}, "release_hold"),
        ({**with_attempt("cancelled"), **ENDED, "released": False, "charges": (CHARGE,)}, "release_hold"),
        ({**with_attempt("cancelled"), **ENDED, "charges": (CHARGE,)}, "mark_paid_late"),
        ({**ENDED, "status": "late_paid", "charges": (CHARGE,)}, "reacquire_stock"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, occurred_at_ms=15_000),)}, "reacquire_stock"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, occurred_at_ms=15_001),)}, "request_refund"),
        ({**ENDED, "status": "late_paid", "end_reason": "fan", "charges": (CHARGE,)}, "request_refund"),
        ({**ENDED, "status": "late_paid", "end_reason": "taken", "charges": (CHARGE,)}, "request_refund"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, refunded_minor=100),)}, "mark_refunded"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,)}, "wait"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "fulfilled_at_ms": None}, "issue_tickets"),
        ({"status": "confirmed", "charge_ref": "c1", "fulfilled_at_ms": None}, "wait"),
        ({"status": "refunded", "charge_ref": "c1", "fulfilled_at_ms": None, "confirmed_at_ms": 1}, "wait"),
        (
            {"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE, replace(CHARGE, charge_ref="c2"))},
            "request_refund",
        ),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "refunds": (REFUND,)}, "send_refund"),
        (
            {**with_attempt("succeeded"), "status": "confirmed", "charge_ref": "c1", "sync_requested": True},
            "sync_provider",
        ),
        ({"status": "review", "end_reason": "mismatch", "charges": (CHARGE,)}, "wait"),
        ({**with_attempt("unknown"), "status": "review", "end_reason": "unknown", "charges": (CHARGE,)}, "confirm"),
        ({**with_attempt("cancelled"), "status": "review", "end_reason": "unknown"}, "expire"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "returns": (RETURN,)}, "return_tickets"),
        ({"status": "review", "refunds": (REFUND,), "returns": (RETURN,), "review_decision": "confirm"}, "send_refund"),
        ({"status": "review", "review_decision": "confirm", "charges": (CHARGE,)}, "reacquire_stock"),
        ({"status": "review", "review_decision": "confirm", "charges": (CHARGE,), "confirmed_at_ms": 1}, "keep_sold"),
        ({"status": "review", "review_decision": "refund", "charges": (CHARGE,)}, "request_refund"),
        ({"status": "review", "review_decision": "refund", "charges": (REFUNDED,)}, "mark_refunded"),
        ({"status": "review", "review_decision": "expire"}, "expire"),
        ({"status": "refunded", "confirmed_at_ms": None}, "release_hold"),
        ({"status": "refunded", "confirmed_at_ms": 1}, "wait"),
    ],
)  # fmt: skip
def test_the_next_step_follows_from_the_rows(changes, step):
    assert next_step(replace(ORDER, **changes), review_after_s=60) == step


def test_an_attempt_never_leaves_success():
    assert {
        status for status, after in ATTEMPT_TRANSITIONS.items() if "succeeded" in after
    } == ATTEMPT_TRANSITIONS.keys() - {"succeeded"}
    assert attempt_after("succeeded", "failed") == "succeeded"
    assert attempt_after("failed", "succeeded") == "succeeded"
    assert attempt_after("cancelled", "processing") == "cancelled"
    assert attempt_after("processing", "requires_action") == "processing"
    assert all(
        not (after & LIVE_STATUSES) for status, after in ATTEMPT_TRANSITIONS.items() if status not in LIVE_STATUSES
    )


def test_an_ended_order_is_confirmed_only_after_late_money():
    before_confirmed = {status for status, after in ORDER_TRANSITIONS.items() if "confirmed" in after}
    assert before_confirmed == {"pending", "review", "late_paid"}
    assert not can_become("expired", "confirmed")
    assert not can_become("cancelled", "confirmed")
    assert ORDER_TRANSITIONS["refunded"] == {"review"}, "only a refund that the provider refuses reopens it"


def test_money_that_was_refunded_pays_for_nothing():
    assert replace(ORDER, charges=(CHARGE,)).matching_charge() == CHARGE
    assert replace(ORDER, charges=(REFUNDED, replace(CHARGE, refunded_minor=1))).matching_charge() is None


def test_an_update_refuses_a_status_that_cannot_follow():
    update = OrderUpdate(replace(ORDER, status="cancelled"))
    with pytest.raises(AssertionError, match="never becomes"):
        update.set_order(status="confirmed")
    assert update.set_order(status="late_paid").changed == {"status": "late_paid"}


def test_a_charge_of_another_order_changes_nothing():
    order = replace(ORDER, **with_attempt("unknown"))
    paid = ProviderCharge(
        charge_ref="c", reference="R", key="R:1", status="succeeded", amount_minor=100, currency="EUR", occurred_at_ms=1
    )
    for reference, charges in (("R", 1), ("OTHER", 0)):
        update = OrderUpdate(order)
        update.record_charges("sandbox", [replace(paid, reference=reference)])
        assert (len(update.after().charges), "attempts" in update.changed) == (charges, bool(charges))


KEYS = {"owner_ids": ["a"] * 50, "key_hashes": ["00"] * 50}
ORDERS = {"references": ["A"] * 50}
BEAT = {"owner": "me", "free": 1, "takeover_s": 5.0}
WAKE = {**ORDERS, "owner": "me", "sync": False, "take": False}


async def plan(connection, statement, params):
    return "\n".join(await connection.scalars(text(f"EXPLAIN {statement}").bindparams(**params)))


async def test_idempotency_keys_are_found_by_index(shop):
    async with shop.state.db.connect() as connection:
        await connection.execute(text('TRUNCATE orders."order"'))
        await connection.execute(text('ANALYZE orders."order"'))
        assert "Index Cond: ((owner_id = q.owner_id) AND (key_hash = " in await plan(connection, store._FIND_KEY, KEYS)
        await connection.execute(text("SET LOCAL enable_seqscan = on"))
        allowed = await plan(connection, store._FIND_KEY, KEYS)
        assert 'Seq Scan on "order" ' in allowed, "without the service's setting"
        await connection.rollback()


async def test_orders_are_read_woken_and_swept_by_index(shop):
    async with shop.state.db.connect() as connection:
        for statement, params in (
            (store._READ, ORDERS), (store._WAKE, WAKE), (worker._BEAT, BEAT), (worker._READ_WOKEN, {"owner": "me"}),
            (worker._TAKE_OVER, {"dead": ["a"], "owner": "me", "many": 8, "takeover_s": 5.0}),
        ):  # fmt: skip
            explained = await plan(connection, statement, params)
            assert "Index Cond: " in explained, explained
            assert "Seq Scan on open_order" not in explained, explained
            assert 'Seq Scan on "order"' not in explained, explained
