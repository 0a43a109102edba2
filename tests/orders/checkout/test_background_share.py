"""The background share: a percentage of orders is processed by workers, the others in their requests.

Inventory's requests to orders get the same answers from orders and from its double in the tests of inventory.
Tombstones: a hold is bound to one order, and an order that was never written cannot be written any more.

An order whose provider does not accept the charge: it is retried until the hold ends, and no longer.

Orders are written in batches: few statements, and one that is refused or fails does not affect the others.
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import event, select

from services.orders.checkout import checkout
from services.orders.model.order import OpenOrder, Order
from services.orders.model.update import OrderUpdate
from services.orders.pricing import quote
from services.orders.pricing.quote import EventRules, Prices
from services.orders.store.store import NotWritten, read_many, save, write_tombstone
from services.orders.tables import open_order, order
from services.orders.tuning import DEFAULTS
from services.orders.worker.worker import Worker
from shared.contracts.inventory import PaymentSteps
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.contracts.prices import PriceRules
from shared.rpc import ServiceClient
from shared.web.app import internal
from tests.contracts.test_calls_of_one_process import call_internal, client_of
from tests.inventory.conftest import ORDER_ANSWERS, Orders
from tests.orders.inventory import EVENT
from tests.orders.manual_orders import PAY_TTL_S, ManualShop, no_fault, open_manual_shop
from tests.orders.priced_event import open_sale
from tests.orders.shop import OPERATOR, ROOT, VIEWER, Shop, pass_header, reference_of, succeeded_webhook
from tests.support.neighbours import Call
from tests.support.running.suite import problem
from tests.support.wait import wait_until

SHARE = f"/admin/orders/events/{EVENT}/background-share"


async def set_share(shop, percent):
    body = {"background_percent": percent, "reason": "a drill"}
    answer = await shop.http.patch(SHARE, json=body, headers=OPERATOR)
    assert answer.status_code == 200, answer.text


async def percent_at(shop):
    """The share as this process has it."""
    return (await shop.state.prices.rules(EVENT)).background_percent


def checkouts(path):
    """How many went this path: `request`, `background`, `overflow` or `late`."""
    return REGISTRY.get_sample_value("orders_checkout_seconds_count", {"path": path}) or 0


def counted(name):
    return REGISTRY.get_sample_value(name) or 0


async def test_at_zero_percent_the_request_waits_until_its_order_is_processed(shop):
    await set_share(shop, 0)
    before = checkouts("request")
    paid = await shop.post(shop.body(await shop.inventory.hold()), key="ok")
    declined = await shop.post(shop.body(await shop.inventory.hold(), method="decline"), key="decline")
    assert (paid.json()["status"], declined.json()["status"]) == ("confirmed", "pending")
    assert checkouts("request") - before == 2
    again = await shop.pay_again(declined.json()["reference"])
    assert again.json()["status"] == "confirmed"
    assert await shop.violated_invariants() == {}


async def test_a_request_waits_a_bounded_time_and_orders_beyond_the_slots_go_to_the_background(processes):
    """Past its timeout the request answers `pending`, and the processing continues in its slot."""
    paused, resume = [], asyncio.Event()

    async def pause(name, reference):
        if name == "before the provider":
            paused.append(reference)
            await resume.wait()

    shop = await processes.open(inline_slots_max=1, inline_timeout_s=2.0, failpoint=pause)
    await set_share(shop, 0)
    before = checkouts("overflow")
    with shop.busy_workers():
        first = asyncio.create_task(shop.post(shop.body(await shop.inventory.hold()), key="first"))
        await wait_until(lambda: paused)
        second = await shop.post(shop.body(await shop.inventory.hold()), key="second")
        assert ((await first).json()["status"], second.json()["status"]) == ("pending", "pending")
        assert checkouts("overflow") - before == 1
        resume.set()
        await shop.wait_until_settled((await first).json()["reference"], "confirmed")
        await shop.wait_until_idle()
        third = await shop.post(shop.body(await shop.inventory.hold()), key="third")
        assert third.json()["status"] == "confirmed", "the slot is free again"
        assert await shop.status_is(second.json()["reference"], "pending"), "it was left to the workers"
    await shop.wait_until_settled(second.json()["reference"], "confirmed")


async def test_an_order_whose_request_died_is_processed_by_a_worker(processes, monkeypatch):
    """A worker has it since it was written."""

    async def die(self, reference, **_):
        raise RuntimeError

    shop = await processes.open()
    await set_share(shop, 0)
    monkeypatch.setattr(Worker, "settle", die)
    assert (await shop.post(shop.body(await shop.inventory.hold()))).status_code == 500
    [listed] = (await shop.http.get("/orders", headers=pass_header())).json()["orders"]
    await shop.wait_until_settled(listed["reference"], "confirmed", timeout_s=6)


@pytest.mark.usefixtures("loops")
async def test_every_process_follows_a_new_background_share(processes, monkeypatch):
    """It is set by the admin API or by the event file."""
    monkeypatch.setattr(quote, "RULES_TTL_S", 0.05)
    here, there = await processes.open(), await processes.open()
    await set_share(here, 0)
    assert await percent_at(here) == 0, "the process that changed it follows at once"

    async def follows(percent: float) -> bool:
        return await percent_at(there) == percent

    await wait_until(lambda: follows(0))
    await _apply(here, {})
    assert await percent_at(here) == 0, "a file without a share leaves it unchanged"
    assert await _apply(here, {"checkout": {"background_percent": 40}}) is True
    assert await _apply(here, {"checkout": {"background_percent": 40}}) is False
    await wait_until(lambda: follows(40))
    shown = (await here.http.get(SHARE, headers=VIEWER)).json()
    assert shown == {"event_id": EVENT, "background_percent": 40}
    lines = await here.http.get("/admin/orders/changes", params={"subject": f"event:{EVENT}"}, headers=VIEWER)
    assert [(line["action"], line["reason"], line["before"]) for line in lines.json()["changes"]] == [
        ("apply", None, {"background_percent": 0}),
        ("background", "a drill", None),
    ]


async def test_a_background_share_is_a_percentage_and_needs_a_role_and_a_reason(shop):
    for wrong in ({"background_percent": 101}, {"background_percent": -1}, {"reason": ""}, {"other": 1}):
        body = {"background_percent": 50, "reason": "x"} | wrong
        assert (await shop.http.patch(SHARE, json=body, headers=OPERATOR)).status_code == 422
    body = {"background_percent": 50, "reason": "x"}
    assert (await shop.http.patch(SHARE, json=body, headers=VIEWER)).status_code == 403
    assert await percent_at(shop) == 100, "the default is the background"


async def test_a_higher_background_share_only_adds_fans():
    """A fan stays in the background when the share grows."""
    no_db: Any = None
    prices, fans = Prices(no_db), [f"fan-{number}" for number in range(2000)]
    before: set[str] = set()
    for percent in (0, 10, 50, 100):
        prices._cache[EVENT] = EventRules(PriceRules(), "", percent)
        chosen = {fan for fan in fans if await prices.in_background(EVENT, fan)}
        assert before <= chosen
        assert abs(len(chosen) / 20 - percent) < 4
        before = chosen


async def test_an_order_that_no_worker_begins_in_time_is_processed_in_its_request(processes):
    """And is counted, until workers begin orders in time again."""
    shop = await processes.open(begin_within_s=0.1)
    before, inline = checkouts("late"), counted("orders_settled_in_request_total")
    with shop.busy_workers():
        late = await shop.post(shop.body(await shop.inventory.hold()), key="late")
    assert (late.status_code, late.json()["status"]) == (202, "confirmed")
    assert (checkouts("late") - before, counted("orders_settled_in_request_total") - inline) == (1, 1)
    assert counted("orders_workers_in_time") == 0
    in_time = await shop.order()
    assert counted("orders_workers_in_time") == 1
    assert counted("orders_settled_in_request_total") - inline == 1
    await shop.wait_until_settled(in_time, "confirmed")
    assert await shop.violated_invariants() == {}


async def test_a_second_payment_that_no_worker_begins_in_time_is_made_in_its_request(processes):
    """Also one whose order was another process' until then."""
    other = await processes.open()
    shop = await processes.open(begin_within_s=0.1)
    inline = counted("orders_settled_in_request_total")
    for ordered_at in (shop, other):
        reference = await ordered_at.order(method="decline")
        await wait_until(lambda: shop.attempt_is(reference, "failed"))  # noqa: B023
        await ordered_at.wait_until_idle()
        with shop.busy_workers(), other.busy_workers():
            again = await shop.pay_again(reference)
        assert (again.status_code, again.json()["status"]) == (202, "confirmed")
        assert counted("orders_workers_in_time") == 0
    assert counted("orders_settled_in_request_total") - inline == 2
    assert await shop.violated_invariants() == {}


