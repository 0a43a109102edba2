"""Idempotency keys: requests with one key make one order and one charge, repeated, concurrent or in two processes.

A purchase from the reservation to the confirmed order, and how its fan and the event log follow it.
"""

import asyncio
import uuid
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from sqlalchemy import func, select

from services.orders.checkout import checkout
from services.orders.model.order import owner_id
from services.orders.tables import open_order, order
from shared.contracts.frames import Event, OrderFrame, order_channel
from shared.contracts.inventory import ReservedItem
from shared.messaging.log import START, RedisStreams, log_stream
from shared.security.tokens import order_cookie, read_order_token
from shared.web.request import key_hash
from tests.orders.inventory import EVENT
from tests.orders.shop import pass_header, pass_of, reference_of
from tests.support.neighbours import Call
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def test_fifty_concurrent_requests_with_one_key_make_one_order_and_one_charge(processes, monkeypatch):
    monkeypatch.setattr(checkout, "IN_FLIGHT_WAIT_S", 60.0)
    shops = [await processes.open(lock_timeout_ms=10_000) for _ in range(2)]
    body = shops[0].body(await processes.inventory.hold())
    answers = await asyncio.gather(*(shops[i % 2].post(body) for i in range(50)))
    assert {answer.status_code for answer in answers} == {202}, {answer.text for answer in answers}
    [reference] = {answer.json()["reference"] for answer in answers}
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    await shops[0].wait_until_settled(reference, "confirmed")
    assert len(await shops[0].charges()) == 1
    assert await _count(shops[0], order) == 1
    assert len((await shops[0].row(reference)).attempts) == 1


