"""What operators see and do to help buyers: search, timelines, the log of commands and their replays, decisions about
orders in review; and the refund of a whole event: each order once, at a rate, in any process.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from features.support.orders.endpoints import request_next_batch
from shared.concurrency.background import Quiet
from shared.payment_provider import ProviderRejected
from tests.orders.checkout.test_names import bought as bought_with_names
from tests.orders.inventory import EVENT
from tests.orders.priced_event import open_sale
from tests.orders.shop import OPERATOR, VIEWER, Shop
from tests.support.running.suite import problem
from tests.support.wait import wait_until

COMMANDS = "/admin/orders/commands"
UNKNOWN = "00000000-0000-0000-0000-000000000000"


async def search(shop: Shop, **params: Any) -> list[str]:
    return [order["reference"] for order in (await shop.admin_get(**params))["orders"]]


async def timeline(shop: Shop, reference: str) -> list[dict[str, Any]]:
    return list((await shop.admin_get(f"/{reference}/timeline"))["timeline"])


async def test_orders_are_found_by_reference_email_name_seat_charge_event_status_and_time(shop: Shop) -> None:
    mine = await shop.bought("A-1-1", name="Ada Lovelace", email="ada@example.org")
    other = await shop.bought("A-1-2", name="100% Bob_", email="bob@example.org")
    charge = (await shop.charges(mine))[0]["id"]
    for q in (mine, "ADA@example.org", "lovelace", "A-1-1", charge):
        assert await search(shop, q=q) == [mine], q
    assert await search(shop, q="0% b") == [other]
    assert await search(shop, q="_%") == await search(shop, q="' OR 1=1 --") == await search(shop, q="A-1-") == []
    assert await search(shop, event_id=EVENT, status="confirmed") == [other, mine]
    assert await search(shop, status="review") == await search(shop, event_id="another") == []
    now = datetime.now(UTC)
    assert await search(shop, since=(now - timedelta(hours=1)).isoformat()) == [other, mine]
    assert await search(shop, until=(now - timedelta(hours=1)).isoformat()) == []


async def test_orders_are_found_by_a_name_on_a_ticket(shop: Shop) -> None:
    sale = await open_sale(shop, sales={"names": "ticket"})
    reference = await bought_with_names(sale, ["Grace Hopper", "Mary 100%", "Katherine"])
    assert await search(shop, q="HOPPER") == await search(shop, q="0%") == [reference]
    assert await search(shop, q="hopper", event_id="another") == await search(shop, q="_%") == []


async def test_the_search_returns_bounded_pages_with_a_cursor(shop: Shop) -> None:
    bought_orders = [await shop.bought(f"A-1-{n}") for n in range(1, 4)]
    first = await shop.admin_get(page_size=2, event_id=EVENT)
    assert [order["reference"] for order in first["orders"]] == bought_orders[:0:-1]
    assert first["next"] == f"/admin/orders?event_id={EVENT}&before={bought_orders[1]}&page_size=2"
    oldest = await shop.admin_get(q=bought_orders[0])
    second = (await shop.http.get(first["next"], headers=OPERATOR)).json()
    assert second == {"orders": oldest["orders"][:1], "next": None}
    assert (await shop.admin_get(page_size=3))["next"] is None, "no empty page is offered"
    for bad in ({"page_size": 201}, {"q": "x"}, {"q": "a\x00b"}, {"before": "'"}, {"since": "2027-01-01T00:00:00"}):
        assert (await shop.http.get("/admin/orders", params=bad, headers=OPERATOR)).status_code == 422, bad


async def test_a_timeline_lists_everything_about_an_order_by_time(shop: Shop) -> None:
    reference = await shop.bought()
    await wait_until(lambda: received_webhook(shop, reference))
    await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    rows = await timeline(shop, reference)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert {row["kind"] for row in rows} == {"order", "command", "attempt", "money", "webhook", "desk", "refund"}
    assert [row["kind"] for row in rows if row["kind"] in ("desk", "refund")] == ["desk", "refund"]
    assert [row["amount_minor"] for row in rows if row["kind"] == "money"] == [6800, 800]
    assert (await shop.http.get("/admin/orders/ZZZZZZZZZZZZ/timeline", headers=OPERATOR)).status_code == 404
    assert (await shop.http.get(f"/admin/orders/{reference}/timeline")).status_code == 401


async def received_webhook(shop: Shop, reference: str) -> bool:
    return any(row["kind"] == "webhook" for row in await timeline(shop, reference))


async def test_only_operators_read_the_names_and_addresses_of_buyers(shop: Shop) -> None:
    reference = await shop.order()
    for path in ("", f"/export.csv?event_id={EVENT}", f"/{reference}/timeline"):
        assert (await shop.http.get(f"/admin/orders{path}", headers=VIEWER)).status_code == 403, path
        assert (await shop.http.get(f"/admin/orders{path}", headers=OPERATOR)).status_code == 200, path


async def commands(shop, **params):
    answer = await shop.http.get(COMMANDS, params=params, headers=VIEWER)
    assert answer.status_code == 200, answer.text
    return answer.json()["commands"]


async def checkouts(shop, **params):
    return [each for each in await commands(shop, **params) if each["command_type"] == "checkout"]


async def causes(shop, reference):
    """Type, status and cause of each command."""
    found = await commands(shop, reference=reference)
    return {(each["command_type"], each["status"], each["caused_by"]) for each in found}


async def replay(shop, command, **headers):
    path = f"{COMMANDS}/{command['command_id']}/rerun"
    return await shop.http.post(path, json={"reason": "the fan calls"}, headers=headers or OPERATOR)


async def test_every_step_of_a_purchase_is_in_the_command_log(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    bought = {("reserve", "completed", "fan"), ("checkout", "completed", "fan"), ("confirm", "completed", "payment")}
    assert await causes(shop, reference) == bought
    await shop.admin_post(f"{reference}/refund")
    await shop.wait_until_settled(reference, "refunded")
    assert await causes(shop, reference) == bought | {("refund", "completed", "ops")}
    assert all(each["attempts"] == 1 and each["processed_at"] for each in await commands(shop, reference=reference))


async def test_the_command_log_names_the_cause_of_an_ending_and_a_replay_changes_nothing(shop):
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    [checkout] = await checkouts(shop, reference=reference)
    assert (checkout["status"], checkout["error_message"]) == ("failed", (await shop.row(reference)).attempt.reason)
    await shop.pay_again(reference, method="redirect", return_url="http://shop/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await shop.expire(reference)
    await shop.wait_until_settled(reference, "expired")
    assert ("cancel", "completed", "deadline") in await causes(shop, reference)
    assert [each["status"] for each in await checkouts(shop, reference=reference)] == ["failed"] * 2
    assert (await replay(shop, checkout)).status_code == 202

    async def completed():
        return ("checkout", "completed", "operator:ops") in await causes(shop, reference)

    await wait_until(completed)
    assert await shop.status(reference) == "expired"


async def test_commands_are_listed_by_event_order_and_status_in_pages(shop):
    mine, other = await shop.order(), await shop.order(method="decline")
    await shop.wait_until_settled(mine, "confirmed")
    await wait_until(lambda: shop.attempt_is(other, "failed"))
    assert {each["reference"] for each in await commands(shop, status="failed")} == {other}
    assert {each["reference"] for each in await commands(shop, event_id=EVENT)} == {mine, other}
    assert await commands(shop, event_id="another") == []
    address, listed = f"{COMMANDS}?page_size=2", []
    while address:
        page = (await shop.http.get(address, headers=VIEWER)).json()
        listed += [each["command_id"] for each in page["commands"]]
        address = page["next"]
    assert listed == [each["command_id"] for each in await commands(shop)]
    for wrong in ({"page_size": 1000}, {"status": "odd"}, {"reference": "x"}, {"before": "1"}):
        assert (await shop.http.get(COMMANDS, params=wrong, headers=VIEWER)).status_code == 422


async def test_a_failed_try_is_counted_with_its_error_and_a_replay_runs_before_the_next(processes, monkeypatch):
    shop = await processes.open(retry_first_s=60.0, retry_max_s=600.0)
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reference = await shop.order()

    async def failed_try():
        return [each for each in await checkouts(shop, status="processing") if each["error_message"]]

    await wait_until(failed_try)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    [checkout] = await failed_try()
    assert checkout["attempts"] == 1
    with monkeypatch.context() as patch:
        patch.setattr(shop.state.worker, "_workers_max", 0)  # the first replay is not done before the second is asked
        answers = [await replay(shop, checkout) for _ in range(2)]
    shop.state.worker.begin_ready()
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len({answer.json()["command_id"] for answer in answers}) == 1, "the second joins the first replay"
    await shop.wait_until_settled(reference, "confirmed", timeout_s=30)
    runs = [each for each in await commands(shop, reference=reference) if each["caused_by"] == "operator:ops"]
    assert [(run["status"], run["payload"]["rerun_of"]) for run in runs] == [("completed", checkout["command_id"])]
    tries = {each["command_id"]: each["attempts"] for each in await checkouts(shop, status="completed")}
    assert tries[checkout["command_id"]] == 2
    subject = {"subject": f"order:{reference}"}
    [line] = (await shop.http.get("/admin/orders/changes", params=subject, headers=VIEWER)).json()["changes"]
    assert (line["actor"], line["action"], line["reason"]) == ("ops", "rerun", "the fan calls")
    assert line["before"]["command_id"] == checkout["command_id"]


async def test_a_rejected_refund_goes_to_review_and_cannot_be_replayed(shop, monkeypatch):
    provider, rejections = shop.state.providers["sandbox"], ["charge_disputed"]
    refund = provider.refund

    async def reject_once(*args, **options):
        if rejections:
            raise ProviderRejected(rejections.pop())
        return await refund(*args, **options)

    monkeypatch.setattr(provider, "refund", reject_once)
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    await shop.admin_post(f"{reference}/refund")
    await wait_until(lambda: commands(shop, reference=reference, status="failed"))
    [rejected] = await commands(shop, reference=reference, status="failed")
    assert rejected["error_message"] == "charge_disputed"
    assert (await replay(shop, rejected)).status_code == 409
    assert (await shop.admin_post(f"{reference}/resolve", decision="refund")).is_success
    await shop.wait_until_settled(reference, "refunded")
    assert await shop.violated_invariants() == {}


async def test_a_replay_without_effect_is_refused(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    before = await commands(shop, reference=reference)
    [checkout] = await checkouts(shop, reference=reference)
    answer = await replay(shop, checkout)
    assert problem(answer) == (409, "not-replayable")
    place = [command.type for command in (await shop.row(reference)).journal].index("checkout")
    await shop.change_parts(reference, "journal", lambda journal: journal[place].update(status="failed", type="refund"))
    assert (await replay(shop, checkout)).status_code == 409, "no refund was rejected"
    await shop.change_parts(reference, "journal", lambda journal: journal[place].update(type="cancel"))
    assert (await replay(shop, checkout)).json()["order_status"] == "confirmed"
    answer = await replay(shop, {"command_id": UNKNOWN})
    assert problem(answer) == (404, "unknown-command")
    assert (await replay(shop, {"command_id": "x"})).status_code == 422
    assert (await replay(shop, checkout, **VIEWER)).status_code == 403
    path = f"{COMMANDS}/{checkout['command_id']}/rerun"
    assert (await shop.http.post(path, json={}, headers=OPERATOR)).status_code == 422, "without a reason"
    assert len(await commands(shop, reference=reference)) == len(before)


async def pending_order(shop: Shop) -> tuple[str, str]:
    """An order whose fan is on the hosted page, and its reservation."""
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id, method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    return reference, reservation_id


async def order_charged_wrongly(shop: Shop, *, amount_minor: int = 100) -> tuple[str, str]:
    """An order whose provider charged another amount, and its reservation."""
    reference, reservation_id = await pending_order(shop)
    await shop.charge_at_sandbox(reference, amount_minor=amount_minor, key=f"stray-{reference}")
    assert (await shop.admin_post(f"{reference}/retry")).status_code == 202
    return reference, reservation_id


async def test_an_operator_refunds_a_charge_of_a_wrong_amount(shop: Shop) -> None:
    reference, reservation_id = await order_charged_wrongly(shop)
    await shop.wait_for_status(reference, "review")
    (order,) = (await shop.admin_get(status="review"))["orders"]
    assert (order["end_reason"], order["may_be_resolved_by"]) == ("mismatch", ["refund"])
    for decision in ("confirm", "expire"):
        refused = await shop.admin_post(f"{reference}/resolve", decision=decision)
        assert problem(refused) == (409, "decision-not-allowed")
    answers = await asyncio.gather(*(shop.admin_post(f"{reference}/resolve", decision="refund") for _ in range(5)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 4}
    await shop.wait_for_status(reference, "refunded")
    await wait_until(lambda: shop.inventory.has_status(reservation_id, "cancelled"))
    assert await shop.net_minor(reference) == 0
    assert [e[0] for e in await shop.money_entries()] == ["charge", "refund"]
    assert problem(await shop.admin_post(f"{reference}/resolve", decision="refund")) == (409, "decision-not-allowed")
    assert await shop.violated_invariants() == {}


async def test_an_operator_expires_an_unknown_payment_and_later_money_is_refunded(shop: Shop) -> None:
    reference, reservation_id = await pending_order(shop)
    await shop.wait_until_idle()
    await shop.run(
        "UPDATE orders.\"order\" SET status = 'review', end_reason = 'unknown' WHERE reference = :reference",
        reference=reference,
    )
    assert (await shop.admin_post(f"{reference}/resolve", decision="expire")).status_code == 202
    await shop.wait_for_status(reference, "expired")
    await wait_until(lambda: shop.inventory.has_status(reservation_id, "cancelled"))
    charge = (await shop.charges(reference))[0]
    await shop.sandbox.post(f"/pay/{charge['id']}", data={"choice": "pay"})
    await shop.admin_post(f"{reference}/retry")
    await shop.wait_for_status(reference, "refunded")
    assert await shop.net_minor(reference) == 0
    assert "reacquire" not in shop.inventory.steps
    assert await shop.violated_invariants() == {}


async def test_an_operator_confirms_a_matching_charge_by_reacquiring_the_stock(shop: Shop) -> None:
    reference, reservation_id = await order_charged_wrongly(shop, amount_minor=6801)
    await shop.wait_for_status(reference, "review")
    await shop.charge_at_sandbox(reference, amount_minor=6800, key="exact")
    await shop.admin_post(f"{reference}/retry")
    await wait_until(lambda: has_charges(shop, reference, 2))
    await shop.inventory.expire(reservation_id)
    other = await shop.inventory.sell_to_another(reservation_id)
    assert (await shop.admin_post(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.wait_for_status(reference, "review")
    assert (await shop.row(reference)).end_reason == "taken", "somebody else has the stock"
    await shop.inventory.return_all(other)
    assert (await shop.admin_post(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.wait_for_status(reference, "confirmed")
    await wait_until(lambda: net_is(shop, reference, 6800))
    assert await shop.inventory.status(reservation_id) == "confirmed"
    assert await shop.violated_invariants() == {}


async def has_charges(shop: Shop, reference: str, n: int) -> bool:
    return len((await shop.row(reference)).charges) == n


async def net_is(shop: Shop, reference: str, minor: int) -> bool:
    return await shop.net_minor(reference) == minor


REFUND = f"events/{EVENT}/refund"


async def sold(shop: Shop, n: int) -> list[str]:
    references = await asyncio.gather(*(shop.order() for _ in range(n)))
    for reference in references:
        await shop.wait_for_status(reference, "confirmed")
    return list(references)


async def progress(shop: Shop) -> dict[str, Any]:
    return await shop.admin_get(f"/{REFUND}")


async def is_done(shop: Shop) -> bool:
    return bool((await progress(shop))["status"] == "done")


async def requested_refunds(shop: Shop) -> int:
    return int(await shop.scalar("SELECT count(*) FROM orders.refund"))


async def pass_an_hour(shop: Shop) -> None:
    """Without any refund."""
    await shop.run("UPDATE orders.event_refund SET paced_until = now() - interval '1 hour'")


@pytest.mark.usefixtures("loops")
async def test_an_event_refund_refunds_every_order_once_and_cancels_unpaid_ones(shop: Shop) -> None:
    references = await sold(shop, 6)
    unpaid = await shop.order(method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(unpaid, "requires_action"))
    assert (await shop.admin_post(f"{references[0]}/refund", amount_minor=100, key="k")).status_code == 202
    requests = (shop.admin_post(REFUND, rate_per_s=200, return_to_sale=True) for _ in range(3))
    answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} == {202}
    await wait_until(lambda: is_done(shop))
    for reference in references:
        await shop.wait_for_status(reference, "refunded")
    await shop.wait_for_status(unpaid, "cancelled")
    job = await progress(shop)
    assert (job["asked"], job["cancelled"]) == (6, 1)
    assert job["refunds"] == {"succeeded": {"count": 7, "amount_minor": 6 * 6800}}
    held = [(await shop.view(reference))["reservation_id"] for reference in references]
    assert {await shop.inventory.status(reservation_id) for reservation_id in held} == {"returned"}
    sums = [sum(e[2] for e in await shop.money_entries() if e[0] == kind) for kind in ("charge", "refund")]
    assert sums == [40800, 40800]
    assert await shop.violated_invariants() == {}


@pytest.mark.usefixtures("loops")
async def test_an_event_refund_keeps_its_rate_and_resumes_in_another_process(processes: Any) -> None:
    """Ten loops share a rate of one order in two seconds. Then the first process ends and another one resumes."""
    async with AsyncExitStack() as first:
        shop = await processes.open(stack=first)
        await sold(shop, 8)
        store = shop.state.store
        assert (await shop.admin_post(REFUND, rate_per_s=0.5)).status_code == 202
        await pass_an_hour(shop)
        await asyncio.gather(*(request_next_batch(store) for _ in range(10)))
        assert await requested_refunds(shop) <= 2, "the hour is not made up for"
        assert (await shop.admin_post(f"{REFUND}/pause")).json()["status"] == "paused"
        paused = await requested_refunds(shop)
        await pass_an_hour(shop)
        assert await request_next_batch(store) == Quiet()
    other = await processes.open()
    assert await requested_refunds(other) == paused < 8
    assert (await other.admin_post(f"{REFUND}/resume", rate_per_s=200)).json()["rate_per_s"] == 200
    await wait_until(lambda: is_done(other))
    assert await requested_refunds(other) == 8
    for verb in ("pause", "resume"):
        assert (await other.admin_post(f"{REFUND}/{verb}")).json()["type"] == "/problems/event-refund-finished"


async def test_an_event_refund_needs_valid_values_and_must_exist_to_be_paused(shop: Shop) -> None:
    assert (await shop.admin_post(f"{REFUND}/pause")).json()["type"] == "/problems/no-event-refund"
    for bad in ({"rate_per_s": 0}, {"rate_per_s": 5e-324}, {"rate_per_s": 201}, {"rate_per_s": "nan"}, {"reason": ""}):
        assert (await shop.admin_post(REFUND, **bad)).status_code == 422
    assert await requested_refunds(shop) == 0