async def test_an_order_that_a_worker_begins_a_little_later_waits_for_it(processes):
    shop = await processes.open(begin_within_s=60.0)
    inline = counted("orders_settled_in_request_total")
    with shop.busy_workers():
        posting = asyncio.create_task(shop.post(shop.body(await shop.inventory.hold())))
        await wait_until(lambda: shop.state.worker.waiting)
        assert not posting.done()
    answer = await posting
    await shop.wait_until_settled(answer.json()["reference"], "confirmed")
    assert counted("orders_settled_in_request_total") == inline


async def test_requests_of_orders_that_no_worker_begins_keep_to_the_inline_slots(processes):
    shop = await processes.open(begin_within_s=0.1, inline_slots_max=0)
    before = checkouts("overflow")
    with shop.busy_workers():
        answer = await shop.post(shop.body(await shop.inventory.hold()))
        assert (answer.json()["status"], checkouts("overflow") - before) == ("pending", 1)
    await shop.wait_until_settled(answer.json()["reference"], "confirmed")


async def _apply(shop, parts):
    section = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 6800}
    file = {"event_id": EVENT, "name": "Flash", "venue": "Hall", "currency": "EUR", "sections": [section], **parts}
    file["starts_at"] = "2027-01-01T20:00:00Z"
    answer = await shop.http.put(f"/admin/orders/events/{EVENT}", json=file, headers=ROOT)
    assert answer.status_code == 200, answer.text
    return answer.json()["changed"]


