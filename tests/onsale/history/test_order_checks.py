"""Histories of orders that break one promise each: of the order, its end, its tickets and its money."""

from typing import Any

import pytest

from tests.onsale.history.doctored import START_S, Sale, charge, line, order

ORDER = 'UPDATE orders."order" SET'
REFUND = "INSERT INTO orders.refund (reference, provider, charge_ref, amount_minor, currency, reason, requested_by, " \
    "idem_key, status) VALUES ('O1', 'sandbox', 'ch_1', 11000, 'EUR', 'ill', '{}', 'k', 'done')"  # fmt: skip

AUTHORISATION = f"{ORDER} attempts = " \
    """'[{"provider": "s", "method": "ok", "status": "failed", "capture": false}]'"""  # fmt: skip
ENTRY = "INSERT INTO orders.money_entry (reference, kind, amount_minor, currency, provider, provider_ref, " \
    "charge_ref, occurred_at) VALUES ('O1', '{}', {}, 'EUR', 'sandbox', '{}', '{}', now())"  # fmt: skip
REFUNDED_ENTRY = ENTRY.format("refund", "{}", "re_1", "ch_1")
NO_ENTRY = "SET session_replication_role = replica; DELETE FROM orders.money_entry"  # they are only ever added


def unconfirmed(sale: Sale, *lines: dict[str, Any]) -> None:
    """The fan was told this instead of the confirmation."""
    sale.lines = [each for each in sale.lines if each.get("status") != "confirmed" and each["what"] != "tickets"]
    sale.add(*lines)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (f"{ORDER} status = 'tombstone'", "order O1 is not stored"),
        (f"{ORDER} reference = 'O2'", "order O1 is not stored"),
        (f"{ORDER} total_minor = 12000", "was acknowledged with total_minor 11000, and has 12000"),
        (f"{ORDER} currency = 'USD'", "was acknowledged with currency EUR, and has USD"),
        (f"{ORDER} reservation_id = 'R2'", "was acknowledged with reservation_id R1, and has R2"),
        (f"{ORDER} owner_id = 'arena:fan-2'", "belongs to another fan"),
        (f"{ORDER} status = 'cancelled'", "was confirmed and is cancelled"),
        (f"{ORDER} status = 'refunded'", "was confirmed and is refunded, and nobody asked for a refund"),
        (f"{ORDER} lines = jsonb_set(lines, '{{0,tickets,0,id}}', '\"T9\"')", "has lost tickets"),
        ("UPDATE inventory.reservation SET status = 'returned' WHERE reservation_id = 'R1'", "its places are returned"),
        ("UPDATE inventory.reservation SET reservation_id = 'R9' WHERE reservation_id = 'R1'", "places are unknown"),
    ],
)
async def test_orders_that_are_missing_or_differ(sale: Sale, change: str, sentence: str) -> None:
    await sale.change("SET session_replication_role = replica")  # keys of other tables need not fit
    await sale.change(change)
    found = await sale.violations()
    assert any(sentence in each for each in found), found


@pytest.mark.parametrize("evidence", ["refund", "event refund", "perhaps", "an operator elsewhere"])
async def test_a_refund_that_was_asked_for_is_no_loss(sale: Sale, evidence: str) -> None:
    await sale.change(f"{ORDER} status = 'refunded'")
    await sale.change("UPDATE inventory.reservation SET status = 'returned' WHERE reservation_id = 'R1'")
    await sale.change(REFUND.format("ann"))
    await sale.change(REFUNDED_ENTRY.format(11000))
    sale.charges = [charge(refunded_minor=11000)]
    if evidence == "refund":
        sale.add(order("refund_requested", 500, status="confirmed"))
    elif evidence == "event refund":
        sale.add(line("event_refund_requested", 500))
    elif evidence == "perhaps":
        sale.add(line("unanswered", 500, reference="O1", of="POST /admin/orders/{reference}/refund"))
    assert await sale.violations() == []


async def test_the_systems_own_refund_is_no_reason(sale: Sale) -> None:
    await sale.change(f"{ORDER} status = 'refunded'")
    await sale.change(REFUND.format("system"))
    await sale.change(REFUNDED_ENTRY.format(11000))
    sale.charges = [charge(refunded_minor=11000)]
    assert await sale.violations() == ["order O1 was confirmed and is refunded, and nobody asked for a refund"]


