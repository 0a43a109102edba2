"""Money that moved at the provider itself: refunds made in its dashboard, and disputes. Its books are the truth."""

import asyncio
import uuid
from typing import Any

import pytest

from tests.orders.inventory import EVENT
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.shop import VIEWER
from tests.support.running.suite import problem
from tests.support.spreadsheets import csv_rows

TOTAL_MINOR = 6800


async def bought(manual: ManualShop) -> tuple[str, str]:
    """A confirmed order with its tickets, and its charge."""
    reference = await manual.order()
    await settle(manual)
    [charge] = await manual.charges(reference)
    assert (await manual.view(reference))["status"] == "confirmed"
    return reference, charge["id"]


async def settle(manual: ManualShop) -> None:
    await manual.deliver_all()
    await manual.work()
    await manual.deliver_all()
    await manual.work()


async def refund_at_provider(manual: ManualShop, charge_id: str, amount_minor: int) -> None:
    path, key = f"/charges/{charge_id}/refunds", uuid.uuid4().hex
    answer = await manual.sandbox.post(path, json={"amount_minor": amount_minor}, headers={"idempotency-key": key})
    assert answer.status_code == 201, answer.text


async def dispute(manual: ManualShop, charge_id: str, status: str, **more: Any) -> None:
    answer = await manual.sandbox.post(f"/charges/{charge_id}/dispute", json={"status": status, **more})
    assert answer.status_code == 200, answer.text


async def lose_webhooks_and_compare(manual: ManualShop) -> None:
    """The webhook is lost; the comparison with the provider comes."""
    manual.outgoing_webhooks.webhooks.clear()
    await manual.travel(3700)
    await manual.compare()
    await manual.work()


async def admin(manual: ManualShop, reference: str) -> dict[str, Any]:
    return dict((await manual.admin_get(f"/{reference}/timeline"))["order"])


async def void_tickets(manual: ManualShop, reference: str) -> tuple[int, int]:
    """How many tickets of the order are void, of how many."""
    counted = "SELECT count(void_at), count(*) FROM orders.ticket WHERE reference = :reference"
    row = (await manual.query(counted, reference=reference))[0]
    return row[0], row[1]


async def entries(manual: ManualShop) -> list[tuple[str, int]]:
    return [(kind, amount_minor) for kind, _, amount_minor in await manual.money_entries()]


async def settlement(manual: ManualShop, **params: Any) -> dict[str, Any]:
    span = {"from": "2020-01-01", "to": "2020-12-31"} | params
    answer = await manual.http.get("/admin/orders/settlement", params=span, headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("learnt", ["webhook", "comparison"])
async def test_a_charge_refunded_in_the_dashboard_ends_the_order_and_voids_its_tickets(
    manual: ManualShop, learnt: str
) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, TOTAL_MINOR)
    await (settle(manual) if learnt == "webhook" else lose_webhooks_and_compare(manual))
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"], order["refunding_minor"]) == ("refunded", TOTAL_MINOR, 0)
    void, tickets = await void_tickets(manual, reference)
    assert void == tickets > 0
    reservation_id = (await manual.view(reference))["reservation_id"]
    assert await manual.inventory.status(reservation_id) == "returned", "inventory has the tickets back"
    assert await entries(manual) == [("charge", TOTAL_MINOR), ("refund", TOTAL_MINOR)]
    assert await manual.violated_invariants() == {}
    refused = await manual.admin_post(f"{reference}/refund")
    assert problem(refused) == (409, "refund-refused")
    assert (await admin(manual, reference))["status"] == "refunded"


async def test_repeated_and_reordered_webhooks_enter_an_outside_refund_once(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, 1000)
    await refund_at_provider(manual, charge_id, 500)
    webhooks = list(manual.outgoing_webhooks.webhooks)
    for webhook in (*reversed(webhooks), *webhooks):
        await manual.deliver(webhook)
        await manual.work()
    await settle(manual)
    await lose_webhooks_and_compare(manual)
    assert await entries(manual) == [("charge", TOTAL_MINOR), ("refund", 1500)]
    assert (await admin(manual, reference))["refunded_minor"] == 1500
    assert await manual.violated_invariants() == {}


@pytest.mark.parametrize(("decision", "status", "refunded"), [
    ("confirm", "partially_refunded", 1000), ("refund", "refunded", TOTAL_MINOR),
])  # fmt: skip
async def test_a_partial_refund_outside_waits_for_a_decision_that_leads_out(
    manual: ManualShop, decision: str, status: str, refunded: int
) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, 1000)
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["end_reason"]) == ("review", "refunded-outside")
    assert order["may_be_resolved_by"] == ["confirm", "refund"]
    assert await void_tickets(manual, reference) == (0, 1), "the tickets stay good until somebody decides"
    assert (await manual.admin_post(f"{reference}/resolve", decision=decision)).status_code == 202
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"]) == (status, refunded)
    assert await manual.net_minor(reference) == TOTAL_MINOR - refunded
    assert (await void_tickets(manual, reference))[0] == (1 if status == "refunded" else 0)
    assert await manual.violated_invariants() == {}