async def order_in_state(shop: Shop, state: str) -> PaymentRef:
    total_minor = 0 if state == "free" else 6800
    reservation_id = await shop.inventory.hold(total_minor=total_minor)
    if state == "unknown":
        return PaymentRef(reservation_id=reservation_id, order_reference="N0B0DY0000")
    method = {"pending": "redirect", "cancelled": "decline"}.get(state, "ok")
    payment = {"return_url": "http://shop/o/back"} if state == "pending" else {}
    reference = await shop.order_of(reservation_id, method=method, total_minor=total_minor, **payment)
    if state == "cancelled":
        await shop.expire(reference)
    await shop.wait_for_status(reference, {"pending": "pending", "cancelled": "expired"}.get(state, "confirmed"))
    return PaymentRef(reservation_id=reservation_id, order_reference=reference)


@pytest.mark.parametrize("state", ORDER_ANSWERS)
async def test_orders_and_its_double_answer_inventory_alike(state: str, shop: Shop) -> None:
    ref, double = await order_in_state(shop, state), Orders()
    double.states[ref.order_reference] = state
    async with client_of(internal(shop.app)) as client:
        refs = [ref.model_dump()]
        payments = await call_internal(client, "/reservations/status", payments=refs)
        refunds = [await call_internal(client, "/orders/refund", refunds=refs, reason="oversell") for _ in range(2)]
    assert payments == (200, (await double.payments([ref])).model_dump())
    assert refunds == [(200, (await double.refund([ref], reason="oversell")).model_dump())] * 2
    if state == "sold":
        await shop.wait_for_status(ref.order_reference, "refunded")


NEVER_WRITTEN = "NEVERMADE000"


async def test_a_hold_of_an_order_that_was_never_written_is_taken_over(shop):
    reservation = await shop.inventory.hold()
    await shop.inventory.begin(reservation, NEVER_WRITTEN)
    reference = await shop.order_of(reservation)
    await shop.wait_until_settled(reference, "confirmed")
    [ended] = shop.inventory.neighbour.received("/reservations/end-payment", PaymentSteps)
    assert [step.order_reference for step in ended.steps] == [NEVER_WRITTEN]
    assert await _status(shop, NEVER_WRITTEN) == "tombstone"