async def test_an_acknowledged_refund_is_stored(sale: Sale) -> None:
    sale.add(order("refund_requested", 500, status="confirmed"))
    assert await sale.violations() == ["order O1 has no refund, and one was acknowledged"]


async def test_a_sale_that_cannot_be_captured_may_be_revoked(sale: Sale) -> None:
    await sale.change(AUTHORISATION)
    await sale.change(f"{ORDER} status = 'cancelled'")
    await sale.change(NO_ENTRY)
    sale.charges = []
    assert await sale.violations() == []


async def test_what_a_fan_cancelled_is_never_sold(sale: Sale) -> None:
    unconfirmed(sale, order("order", 395, status="cancelled", end_reason="fan"))
    assert await sale.violations() == ["order O1 was cancelled and is confirmed"]
    await sale.change(f"{ORDER} review_decision = 'confirm'")  # by an operator
    assert await sale.violations() == []


@pytest.mark.parametrize(("expires_s", "clean"), [(1800000700, True), (1800000600, False)])
async def test_an_expired_order_is_sold_only_if_it_was_paid_in_time(sale: Sale, expires_s: int, clean: bool) -> None:
    unconfirmed(sale, order("order", 395, status="expired", end_reason="deadline"))
    await sale.change(f"{ORDER} expires_at = to_timestamp({expires_s})")
    wrong = ["order O1 had ended and is confirmed, and was not paid in time"]
    assert await sale.violations() == ([] if clean else wrong)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([order("order", 399)], "order O1 had ended and is pending"),
        ([order("order", 399, status="expired")], "order O1 was confirmed and is expired"),
        ([order("order", 399, status="confirmed", total_minor=1)], "total_minor of order O1 changed from 11000 to 1"),
        ([order("tickets", 399, tickets=[{"ticket_id": "T2"}])], "order O1 has other tickets than before"),
    ],
)
async def test_answers_that_contradict_each_other(sale: Sale, lines: list[dict[str, Any]], sentence: str) -> None:
    sale.add(*lines)
    assert sentence in await sale.violations()


@pytest.mark.parametrize("status", ["pending", "expired"])
async def test_a_frame_of_a_stream_may_be_older_than_an_answer(sale: Sale, status: str) -> None:
    sale.add(order("order_frame", 399, status=status))
    assert await sale.violations() == []


async def test_an_answer_to_an_earlier_request_may_be_older(sale: Sale) -> None:
    """The stream told the end before the fan's question was answered."""
    sale.add({**order("order", 399), "sent_ms": (START_S + 390) * 1000})
    assert await sale.violations() == []


async def test_what_a_stream_confirmed_is_kept(sale: Sale) -> None:
    unconfirmed(sale, order("order_frame", 395, status="confirmed"))
    await sale.change(f"{ORDER} status = 'cancelled'")
    assert "order O1 was confirmed and is cancelled" in await sale.violations()


async def test_a_repeated_request_has_the_same_answer(sale: Sale) -> None:
    again = order("ordered", 391, fan="fan-1", key="k1", request="r1")
    sale.add(again)
    assert await sale.violations() == []
    sale.add(line("ordered", 392, fan="fan-1", key="k1", request="r1", reference="O7"))
    assert "one key was answered with O1 and O7" in await sale.violations()


# -- money -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("charges", "sentence"),
    [
        ([], "order O1 is confirmed, and the provider has 0 instead of 11000"),
        ([charge(), charge(id="ch_2")], "order O1 is confirmed, and the provider has 22000 instead of 11000"),
        ([charge(minor=5000)], "order O1 is confirmed, and the provider has 5000 instead of 11000"),
        ([charge(refunded_minor=11000)], "order O1 is confirmed, and the provider has 0 instead of 11000"),
        ([charge(minor=5000), charge(minor=6000, id="ch_2")], "order O1 is confirmed, and was charged 2 times"),
        ([charge(), charge("O5", minor=700)], "the provider has 700 for O5, which is no order"),
    ],
)
async def test_every_order_is_charged_exactly_once(sale: Sale, charges: list[dict[str, Any]], sentence: str) -> None:
    sale.charges = charges
    assert await sale.violations() == [sentence]


