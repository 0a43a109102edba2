"""The lawful steps, and what is due, decided from rows alone."""

from dataclasses import replace

import pytest

from services.orders.order.next_step import Attempt, Charge, Order, Refund, TicketReturn, next_step
from services.orders.order.states import ATTEMPT_STEPS, LIVE, ORDER_STEPS, attempt_after, may_become

ORDER = Order(
    reference="R", status="pending", event_id="e", reservation_id="r", principal="e:h", lane=0, join_seq=1,
    total_minor=100, currency="EUR", customer_name="n", customer_email="m", created_at_ms=0, expires_at_ms=10_000,
    grace_s=5, confirmed_at_ms=None, ended_at_ms=None, end_reason=None, cancel_asked=False, released=False,
    charge_ref=None, fulfilled_at_ms=1, version=1, wake_count=0, sync_requested=False, errors=0,
    look_due=False, now_ms=1000,
)  # fmt: skip
ATTEMPT = Attempt(
    n=1, provider="sandbox", method="ok", token=None, return_url=None, amount_minor=100, currency="EUR",
    provider_key="R:1", provider_ref=None, status="created", checkout_url=None, reason=None, errors=0,
)  # fmt: skip
CHARGE = Charge(
    provider="sandbox", charge_ref="c1", amount_minor=100, currency="EUR", occurred_at_ms=1000, refunded_minor=0
)
GIVEN_BACK = replace(CHARGE, refunded_minor=100)
RETURN = TicketReturn(id=1, reason="", tickets=[], to_sale=False)
REFUND = Refund(id=1, provider="sandbox", charge_ref="c2", amount_minor=1, currency="EUR", reason="", idem_key="k")


def with_attempt(status, **fields):
    return {"attempts": (replace(ATTEMPT, status=status, **fields),)}


