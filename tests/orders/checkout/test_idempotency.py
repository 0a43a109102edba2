"""One key is one order and one charge, however often and through whichever process it is sent."""

import asyncio

from sqlalchemy import func, select, text

from services.orders.checkout import checkout
from services.orders.order.customers import owner_id
from services.orders.order.references import key_hash
from services.orders.tables import idempotency, order, payment_attempt
from shared.contracts.inventory import ReservedItem
from tests.orders.holds import EVENT
from tests.orders.shop import pass_of
from tests.support.wait import wait_until


async def test_fifty_at_once_with_one_key_are_one_order_and_one_charge(processes):
    shops = [await processes.open(), await processes.open()]
    body = shops[0].body(processes.holds.hold())
    answers = await asyncio.gather(*(shops[i % 2].post(body) for i in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    [reference] = {answer.json()["reference"] for answer in answers}
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    await shops[0].settled(reference, "confirmed")
    assert len(await shops[0].charges()) == 1
    assert await _count(shops[0], order) == await _count(shops[0], payment_attempt) == 1


async def test_two_orders_for_one_reservation_are_one(shop):
    body = shop.body(shop.holds.hold())
    answers = await asyncio.gather(*(shop.post(body, key=f"key-{i}") for i in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    assert {a.json()["type"] for a in answers if a.status_code == 409} <= {
        "/problems/payment-in-progress",
        "/problems/reservation-taken",
    }
    assert await _count(shop, order, order.c.status != "tombstone") == 1


async def test_a_replay_says_so_and_another_body_is_refused(shop):
    body = shop.body(shop.holds.hold())
    first = await shop.post(body)
    await shop.settled(first.json()["reference"], "confirmed")
    again = await shop.post(body)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert (again.json()["reference"], again.json()["status"]) == (first.json()["reference"], "confirmed")
    body["customer"]["name"] = "Grace"
    refused = await shop.post(body)
    assert (refused.status_code, refused.json()["type"]) == (422, "/problems/idempotency-key-reused")


async def test_a_key_is_needed_and_must_be_one(shop):
    reservation = shop.holds.hold()
    for key, slug in ((None, "missing"), ("with blanks", "malformed"), ("x" * 256, "malformed")):
        answer = await shop.post(shop.body(reservation), key=key)
        assert (answer.status_code, answer.json()["type"]) == (400, f"/problems/idempotency-key-{slug}")
    assert shop.holds.reservations[reservation].status == "pending_payment"


async def test_the_same_key_of_somebody_else_is_another_order(shop):
    mine = await shop.post(shop.body(shop.holds.hold("fan")), key="k")
    theirs = await shop.post(shop.body(shop.holds.hold("other")), key="k", holder="other")
    assert mine.status_code == theirs.status_code == 202
    assert mine.json()["reference"] != theirs.json()["reference"]


async def test_a_first_request_that_takes_too_long_tells_the_second_to_come_back(shop, monkeypatch):
    """Within a process the second waits for the first, up to `IN_FLIGHT_WAIT_S`."""
    monkeypatch.setattr(checkout, "IN_FLIGHT_WAIT_S", 0.2)
    arrived, let_go = asyncio.Event(), asyncio.Event()

    async def gate(path: str) -> None:
        arrived.set()
        await let_go.wait()

    shop.holds.gate = gate
    body = shop.body(shop.holds.hold())
    first = asyncio.create_task(shop.post(body))
    await arrived.wait()
    second = await shop.post(body)
    assert (second.status_code, second.json()["type"]) == (409, "/problems/idempotency-in-flight")
    assert second.headers["retry-after"] == "1"
    let_go.set()
    assert (await first).status_code == 202


async def test_across_processes_the_second_waits_on_the_first_ones_row(processes):
    """The first is an open transaction elsewhere that holds the key's row; the second gives up after a while."""
    shop = await processes.open(postgres_lock_timeout_ms=200)
    body = shop.body(shop.holds.hold())
    scope = f"POST /orders {owner_id(EVENT, 'fan')}"
    elsewhere = {"scope": scope, "key_hash": key_hash("a-key"), "fingerprint": b"", "reference": "AAAA"}
    async with shop.app.state.deps.db.connect() as connection:
        await connection.execute(idempotency.insert().values(elsewhere))
        answer = await shop.post(body)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/idempotency-in-flight")
        await connection.rollback()
    assert (await shop.post(body)).status_code == 202


async def test_a_crash_between_inventory_and_the_ledger_does_not_block_the_key(shop):
    reservation = shop.holds.hold()
    db = shop.app.state.deps.db
    async with db.begin() as connection:
        await connection.execute(text("ALTER TABLE orders.order_line RENAME TO away"))
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code >= 500
    assert shop.holds.reservations[reservation].status == "paying"
    async with db.begin() as connection:
        await connection.execute(text("ALTER TABLE orders.away RENAME TO order_line"))
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code == 202, answer.text
    await shop.settled(answer.json()["reference"], "confirmed")


async def test_a_refusal_uses_up_no_key(shop):
    """The fan accepts the new price and sends the same key again."""
    reservation = shop.holds.hold(total_minor=7000)
    refused = await shop.post(shop.body(reservation))
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/price-changed")
    assert shop.holds.reservations[reservation].status == "pending_payment"
    assert (await shop.post(shop.body(reservation, total_minor=7000))).status_code == 202


async def test_an_order_for_what_was_given_back_in_that_moment_is_refused_with_the_new_price(shop):
    reservation = shop.holds.hold(total_minor=6800)

    async def gate(path: str) -> None:
        left = [ReservedItem(section_id="GA1", unit_price_minor=3400)]
        shop.holds.change(reservation, released_tickets=1, total_minor=3400, lines=left)

    shop.holds.gate = gate
    refused = await shop.post(shop.body(reservation))
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/price-changed")
    assert refused.json()["total_minor"] == 3400
    assert shop.holds.reservations[reservation].status == "pending_payment"
    assert (await shop.post(shop.body(reservation, total_minor=3400))).status_code == 202


async def test_a_key_is_one_thing_on_one_route(processes):
    """The second route behaves like the first: replayed, refused with another body, told to retry."""
    shop = await processes.open(postgres_lock_timeout_ms=200)
    reference = await shop.order(method="decline", key="k")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    head = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "k"}
    path, body = f"/orders/{reference}/payments", {"payment": {"provider": "sandbox", "method": "redirect"}}
    scope = {"scope": f"POST {path}", "key_hash": key_hash("k"), "fingerprint": b"", "reference": reference}
    async with shop.app.state.deps.db.connect() as elsewhere:
        await elsewhere.execute(idempotency.insert().values(scope))
        waiting = await shop.http.post(path, json=body, headers=head)
        await elsewhere.rollback()
    assert (waiting.status_code, waiting.json()["type"]) == (409, "/problems/idempotency-in-flight")
    assert waiting.headers["retry-after"] == "1"
    first, again = [await shop.http.post(path, json=body, headers=head) for _ in range(2)]
    assert (first.status_code, first.headers.get("idempotency-replayed")) == (202, None)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert (await shop.row(reference)).attempt.n == 2
    body["payment"]["method"] = "ok"
    other = await shop.http.post(path, json=body, headers=head)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")
    bare = {"authorization": head["authorization"]}
    assert (await shop.http.post(path, json=body, headers=bare)).status_code == 400


async def _count(shop, table, *where):
    async with shop.app.state.deps.db.connect() as connection:
        return await connection.scalar(select(func.count()).select_from(table).where(*where))