@pytest.mark.parametrize("outside_minor", [TOTAL_MINOR, 1800])
async def test_a_refund_here_after_an_unknown_one_outside_refunds_what_is_left(
    manual: ManualShop, outside_minor: int
) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, outside_minor)
    manual.outgoing_webhooks.webhooks.clear()
    assert (await manual.admin_post(f"{reference}/refund", return_to_sale=True)).status_code == 202
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"]) == ("refunded", TOTAL_MINOR)
    assert await manual.net_minor(reference) == 0
    assert sum(amount for kind, amount in await entries(manual) if kind == "refund") == TOTAL_MINOR
    assert await void_tickets(manual, reference) == (1, 1)
    assert await manual.violated_invariants() == {}
    commands = (await manual.admin_get("/commands", reference=reference, command_type="refund"))["commands"]
    assert {command["status"] for command in commands} == {"completed"}


async def test_an_amount_refunded_here_after_a_full_refund_outside_moves_nothing(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, TOTAL_MINOR)
    manual.outgoing_webhooks.webhooks.clear()
    assert (await manual.admin_post(f"{reference}/refund", key="some", amount_minor=500)).status_code == 202
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"], order["refunding_minor"]) == ("refunded", TOTAL_MINOR, 0)
    assert await void_tickets(manual, reference) == (1, 1)
    assert await manual.violated_invariants() == {}


@pytest.mark.parametrize("learnt", ["webhook", "comparison"])
async def test_a_dispute_goes_to_review_and_a_won_one_leaves_it(manual: ManualShop, learnt: str) -> None:
    learn = settle if learnt == "webhook" else lose_webhooks_and_compare
    reference, charge_id = await bought(manual)
    await dispute(manual, charge_id, "open")
    await learn(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["end_reason"], order["dispute"]) == ("review", "disputed", "open")
    assert (order["disputed_minor"], order["may_be_resolved_by"]) == (TOTAL_MINOR, ["confirm", "refund"])
    await dispute(manual, charge_id, "won")
    if learnt == "comparison":
        assert (await manual.admin_post(f"{reference}/retry")).status_code == 202
        manual.outgoing_webhooks.webhooks.clear()
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["end_reason"], order["dispute"]) == ("confirmed", None, "won")
    assert "disputed_minor" not in order
    moved = [("charge", TOTAL_MINOR), ("dispute", TOTAL_MINOR), ("reinstatement", TOTAL_MINOR)]
    assert await entries(manual) == moved
    assert await void_tickets(manual, reference) == (0, 1)
    assert await manual.violated_invariants() == {}


async def test_tickets_of_a_dispute_are_kept_and_the_lost_one_is_decided_again(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await dispute(manual, charge_id, "open")
    await settle(manual)
    await manual.admin_post(f"{reference}/resolve", decision="confirm")
    await settle(manual)
    assert (await admin(manual, reference))["status"] == "confirmed"
    await dispute(manual, charge_id, "lost")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["end_reason"], order["dispute"]) == ("review", "dispute-lost", "lost")
    await manual.admin_post(f"{reference}/resolve", decision="confirm")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["disputed_minor"]) == ("confirmed", TOTAL_MINOR), "the seller bears the loss"
    assert await void_tickets(manual, reference) == (0, 1)
    assert await manual.violated_invariants() == {}
    assert (await manual.admin_post(f"{reference}/refund")).status_code == 202, "the tickets can still be taken back"
    await settle(manual)
    assert (await admin(manual, reference))["status"] == "refunded"
    assert await void_tickets(manual, reference) == (1, 1)
    assert await entries(manual) == [("charge", TOTAL_MINOR), ("dispute", TOTAL_MINOR)]
    assert await manual.violated_invariants() == {}


@pytest.mark.parametrize(
    ("decision", "status", "net"), [("confirm", "confirmed", TOTAL_MINOR), ("refund", "refunded", 0)]
)
async def test_money_of_a_dispute_that_comes_back_after_the_tickets_were_void_is_decided(
    manual: ManualShop, decision: str, status: str, net: int
) -> None:
    reference, charge_id = await bought(manual)
    await dispute(manual, charge_id, "open")
    await settle(manual)
    await manual.admin_post(f"{reference}/resolve", decision="refund")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"]) == ("refunded", 0), "there is nothing to refund"
    assert await void_tickets(manual, reference) == (1, 1)
    assert await manual.violated_invariants() == {}
    await dispute(manual, charge_id, "won")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["end_reason"]) == ("review", "dispute-won")
    assert order["may_be_resolved_by"] == ["confirm", "refund"]
    await manual.admin_post(f"{reference}/resolve", decision=decision)
    await settle(manual)
    assert (await admin(manual, reference))["status"] == status
    assert await manual.net_minor(reference) == net
    assert await manual.violated_invariants() == {}