PROMISED = with_attempt("authorised", provider_ref="c1")
LATE = {"now_ms": 20_000}
CANCEL = {"cancel_asked": True}
ENDED = {"status": "expired", "released": True, "end_reason": "expired"}


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        (with_attempt("created"), "charge"),
        (with_attempt("unknown"), "charge"),
        (with_attempt("processing"), "wait"),
        ({**with_attempt("processing"), "look_due": True}, "look"),
        ({**with_attempt("created"), **CANCEL}, "give_up_attempt"),
        ({**with_attempt("created"), **LATE}, "give_up_attempt"),
        ({**with_attempt("unknown"), **LATE}, "look"),
        ({**with_attempt("unknown"), **CANCEL}, "look"),
        ({**with_attempt("processing"), **LATE}, "cancel_charge"),
        ({**with_attempt("requires_action"), **CANCEL}, "cancel_charge"),
        ({**with_attempt("unknown"), "now_ms": 10_000 + 61_000}, "review"),
        ({**with_attempt("unknown"), "now_ms": 10_000 + 61_000, "look_due": True}, "look"),
        ({**with_attempt("processing"), "now_ms": 10_000 + 61_000, "look_due": True}, "cancel_charge"),
        ({**with_attempt("processing"), "now_ms": 10_000 + 61_000, "look_due": True, "errors": 1}, "review"),
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
        ({**PROMISED, "status": "confirmed", "charge_ref": "c1"}, "capture"),
        ({**with_attempt("authorised", provider_ref="c1", errors=3), "status": "confirmed", "charge_ref": "c1"},
         "cancel_charge"),
        ({**PROMISED, "status": "confirmed", "charge_ref": "c2", "charges": (replace(CHARGE, charge_ref="c2"),)},
         "cancel_charge"),
        ({**PROMISED, **ENDED}, "cancel_charge"),
        ({**with_attempt("cancelled", capture=False), "status": "confirmed", "charge_ref": "c1"}, "take_back"),
        ({**with_attempt("succeeded"), "status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,)}, "wait"),
        ({"status": "confirmed", "total_minor": 0}, "wait"),
        ({**ENDED, "status": "late_paid", "end_reason": "capture", "charges": (CHARGE,)}, "refund"),
        ({"total_minor": 0}, "confirm"),
        ({**with_attempt("cancelled"), **ENDED}, "wait"),
        ({**with_attempt("cancelled"), **ENDED, "released": False}, "release"),
        ({**with_attempt("cancelled"), **ENDED, "released": False, "charges": (CHARGE,)}, "release"),
        ({**with_attempt("cancelled"), **ENDED, "charges": (CHARGE,)}, "own_up"),
        ({**ENDED, "status": "late_paid", "charges": (CHARGE,)}, "retake"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, occurred_at_ms=15_000),)}, "retake"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, occurred_at_ms=15_001),)}, "refund"),
        ({**ENDED, "status": "late_paid", "end_reason": "fan", "charges": (CHARGE,)}, "refund"),
        ({**ENDED, "status": "late_paid", "end_reason": "taken", "charges": (CHARGE,)}, "refund"),
        ({**ENDED, "status": "late_paid", "charges": (replace(CHARGE, refunded_minor=100),)}, "close_refunded"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,)}, "wait"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "fulfilled_at_ms": None}, "issue"),
        ({"status": "confirmed", "charge_ref": "c1", "fulfilled_at_ms": None}, "wait"),
        ({"status": "refunded", "charge_ref": "c1", "fulfilled_at_ms": None, "confirmed_at_ms": 1}, "wait"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE, replace(CHARGE, charge_ref="c2"))}, "refund"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "refunds": (REFUND,)}, "send_refund"),
        ({**with_attempt("succeeded"), "status": "confirmed", "charge_ref": "c1", "sync_requested": True}, "look"),
        ({"status": "review", "end_reason": "mismatch", "charges": (CHARGE,)}, "wait"),
        ({**with_attempt("unknown"), "status": "review", "end_reason": "unknown", "charges": (CHARGE,)}, "confirm"),
        ({**with_attempt("cancelled"), "status": "review", "end_reason": "unknown"}, "expire"),
        ({"status": "confirmed", "charge_ref": "c1", "charges": (CHARGE,), "returns": (RETURN,)}, "return_tickets"),
        ({"status": "review", "refunds": (REFUND,), "returns": (RETURN,), "decided": "confirm"}, "send_refund"),
        ({"status": "review", "decided": "confirm", "charges": (CHARGE,)}, "retake"),
        ({"status": "review", "decided": "confirm", "charges": (CHARGE,), "confirmed_at_ms": 1}, "stand"),
        ({"status": "review", "decided": "refund", "charges": (CHARGE,)}, "refund"),
        ({"status": "review", "decided": "refund", "charges": (GIVEN_BACK,)}, "close_refunded"),
        ({"status": "review", "decided": "expire"}, "expire"),
        ({"status": "refunded", "confirmed_at_ms": None}, "release"),
        ({"status": "refunded", "confirmed_at_ms": 1}, "wait"),
    ],
)  # fmt: skip
def test_what_is_due_follows_from_the_rows(changes, step):
    assert next_step(replace(ORDER, **changes), review_after_s=60) == step


def test_success_beats_every_other_end_and_nothing_goes_back():
    assert {status for status, after in ATTEMPT_STEPS.items() if "succeeded" in after} == ATTEMPT_STEPS.keys() - {
        "succeeded"
    }
    assert attempt_after("succeeded", "failed") == "succeeded"
    assert attempt_after("failed", "succeeded") == "succeeded"
    assert attempt_after("cancelled", "processing") == "cancelled"
    assert attempt_after("processing", "requires_action") == "processing"
    assert all(not (after & LIVE) for status, after in ATTEMPT_STEPS.items() if status not in LIVE)


def test_an_ended_order_is_sold_only_by_owning_up_to_late_money():
    ways = {status for status, after in ORDER_STEPS.items() if "confirmed" in after}
    assert ways == {"pending", "review", "late_paid"}
    assert not may_become("expired", "confirmed")
    assert not may_become("cancelled", "confirmed")
    assert ORDER_STEPS["refunded"] == {"review"}, "only a refund that the provider refuses reopens it"