async def test_a_hold_of_an_existing_order_is_not_taken_over(shop):
    reservation = await shop.inventory.hold()
    await shop.order_of(reservation, method="redirect")
    answer = await shop.post(shop.body(reservation), key="another")
    assert problem(answer) == (409, "payment-in-progress")
    assert "end-payment" not in shop.inventory.steps


async def test_an_order_cannot_be_written_after_its_tombstone(shop):
    """The tombstone is written between the order's step at inventory and its own transaction."""
    reservation = await shop.inventory.hold()
    tombstoned = reference_of(shop, reservation, "a-key")

    async def tombstone_first(call: Call) -> None:
        if call.path == "/reservations/begin-payment":
            shop.inventory.neighbour.on_call = None
            assert await write_tombstone(shop.state.db, tombstoned)

    shop.inventory.neighbour.on_call = tombstone_first
    answer = await shop.post(shop.body(reservation))
    assert problem(answer) == (409, "reservation-taken")
    assert await shop.inventory.status(reservation) == "pending_payment"
    reference = await shop.order_of(reservation)
    assert reference != tombstoned
    await shop.wait_until_settled(reference, "confirmed")


async def test_the_payment_of_another_reservation_is_dead_and_that_of_an_unknown_order_absent(shop):
    """Orders in other states are above."""
    reservation = await shop.inventory.hold()
    live = await shop.order_of(reservation, method="redirect")
    payments = {(reservation, live): "live", ("another", live): "dead", ("gone", NEVER_WRITTEN): "absent"}
    async with _orders_client(shop) as orders:
        refs = [PaymentRef(reservation_id=held, order_reference=reference) for held, reference in payments]
        assert (await orders.payments(refs)).payments == list(payments.values())
        frames = (await orders.read([live, NEVER_WRITTEN])).orders
    assert frames[0].reference == live
    assert frames[0].body["status"] == frames[0].status == "pending"
    assert frames[1] is None
    assert await _status(shop, NEVER_WRITTEN) == "tombstone"


async def test_a_payment_status_waits_for_the_statement_that_writes_the_order(processes):
    """While the order is being written, the payment status waits for it and then finds the order."""
    shop = await processes.open(lock_timeout_ms=10_000)
    reservation = await shop.inventory.hold()
    reference = reference_of(shop, reservation, "a-key")
    ref = PaymentRef(reservation_id=reservation, order_reference=reference)
    async with shop.state.db.connect() as other, _orders_client(shop) as orders:
        row = {"reference": reference, "event_id": "e", "join_seq": 1, "owner": "another"}
        await other.execute(open_order.insert().values(row))  # what the statement writes last waits for this
        posting = asyncio.create_task(shop.post(shop.body(reservation)))
        await wait_until(lambda: _waiting_for_a_lock(shop))
        request = asyncio.create_task(orders.payments([ref]))
        await wait_until(lambda: _waiting_for_a_lock(shop, 2))
        assert not request.done()
        await other.rollback()
        assert (await request).payments == ["live"]
    assert (await posting).status_code == 202
    assert await _status(shop, reference) != "tombstone"


async def test_internal_endpoints_need_a_service_signature(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app)), base_url="http://in") as http:
        for path in ("/internal/reservations/status", "/internal/orders/read"):
            assert (await http.post(path, json={})).status_code == 401
            assert (await shop.http.post(path, json={})).status_code == 404


async def _waiting_for_a_lock(shop, n=1):
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return await shop.scalar(waiting) == n


@asynccontextmanager
async def _orders_client(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app))) as http:
        yield OrdersClient(ServiceClient(http, "http://inside", shop.settings.service_keys, name="orders"))


async def _status(shop, reference):
    return await shop.scalar(select(order.c.status).where(order.c.reference == reference))


IN_TIME = """SELECT p.due_at < o.expires_at + interval '0.9 s'
FROM orders."order" o JOIN orders.open_order p USING (reference) WHERE reference = :reference"""
TRIES, LEFT_S, RETRY_MAX_S = 6, 10, 60.0  # more tries than `payment_retries`