@pytest.mark.parametrize(
    ("charges", "clean"),
    [([], True), ([charge()], False), ([charge(refunded_minor=11000)], True), ([charge(refunded_minor=6000)], False)],
)
async def test_an_order_that_is_not_sold_costs_nothing(sale: Sale, charges: list[dict[str, Any]], clean: bool) -> None:
    unconfirmed(sale)
    await sale.change(f"{ORDER} status = 'expired'")
    await sale.change(REFUNDED_ENTRY.format(11000) if charges else NO_ENTRY)
    sale.charges = charges
    assert (await sale.violations() == []) is clean


async def test_a_second_charge_that_was_given_back_is_none(sale: Sale) -> None:
    sale.charges = [charge(), charge(refunded_minor=11000, id="ch_2")]
    assert await sale.violations() == [
        "order O1 is confirmed, the provider has 11000 taken, 11000 refunded, 0 withdrawn of charge ch_2, "
        "the ledger 0 taken, 0 refunded, 0 withdrawn"
    ]
    for kind, provider_ref in (("charge", "ch_2"), ("refund", "re_2")):
        await sale.change(ENTRY.format(kind, 11000, provider_ref, "ch_2"))
    assert await sale.violations() == []


async def test_a_part_that_was_refunded_is_missing_at_the_provider(sale: Sale) -> None:
    await sale.change(f"{ORDER} status = 'partially_refunded'")
    await sale.change(REFUND.format("ann"))
    await sale.change(REFUNDED_ENTRY.format(3000))
    sale.charges = [charge(refunded_minor=3000)]
    assert await sale.violations() == []
    sale.charges = [charge(refunded_minor=2000)]
    assert await sale.violations() == ["order O1 is partially_refunded, and the provider has 9000 instead of 8000"]


async def test_a_refund_at_the_provider_is_no_loss_and_one_that_went_unnoticed_is(sale: Sale) -> None:
    sale.charges = [charge(refunded_minor=11000)]
    assert await sale.violations() == ["order O1 is confirmed, and the provider has 0 instead of 11000"]
    await sale.change(f"{ORDER} status = 'refunded'")
    await sale.change("UPDATE inventory.reservation SET status = 'returned' WHERE reservation_id = 'R1'")
    await sale.change(REFUND.format("sandbox"))
    await sale.change(ENTRY.format("refund", 11000, "outside:ch_1:0", "ch_1"))
    assert await sale.violations() == []


async def test_money_that_a_dispute_took_is_missing_at_the_provider_and_in_the_ledger(sale: Sale) -> None:
    sale.charges = [charge() | {"dispute": {"status": "lost", "withdrawn_minor": 11000}}]
    assert await sale.violations() == ["order O1 is confirmed, and the provider has 0 instead of 11000"]
    await sale.change(f"{ORDER} dispute = 'lost'")
    await sale.change(ENTRY.format("dispute", 11000, "dp_1:0", "ch_1"))
    assert await sale.violations() == []
    sale.charges = [charge() | {"dispute": {"status": "won", "withdrawn_minor": 0}}]
    assert await sale.violations() == ["order O1 is confirmed, and the provider has 11000 instead of 0"]
    await sale.change(ENTRY.format("reinstatement", 11000, "dp_1:1", "ch_1"))
    assert await sale.violations() == []


@pytest.mark.parametrize("status", ["pending", "review", "late_paid"])
async def test_money_of_an_undecided_order_may_move_yet(sale: Sale, status: str) -> None:
    unconfirmed(sale)
    await sale.change(f"{ORDER} status = '{status}'")
    assert await sale.violations() == []
    sale.charges = []
    assert await sale.violations() == []


async def test_a_free_order_needs_no_charge(sale: Sale) -> None:
    await sale.change(NO_ENTRY)
    await sale.change(f"{ORDER} total_minor = 0, charge_ref = NULL")
    await sale.change("UPDATE inventory.reservation SET total_minor = 0")
    amounts = ("total_minor", "total_amount_minor_units", "charged_minor")
    sale.lines = [{name: 0 if name in amounts else value for name, value in each.items()} for each in sale.lines]
    sale.charges = []
    assert await sale.violations() == []