async def test_an_inquiry_withdraws_nothing_and_may_be_refunded(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await dispute(manual, charge_id, "open", inquiry=True)
    await settle(manual)
    assert "disputed_minor" not in await admin(manual, reference)
    await manual.admin_post(f"{reference}/resolve", decision="refund")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["refunded_minor"]) == ("refunded", TOTAL_MINOR)
    assert await manual.violated_invariants() == {}


async def test_a_dispute_of_a_refunded_order_is_seen_and_ends_refunded(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await manual.admin_post(f"{reference}/refund")
    await settle(manual)
    await dispute(manual, charge_id, "open")
    await settle(manual)
    order = await admin(manual, reference)
    assert (order["status"], order["may_be_resolved_by"]) == ("review", ["confirm"])
    await manual.admin_post(f"{reference}/resolve", decision="confirm")
    await settle(manual)
    assert (await admin(manual, reference))["status"] == "refunded"
    assert await manual.violated_invariants() == {}


async def test_a_worker_that_dies_after_an_outside_refund_enters_it_once(manual: ManualShop) -> None:
    reference, charge_id = await bought(manual)
    await refund_at_provider(manual, charge_id, TOTAL_MINOR)
    manual.failpoint.next = ("before return_tickets", "dies")
    await settle(manual)
    await manual.travel(60)
    await settle(manual)
    assert (await admin(manual, reference))["status"] == "refunded"
    assert await entries(manual) == [("charge", TOTAL_MINOR), ("refund", TOTAL_MINOR)]
    assert (await manual.row(reference)).returns == ()
    assert await manual.violated_invariants() == {}


async def test_settlement_and_exports_name_refunds_outside_and_disputes(manual: ManualShop) -> None:
    refunded, of_refunded = await bought(manual)
    disputed, of_disputed = await bought(manual)
    await refund_at_provider(manual, of_refunded, 1000)
    await dispute(manual, of_disputed, "open")
    manual.outgoing_webhooks.webhooks.clear()
    [[today]] = await manual.query("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')")
    span = {"from": today, "to": today, "compare": "true"}
    [compared] = [one for one in (await settlement(manual, **span))["compared"] if one["provider"] == "sandbox"]
    assert compared["different"] == []
    moved = {
        one["reference"]: (one["theirs_refunded_minor"], one["theirs_disputed_minor"]) for one in compared["moved"]
    }
    assert moved == {refunded: (1000, 0), disputed: (0, TOTAL_MINOR)}
    await asyncio.gather(*(manual.admin_post(f"{one}/retry") for one in (refunded, disputed)))
    await settle(manual)
    after = await settlement(manual, **span)
    assert [one["moved"] for one in after["compared"] if one["provider"] == "sandbox"] == [[]]
    [total] = after["totals"]
    assert (total["refunded_minor"], total["refunded_outside_minor"]) == (1000, 1000)
    assert (total["disputes"], total["disputed_minor"], total["reinstated_minor"]) == (1, TOTAL_MINOR, 0)
    assert total["net_minor"] == TOTAL_MINOR - 1000
    charges = (await manual.admin_get(f"/events/{EVENT}/charges"))["charges"]
    assert {one["reference"]: (one["refunded_minor"], one["disputed_minor"]) for one in charges} == {
        refunded: (1000, 0), disputed: (0, TOTAL_MINOR),
    }  # fmt: skip
    by_reference = {row["reference"]: row for row in csv_rows(await manual.admin_export())}
    assert by_reference[refunded]["refunded_outside_minor"] == "1000"
    assert (by_reference[disputed]["disputed_minor"], by_reference[disputed]["dispute"]) == (str(TOTAL_MINOR), "open")


async def test_the_fan_gets_a_mail_about_a_refund_that_the_provider_made(postgres_url: str, redis_url: str) -> None:
    async with open_manual_shop(postgres_url, redis_url) as manual:
        manual.state.mail.is_sent = True
        reference, charge_id = await bought(manual)
        await refund_at_provider(manual, charge_id, TOTAL_MINOR)
        await settle(manual)
        mails = await manual.query("SELECT amount_minor FROM orders.mail WHERE kind = 'refunded'")
        assert [row.amount_minor for row in mails] == [TOTAL_MINOR]
        assert (await admin(manual, reference))["status"] == "refunded"