async def test_a_reservation_is_ordered_once(shop):
    body = shop.body(await shop.inventory.hold())
    answers = await asyncio.gather(*(shop.post(body, key=f"key-{i}") for i in range(8)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 7
    assert {a.json()["type"] for a in answers if a.status_code == 409} <= {
        "/problems/payment-in-progress",
        "/problems/reservation-taken",
    }
    assert await _count(shop, order, order.c.status != "tombstone") == 1


async def test_a_repeated_request_is_replayed_and_another_body_is_refused(shop):
    body = shop.body(await shop.inventory.hold())
    first = await shop.post(body)
    await shop.wait_until_settled(first.json()["reference"], "confirmed")
    again = await shop.post(body)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert (again.json()["reference"], again.json()["status"]) == (first.json()["reference"], "confirmed")
    body["customer"]["name"] = "Grace"
    refused = await shop.post(body)
    assert problem(refused) == (422, "idempotency-key-reused")


async def test_a_repeat_leaves_the_hold_of_its_order_alone(shop):
    """It binds the hold again while its key is looked up, and another reservation's hold is bound no more."""
    reservation, another = await shop.inventory.hold(), await shop.inventory.hold()
    answers = [await shop.post(shop.body(reservation, method="redirect")) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert await shop.inventory.status(reservation) == "paying"
    before = await shop.inventory.read(another)
    assert problem(await shop.post(shop.body(another))) == (422, "idempotency-key-reused")
    assert await shop.inventory.read(another) == before


async def test_a_request_whose_key_has_bought_its_hold_since_it_was_looked_up_is_replayed(processes):
    """By another process: in its own the second waits for the first."""
    first, second = [await processes.open() for _ in range(2)]
    body, looked = first.body(await processes.inventory.hold()), asyncio.Event()
    find, begin_payment = first.state.store.find_key, first.state.inventory.begin_payment

    async def find_early(key):
        known = await find(key)
        looked.set()
        return known

    async def begin_late(step):
        await looked.wait()
        await second.wait_until_settled((await second.post(body)).json()["reference"], "confirmed")
        return await begin_payment(step)

    first.state.store.find_key, first.state.inventory.begin_payment = find_early, begin_late
    answer = await first.post(body)
    assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, "true"), answer.text


async def test_a_repeat_whose_first_ended_after_it_looked_for_the_key_looks_again(shop, monkeypatch):
    """Otherwise it would bind the hold and try to write the order once more."""
    body, find, written = shop.body(await shop.inventory.hold()), shop.state.store.find_key, []
    looks = []
    insert, begin_payment = shop.state.checkout.writer.insert, shop.state.inventory.begin_payment
    in_flight, looked, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def begin_late(step):
        in_flight.set()
        await looked.wait()
        return await begin_payment(step)

    async def find_early(key):
        looks.append(key)
        is_repeat = len(looks) == 2
        known = await find(key)
        if is_repeat:
            looked.set()
            await ended.wait()
        return known

    async def insert_counted(draft):
        written.append(draft)
        return await insert(draft)

    monkeypatch.setattr(shop.state.store, "find_key", find_early)
    monkeypatch.setattr(shop.state.inventory, "begin_payment", begin_late)
    monkeypatch.setattr(shop.state.checkout.writer, "insert", insert_counted)
    first = asyncio.create_task(shop.post(body))
    await in_flight.wait()
    again = asyncio.create_task(shop.post(body))
    await first
    ended.set()
    assert (await again).headers["idempotency-replayed"] == "true"
    assert len(written) == 1


async def test_an_order_needs_a_valid_idempotency_key(shop):
    reservation = await shop.inventory.hold()
    for key, slug in ((None, "missing"), ("with blanks", "malformed"), ("x" * 256, "malformed")):
        answer = await shop.post(shop.body(reservation), key=key)
        assert problem(answer) == (400, f"idempotency-key-{slug}")
    assert await shop.inventory.status(reservation) == "pending_payment"


async def test_the_same_key_of_another_holder_makes_another_order(shop):
    mine = await shop.post(shop.body(await shop.inventory.hold("fan")), key="k")
    theirs = await shop.post(shop.body(await shop.inventory.hold("other")), key="k", holder="other")
    assert mine.status_code == theirs.status_code == 202
    assert mine.json()["reference"] != theirs.json()["reference"]


async def test_a_second_request_is_refused_while_the_first_takes_too_long(shop, monkeypatch):
    """Within a process the second waits for the first, up to `IN_FLIGHT_WAIT_S`."""
    monkeypatch.setattr(checkout, "IN_FLIGHT_WAIT_S", 0.2)
    arrived, resume = asyncio.Event(), asyncio.Event()

    async def pause(call: Call) -> None:
        if call.path == "/reservations/begin-payment":
            arrived.set()
            await resume.wait()

    shop.inventory.neighbour.on_call = pause
    body = shop.body(await shop.inventory.hold())
    first = asyncio.create_task(shop.post(body))
    await arrived.wait()
    second = await shop.post(body)
    assert problem(second) == (409, "idempotency-in-flight")
    assert second.headers["retry-after"] == "1"
    resume.set()
    assert (await first).status_code == 202


async def test_a_request_is_refused_while_another_process_writes_its_key(processes):
    """An open transaction holds the row of its order; the request gives up after the lock timeout."""
    shop = await processes.open(lock_timeout_ms=200)
    body = shop.body(await shop.inventory.hold())
    async with _uncommitted_key(shop, "a-key"):
        assert problem(await shop.post(body)) == (409, "idempotency-in-flight")
    assert (await shop.post(body)).status_code == 202


@pytest.mark.usefixtures("own_database")
async def test_a_crash_between_inventory_and_database_does_not_block_the_key(shop):
    reservation = await shop.inventory.hold()
    await shop.run("ALTER TABLE orders.open_order RENAME TO missing")
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code >= 500
    assert await shop.inventory.status(reservation) == "paying"
    await shop.run("ALTER TABLE orders.missing RENAME TO open_order")
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code == 202, answer.text
    await shop.wait_until_settled(answer.json()["reference"], "confirmed")


@pytest.mark.parametrize("released_meanwhile", [False, True])
async def test_an_order_at_an_old_price_is_refused_and_its_key_can_be_used_at_the_new_one(shop, released_meanwhile):
    """Also if a ticket is released from the hold while it is ordered."""
    tickets = ReservedItem(section_id="GA1", quantity=2 if released_meanwhile else 1, unit_price_minor=3400)
    reservation = await shop.inventory.hold(lines=[tickets])

    async def release_one_ticket(call: Call) -> None:
        if call.path == "/reservations/begin-payment":
            await shop.inventory.keep_only(reservation, GA1=1)

    shop.inventory.neighbour.on_call = release_one_ticket if released_meanwhile else None
    refused = await shop.post(shop.body(reservation))
    assert problem(refused) == (409, "price-changed")
    assert refused.json()["total_minor"] == 3400
    assert await shop.inventory.status(reservation) == "pending_payment"
    assert (await shop.post(shop.body(reservation, total_minor=3400))).status_code == 202


async def test_an_order_that_one_process_refuses_and_another_writes_keeps_its_hold(processes):
    """Requests with one key and two prices: the one that is refused takes nothing back that the other has bound."""
    wrong, right = [await processes.open() for _ in range(2)]
    reservation, bound = await processes.inventory.hold(), asyncio.Event()
    quote = wrong.state.checkout.prices.quote

    async def quote_late(*named, **more):
        bound.set()
        reference = (await posting).json()["reference"]
        assert await processes.inventory.status(reservation) in ("paying", "confirmed"), reference
        return await quote(*named, **more)

    async def post_right():
        await bound.wait()
        return await right.post(right.body(reservation))

    posting = asyncio.create_task(post_right())
    wrong.state.checkout.prices = SimpleNamespace(quote=quote_late)
    assert problem(await wrong.post(wrong.body(reservation, total_minor=1))) == (422, "idempotency-key-reused")
    reference = (await posting).json()["reference"]
    await right.wait_until_settled(reference, "confirmed")
    assert await right.violated_invariants() == {}


async def test_a_payment_retry_is_idempotent_like_an_order(processes):
    """It is refused while another process changes the order, replayed with the same body, and refused with another."""
    shop = await processes.open(lock_timeout_ms=200)
    reference = await shop.order(method="decline", key="k")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    path = f"/orders/{reference}/payments"
    async with _locked(shop, reference):
        refused = await shop.pay_again(reference, method="redirect", key="k")
    assert problem(refused) == (409, "idempotency-in-flight")
    assert refused.headers["retry-after"] == "1"
    first, again = [await shop.pay_again(reference, method="redirect", key="k") for _ in range(2)]
    assert (first.status_code, first.headers.get("idempotency-replayed")) == (202, None)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert (await shop.row(reference)).attempt.n == 2
    assert problem(await shop.pay_again(reference, method="ok", key="k")) == (422, "idempotency-key-reused")
    body = {"payment": {"provider": "sandbox", "method": "ok"}}
    assert (await shop.http.post(path, json=body, headers=pass_header())).status_code == 400


async def _count(shop, table, *where):
    return await shop.scalar(select(func.count()).select_from(table).where(*where))


@asynccontextmanager
async def _uncommitted_key(shop, key):
    """Another transaction has written an order with the key and has not committed."""
    row = {
        "reference": "AAAA", "status": "pending", "event_id": EVENT, "reservation_id": "another",
        "owner_id": owner_id(EVENT, "fan"), "key_hash": key_hash(key), "fingerprint": b"", "total_minor": 1,
        "currency": "EUR", "expires_at": func.now(),
    }  # fmt: skip
    async with shop.state.db.connect() as connection:
        await connection.execute(order.insert().values(row))
        yield
        await connection.rollback()


@asynccontextmanager
async def _locked(shop, reference):
    """Another transaction changes this order and has not committed."""
    async with shop.state.db.connect() as connection:
        await connection.execute(select(open_order).where(open_order.c.reference == reference).with_for_update())
        yield
        await connection.rollback()


async def test_an_order_is_charged_and_confirmed_in_the_background(shop):
    reservation = await shop.inventory.hold()
    answer = await shop.post(shop.body(reservation))
    assert answer.status_code == 202
    created = answer.json()
    reference = created["reference"]
    assert answer.headers["location"] == created["poll_url"] == f"/orders/{reference}"
    assert created["updates_url"] == f"/orders/{reference}/updates"
    assert 0 < created["expires_in_seconds"] <= 60
    await shop.wait_until_settled(reference, "confirmed")
    assert await shop.inventory.status(reservation) == "confirmed"
    [charge] = await shop.charges(reference)
    assert (charge["amount_minor"], charge["idempotency_key"]) == (6800, f"{reference}:1")
    order = await shop.view(reference)
    ticket = {
        "section_id": "GA1", "seat_id": None, "quantity": 1, "returned": 0, "unit_price_minor": 6800,
        "paid_minor": 6800,
    }  # fmt: skip
    assert (order["lines"], order["extras"]) == ([ticket], [])
    assert (order["attempt"]["status"], order["total_minor"], order["currency"]) == ("succeeded", 6800, "EUR")
    assert await shop.violated_invariants() == {}


async def test_each_write_of_an_order_wakes_the_relay_of_its_process(shop, woken):
    reference = (await shop.post(shop.body(await shop.inventory.hold()))).json()["reference"]
    assert woken
    await shop.wait_until_settled(reference, "confirmed")
    assert woken.count("orders") >= 2


async def test_the_order_token_opens_the_order_without_a_pass_and_an_expired_pass_does_not(shop):
    answer = await shop.post(shop.body(await shop.inventory.hold()))
    token, reference = answer.json()["order_token"], answer.json()["reference"]
    assert read_order_token(shop.settings.order_token_keys, token) == reference
    assert answer.cookies[order_cookie(reference)] == token
    shop.http.cookies.clear()
    for credential in ({"authorization": f"Bearer {token}"}, {"cookie": f"{order_cookie(reference)}={token}"}):
        assert (await shop.http.get(f"/orders/{reference}", headers=credential)).status_code == 200
    listed = await shop.http.get("/orders", headers={"authorization": f"Bearer {token}"})
    assert [order["reference"] for order in listed.json()["orders"]] == [reference]
    for expired in (-60, -7200):
        in_cookie = {"cookie": f"onsale_pass_{EVENT}={pass_of(expires_in_s=expired)}"}
        for credential in (pass_header(expires_in_s=expired), in_cookie):
            for path in ("/orders", *(f"/orders/{reference}{part}" for part in ("", "/tickets", "/tickets.pdf"))):
                refused = await shop.http.get(path, headers=credential)
                assert problem(refused) == (401, "bad-credential"), path


async def test_a_fan_lists_their_own_orders_newest_first(shop):
    mine = [await shop.order() for _ in range(3)]
    await shop.post(shop.body(await shop.inventory.hold("somebody")), holder="somebody")
    first = (await shop.http.get("/orders?page_size=2", headers=pass_header())).json()
    assert [order["reference"] for order in first["orders"]] == [mine[2], mine[1]]
    second = (await shop.http.get("/orders?page_size=2&page=2", headers=pass_header())).json()
    assert [order["reference"] for order in second["orders"]] == [mine[0]]


async def test_an_expired_pass_in_a_cookie_orders_from_our_own_origin_only(shop):
    reservation = await shop.inventory.hold()
    cookie = f"onsale_pass_{EVENT}={pass_of(expires_in_s=-300)}; onsale_pass_other=invalid"
    headers = {"cookie": cookie, "idempotency-key": "k", "origin": "http://shop"}
    answer = await shop.http.post("/orders", json=shop.body(reservation), headers=headers)
    assert answer.status_code == 202, answer.text
    foreign = await shop.http.post("/orders", json=shop.body(reservation), headers={**headers, "origin": "http://evil"})
    assert foreign.json()["type"] == "/problems/foreign-origin"


async def test_an_expired_pass_orders_a_hold_for_an_hour(shop):
    for expired, status in ((-60, 202), (-3500, 202), (-3700, 401)):
        body = shop.body(await shop.inventory.hold())
        headers = pass_header(expires_in_s=expired) | {"idempotency-key": uuid.uuid4().hex}
        assert (await shop.http.post("/orders", json=body, headers=headers)).status_code == status, expired


@pytest.mark.usefixtures("loops")
async def test_a_confirmed_order_is_in_the_event_log(shop, redis):
    reference = await shop.order()
    log, start = RedisStreams(redis, length_max=1000), {log_stream(EVENT): START}
    events: list[Event] = []

    async def confirmed() -> bool:
        entries = await log.read(start, count=100, wait_s=0)
        events[:] = [Event.model_validate_json(entry.body) for entry in entries]
        return [event.type for event in events] == ["order.created", "order.confirmed"]

    await wait_until(confirmed)
    after = events[1].after
    assert after is not None
    assert {key: after[key] for key in ("reference", "holder", "lane", "join_seq", "event_id", "status")} == {
        "reference": reference, "holder": "fan", "lane": 0, "join_seq": 7, "event_id": EVENT, "status": "confirmed",
    }  # fmt: skip
    assert events[1].version > events[0].version


async def test_every_step_of_an_order_is_published_as_a_frame(shop, redis):
    reservation = await shop.inventory.hold()
    async with redis.pubsub() as listener:
        reference = reference_of(shop, reservation, "a-key")
        await listener.subscribe(order_channel(reference))
        assert await shop.order_of(reservation, key="a-key") == reference
        frames: list[OrderFrame] = []

        async def confirmed() -> bool:
            message = await listener.get_message(ignore_subscribe_messages=True, timeout=0.1)
            if message:
                frames.append(OrderFrame.model_validate_json(message["data"]))
            return bool(frames) and frames[-1].status == "confirmed"

        await wait_until(confirmed)
    assert [frame.version for frame in frames] == sorted(frame.version for frame in frames)
    order = await shop.view(reference)
    assert frames[-1].body == {**order, "expires_in_seconds": frames[-1].body["expires_in_seconds"]}


async def test_whoever_reads_an_order_with_its_pass_gets_a_cookie_that_lasts_longer(shop):
    reference = await shop.order()
    shop.http.cookies.clear()
    by_pass = {"cookie": f"onsale_pass_{EVENT}={pass_of()}"}
    first = await shop.http.get(f"/orders/{reference}", headers=by_pass)
    assert (await shop.http.get(f"/orders/{reference}")).status_code == 200, "by the order's own cookie"
    again = await shop.http.get(f"/orders/{reference}")
    assert order_cookie(reference) in first.cookies
    assert "set-cookie" not in again.headers
    shop.http.cookies.clear()
    stranger = await shop.http.get(f"/orders/{reference}", headers=pass_header("stranger"))
    assert (stranger.status_code, "set-cookie" in stranger.headers) == (404, False)