@pytest.mark.parametrize(("how", "at_its_end"), [("unreachable", "expired"), ("busy", "expired"), ("error", "pending")])
async def test_a_charge_is_retried_until_the_hold_ends_and_the_order_expires_unless_it_may_be_charged(
    how: str, at_its_end: str, postgres_url: str, redis_url: str
) -> None:
    """By its delay alone the last try would come after the end. A call answered 503 may have charged: the tickets stay
    held until the provider shows that it did not.
    """
    async with open_manual_shop(postgres_url, redis_url, retry_max_s=RETRY_MAX_S) as manual:
        tries = list[str]()

        def fault(call: str, key: str) -> str:
            tries.append(call)
            return how

        manual.connection.fault = fault
        reservation_id = await manual.inventory.hold()
        reference = await manual.order_of(reservation_id)
        await manual.work()
        for pause_s in (*[100] * (TRIES - 1), PAY_TTL_S - 100 * (TRIES - 1) - LEFT_S):
            await manual.travel(pause_s)
            await manual.work()
        assert tries.count("POST charges") > DEFAULTS.payment_retries + 1
        assert await manual.status(reference) == "pending"
        assert await manual.scalar(IN_TIME, reference=reference), "the next try is at the end of the hold"
        await manual.travel(LEFT_S)
        await manual.work()
        assert await manual.status(reference) == at_its_end
        assert (await manual.inventory.status(reservation_id) == "paying") == (at_its_end == "pending")
        manual.connection.fault = no_fault
        await manual.travel(2 * RETRY_MAX_S)
        await manual.work()
        assert await manual.status(reference) == "expired"
        assert await manual.inventory.status(reservation_id) not in ("paying", "confirmed")
        assert await manual.charges() == []


async def test_a_charge_that_keeps_failing_is_retried_three_times_and_cancelled(manual: ManualShop) -> None:
    tries = list[str]()

    def fault(call: str, key: str) -> str | None:
        tries.append(call)
        return "error" if call == "POST charges" else None

    manual.connection.fault = fault
    reservation_id = await manual.inventory.hold()
    reference = await manual.order_of(reservation_id)
    for _ in range(TRIES):
        await manual.work()
        await manual.travel(10)
    order = await manual.view(reference)
    assert (order["status"], order["attempt"]["reason"]) == ("cancelled", "provider-error")
    assert tries.count("POST charges") == DEFAULTS.payment_retries + 1
    assert await manual.inventory.status(reservation_id) not in ("paying", "confirmed")


async def test_an_order_shows_its_progress(manual: ManualShop) -> None:
    first, second = [await manual.order_of(await manual.inventory.hold(), method="redirect") for _ in range(2)]
    assert (await manual.view(first))["progress"] == "paying", "from its birth: a worker has it"
    manual.connection.fault = lambda call, key: "answer lost" if call == "POST charges" else None
    await manual.work()
    order = await manual.view(first)
    assert (order["progress"], order["attempt"]["status"]) == ("paying", "processing"), "never shown as failed"
    manual.connection.fault = no_fault
    await manual.travel(10)
    await manual.work()
    assert (await manual.view(second))["progress"] == "your-turn"
    assert (await manual.cancel(second)).is_success
    assert (await manual.view(second))["progress"] == "cancelling"
    await manual.work()
    assert (await manual.view(second))["progress"] is None
    manual.connection.fault = lambda call, key: "unreachable"
    third = await manual.order()
    await manual.work()
    assert (await manual.view(third))["progress"] == "waiting", "until the provider can be reached"


async def test_an_update_that_fails_does_not_fail_others_of_its_batch(processes):
    """Three orders in one batch: one breaks a constraint, one is another process' by now, one is written."""
    shop = await processes.open(inline_slots_max=0)
    owner = shop.state.store.owner
    with shop.busy_workers():
        references = [await shop.order() for _ in range(3)]
        broken, lost, good = [await shop.row(reference) for reference in references]
        updates = [
            OrderUpdate(broken, OpenOrder(broken.reference, owner, 0)).add_row(
                "money",
                kind="charge",
                provider="sandbox",
                amount_minor=-1,
                currency="EUR",
                charge_ref="c",
                provider_ref="c",
            ),
            OrderUpdate(lost, OpenOrder(lost.reference, "somebody else", 0)).set_order(charge_ref="never"),
            OrderUpdate(good, OpenOrder(good.reference, owner, 0)).set_order(charge_ref="written"),
        ]
        outcomes = await save(shop.state.store.db, updates)
        assert "ck_money_entry_amount" in str(outcomes[0])
        assert isinstance(outcomes[1], NotWritten)
        assert isinstance(outcomes[2], Order)
        orders = await read_many(shop.state.db, references)
        assert [orders[reference].charge_ref for reference in references] == [None, None, "written"]


async def test_an_order_that_is_refused_does_not_fail_others_of_its_batch(shop, monkeypatch):
    """One of the batch has a tombstone: the others are created, and nothing is written anew for it."""
    monkeypatch.setattr(checkout, "by_halves", _never)
    holds = {key: await shop.inventory.hold() for key in ("tombstoned", "one", "two")}
    assert await write_tombstone(shop.state.db, reference_of(shop, holds["tombstoned"], "tombstoned"))
    answers = await asyncio.gather(*(shop.post(shop.body(hold), key=key) for key, hold in holds.items()))
    assert [answer.status_code for answer in answers] == [409, 202, 202]
    assert await shop.inventory.status(holds["tombstoned"]) == "pending_payment"
    for answer in answers[1:]:
        await shop.wait_until_settled(answer.json()["reference"], "confirmed")
    again = await shop.post(shop.body(holds["tombstoned"]), key="tombstoned")
    assert again.json()["type"] == "/problems/reservation-taken"


async def test_duplicates_of_a_batch_answer_for_themselves_in_one_statement(shop, monkeypatch):
    """The same key, reservation or reference again, in the batch or before it: none is written, all others are."""
    monkeypatch.setattr(checkout, "by_halves", _never)
    writer = shop.state.checkout.writer
    drafts, insert = [], writer.insert

    async def keep(draft):
        drafts.append(draft)
        return await insert(draft)

    monkeypatch.setattr(writer, "insert", keep)
    earlier = await shop.order()
    [first] = drafts

    def another(reference, key, reservation_id, of=first):
        written = replace(of.order, reference=reference, reservation_id=reservation_id)
        return of._replace(order=written, key_hash=key)

    new, last = another("NEWORDER0001", b"new", "held-1"), another("NEWORDER0002", b"last", "held-2")
    with shop.busy_workers():
        async with _counted(shop) as sent:
            outcomes = await writer._insert_batch([
                first, new, new, another("NEWORDER0003", b"new", "held-3"), another("NEWORDER0004", b"k", "held-1"),
                another(earlier, b"l", "held-4"), last,
            ])  # fmt: skip
        written = [outcome.reference if isinstance(outcome, Order) else None for outcome in outcomes]
        assert written == [None, new.order.reference, None, None, None, None, last.order.reference]
        assert sent["-- Inserts orders,"] == 1, sent
        assert await shop.scalar('SELECT count(*) FROM orders."order"') == 3
        assert {new.order.reference, last.order.reference} <= set(shop.state.worker._held), (
            "by which they are processed"
        )
        await shop.lose(new.order.reference, last.order.reference)
        await shop.run("DELETE FROM orders.open_order WHERE owner = 'silent'")


async def test_a_refused_promo_code_refuses_its_order_alone(shop, monkeypatch):
    monkeypatch.setattr(checkout, "by_halves", _never)
    sale = await open_sale(shop)
    await sale.put_code("ONCE", percent=10, uses_max=1)
    holds = [await sale.hold() for _ in range(8)]
    codes = [*["ONCE"] * 4, *[None] * 4]
    orders = (sale.order(hold, 9000 if code else 10_000, code) for hold, code in zip(holds, codes, strict=True))
    async with _counted(shop) as sent:
        answers = await asyncio.gather(*orders)
    assert Counter(answer.status_code for answer in answers) == {202: 5, 422: 3}
    assert {answer.json()["reason"] for answer in answers if answer.status_code == 422} == {"used-up"}
    assert sent["-- Inserts orders,"] <= len(answers), sent
    assert await sale.uses("ONCE") == 1
    for hold, answer in zip(holds, answers, strict=True):
        if answer.status_code == 422:
            assert await shop.inventory.status(hold) == "pending_payment", "its hold is as before"
        else:
            await sale.wait_for_status(answer.json()["reference"], "confirmed")


async def test_an_update_that_is_not_written_costs_a_large_batch_few_statements_more(shop):
    """Everybody else in the batch would wait for them."""
    orders = [await shop.post(shop.body(await shop.inventory.hold()), key=f"k{n}") for n in range(40)]
    await shop.wait_until_idle()
    found = await read_many(shop.state.db, [answer.json()["reference"] for answer in orders])
    updates = [OrderUpdate(order, OpenOrder(reference, "nobody", 0)) for reference, order in found.items()]
    async with _counted(shop) as sent:
        outcomes = await save(shop.state.store.db, updates)
    assert ([type(outcome) for outcome in outcomes], sent["-- Writes the"]) == ([NotWritten] * 40, 1)
    async with _counted(shop) as sent:
        outcomes = await save(shop.state.store.db, [*updates, updates[0]])
    assert [type(outcome) for outcome in outcomes] == [NotWritten] * 41
    assert sent["-- Writes the"] < 20, sent


async def test_a_webhook_causes_a_provider_sync_only_if_its_charge_is_unknown(processes):
    shop = await processes.open(provider_sync_interval_s=60.0)
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    [charge] = await shop.charges(reference)
    before = _syncs()
    for number, (charge_ref, syncs) in enumerate(((charge["id"], False), ("ch_unknown", True))):
        await shop.deliver(succeeded_webhook(f"evt_{number}", id=charge_ref, reference=reference))
        await wait_until(lambda: _all_applied(shop))
        if syncs:
            await wait_until(lambda: _syncs() > before)
        await shop.wait_until_idle()
        assert _syncs() - before == int(syncs)


async def test_fifty_concurrent_purchases_need_few_statements_each(shop):
    """From the request to `confirmed`: concurrent orders share most statements."""
    orders = [shop.post(shop.body(await shop.inventory.hold()), key=f"k{n}") for n in range(50)]
    async with _counted(shop) as sent:
        references = [answer.json()["reference"] for answer in await asyncio.gather(*orders)]
        await wait_until(lambda: _all_confirmed(shop, references), interval_s=0.1)
    assert sent.total() < 50 * 2, sent
    assert len({reference for _, reference, _ in await shop.money_entries()}) == 50


async def test_an_order_is_updated_once_after_it_was_created(shop):
    """It is born owned, its attempt unknown; money, sale and the end of the work are one update."""
    async with _counted(shop) as sent:
        reference = await shop.order()
        await wait_until(lambda: _all_confirmed(shop, [reference]), interval_s=0.1)
        await shop.wait_until_idle()
    assert (sent["-- Inserts orders,"], sent["-- Writes the"]) == (1, 1), sent
    assert await shop.scalar("SELECT count(*) FROM orders.open_order") == 0


@asynccontextmanager
async def _counted(shop):
    """Counts each statement by its first words, once earlier orders are processed; what sweeps is left out."""
    await shop.wait_until_idle()
    sent: Counter[str] = Counter()
    db = shop.state.db.sync_engine

    def count(connection, cursor, statement, parameters, context, executemany):
        if not statement.startswith("-- Says that"):
            sent[" ".join(statement.split()[:3])] += 1

    event.listen(db, "before_cursor_execute", count)
    try:
        yield sent
    finally:
        event.remove(db, "before_cursor_execute", count)


async def _all_confirmed(shop, references):
    found = await read_many(shop.state.store.db, references)
    return {found[reference].status for reference in references} == {"confirmed"}


async def _all_applied(shop):
    return await shop.scalar("SELECT count(*) FROM orders.webhook_inbox WHERE applied_at IS NULL") == 0


async def _never(*_):
    raise AssertionError("the batch was written again in halves")


def _syncs():
    """How often this process has read an order's charges from a provider."""
    return REGISTRY.get_sample_value("orders_steps_total", {"step": "sync_provider"})
