"""Whether workers or the request process an order: switched live, with bounded slots, and with one core."""

import asyncio
from typing import Any

from prometheus_client import REGISTRY
from sqlalchemy import text

from services.orders import app
from services.orders.checkout.background_share import BackgroundShare
from services.orders.processing.worker_pool import InlineProcessor
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, ROOT_SECRET, VIEWER_SECRET, pass_of
from tests.support.wait import wait_until

SHARE = f"/admin/orders/events/{EVENT}/background-share"
OPERATOR = {"authorization": f"Bearer {ADMIN_SECRET}"}
VIEWER = {"authorization": f"Bearer {VIEWER_SECRET}"}
LAZY = {"sweep_s": 10.0}


async def switch(shop, percent):
    body = {"background_percent": percent, "reason": "a drill"}
    answer = await shop.http.patch(SHARE, json=body, headers=OPERATOR)
    assert answer.status_code == 200, answer.text


def went(path):
    return REGISTRY.get_sample_value("orders_checkout_seconds_count", {"path": path}) or 0


async def jobs(shop):
    async with shop.app.state.deps.db.connect() as connection:
        return await connection.scalar(text("SELECT count(*) FROM orders.pgqueuer_log"))


async def test_at_zero_percent_the_answer_is_the_outcome_and_no_job_is_made(processes):
    shop = await processes.open(**LAZY)
    await switch(shop, 0)
    before, jobs_before = went("request"), await jobs(shop)
    bought = await shop.post(shop.body(shop.holds.hold()), key="ok")
    answer = await shop.post(shop.body(shop.holds.hold(), method="decline"), key="decline")
    assert (bought.json()["status"], answer.json()["status"]) == ("confirmed", "pending")
    assert (went("request") - before, await jobs(shop)) == (2, jobs_before)
    payment = {"payment": {"provider": "sandbox", "method": "ok"}}
    head = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "again"}
    again = await shop.http.post(f"/orders/{answer.json()['reference']}/payments", json=payment, headers=head)
    assert again.json()["status"] == "confirmed"
    assert await shop.audit() == {}


async def test_what_finds_no_room_in_requests_goes_to_the_background(processes):
    inside, let_go = [], asyncio.Event()

    async def gate(name, reference):
        if name == "before the provider":
            inside.append(reference)
            await let_go.wait()

    shop = await processes.open(inline_slots_max=1, failpoint=gate, sweep_s=10.0)
    await switch(shop, 0)
    before = went("overflow")
    first = asyncio.create_task(shop.post(shop.body(shop.holds.hold()), key="first"))
    await wait_until(lambda: inside)
    second = await shop.post(shop.body(shop.holds.hold()), key="second")
    assert (second.json()["status"], went("overflow") - before) == ("pending", 1)
    let_go.set()
    assert (await first).json()["status"] == "confirmed"
    await shop.settled(second.json()["reference"], "confirmed")
    third = await shop.post(shop.body(shop.holds.hold()), key="third")
    assert third.json()["status"] == "confirmed", "its slot came back"


async def test_a_request_waits_a_bounded_time_and_the_work_goes_on(processes):
    let_go = asyncio.Event()

    async def gate(name, reference):
        if name == "before the provider":
            await let_go.wait()

    shop = await processes.open(inline_slots_max=1, inline_timeout_s=0.2, failpoint=gate, **LAZY)
    await switch(shop, 0)
    answer = await shop.post(shop.body(shop.holds.hold()))
    assert answer.json()["status"] == "pending"
    let_go.set()
    await shop.settled(answer.json()["reference"], "confirmed", timeout_s=5)


async def test_whose_request_died_is_settled_by_a_worker(processes, monkeypatch):
    """The order was created with a lease that nobody extends."""

    async def died(self, lease):
        raise RuntimeError

    shop = await processes.open(lease_s=1.0)
    await switch(shop, 0)
    monkeypatch.setattr(InlineProcessor, "process", died)
    assert (await shop.post(shop.body(shop.holds.hold()))).status_code == 500
    [listed] = (await shop.http.get("/orders", headers={"authorization": f"Bearer {pass_of()}"})).json()["orders"]
    await shop.settled(listed["reference"], "confirmed", timeout_s=6)


async def test_the_share_is_switched_live_everywhere_and_by_the_event_file(processes, monkeypatch):
    monkeypatch.setattr(app, "REFRESH_S", 0.05)
    here, there = await processes.open(), await processes.open()
    await switch(here, 0)
    assert not here.app.state.deps.background_share.in_background(EVENT, "fan"), "at once where it was said"
    await wait_until(lambda: not there.app.state.deps.background_share.in_background(EVENT, "fan"))
    await _apply(here, {})
    assert here.app.state.deps.background_share.percent(EVENT) == 0, "a file that says nothing leaves it"
    assert await _apply(here, {"checkout": {"background_percent": 40}}) is True
    assert await _apply(here, {"checkout": {"background_percent": 40}}) is False
    await wait_until(lambda: there.app.state.deps.background_share.percent(EVENT) == 40)
    shown = (await here.http.get(SHARE, headers=VIEWER)).json()
    assert shown == {"event_id": EVENT, "background_percent": 40}
    lines = await here.http.get("/admin/orders/changes", params={"subject": f"event:{EVENT}"}, headers=VIEWER)
    assert [(line["action"], line["reason"], line["before"]) for line in lines.json()["changes"]] == [
        ("apply", None, {"background_percent": 0}),
        ("background", "a drill", None),
    ]


async def test_a_share_is_a_percentage_and_needs_a_role_and_a_reason(shop):
    for wrong in ({"background_percent": 101}, {"background_percent": -1}, {"reason": ""}, {"other": 1}):
        body = {"background_percent": 50, "reason": "x"} | wrong
        assert (await shop.http.patch(SHARE, json=body, headers=OPERATOR)).status_code == 422
    body = {"background_percent": 50, "reason": "x"}
    assert (await shop.http.patch(SHARE, json=body, headers=VIEWER)).status_code == 403
    assert shop.app.state.deps.background_share.percent(EVENT) == 100


def test_the_same_fan_is_always_on_the_same_side_and_a_higher_share_only_adds():
    nobody: Any = None
    shares, fans = BackgroundShare(nobody), [f"fan-{number}" for number in range(2000)]
    before: set[str] = set()
    for percent in (0, 10, 50, 100):
        shares._percent = {EVENT: percent}
        chosen = {fan for fan in fans if shares.in_background(EVENT, fan)}
        assert before <= chosen
        assert abs(len(chosen) / 20 - percent) < 4
        before = chosen
    assert BackgroundShare(nobody).in_background("another", "fan"), "who was told nothing leaves it to the background"


async def test_without_the_job_engine_another_attempt_is_settled_in_its_request(processes):
    shop = await processes.open(job_accept_s=0.2, **LAZY)
    reference = await shop.order(method="decline")
    await wait_until(lambda: shop.attempt_is(reference, "failed"))
    payment = {"payment": {"provider": "sandbox", "method": "ok"}}
    head = {"authorization": f"Bearer {pass_of()}", "idempotency-key": "again"}
    async with shop.app.state.deps.db.connect() as elsewhere:
        await elsewhere.execute(text("LOCK TABLE orders.pgqueuer IN ACCESS EXCLUSIVE MODE"))
        answer = await shop.http.post(f"/orders/{reference}/payments", json=payment, headers=head)
        await elsewhere.rollback()
    assert answer.json()["status"] == "confirmed", answer.text


async def test_without_the_job_engine_requests_do_no_more_than_they_may(processes):
    shop = await processes.open(job_accept_s=0.1, inline_slots_max=0, sweep_s=0.1)
    before = went("overflow")
    async with shop.app.state.deps.db.connect() as elsewhere:
        await elsewhere.execute(text("LOCK TABLE orders.pgqueuer IN ACCESS EXCLUSIVE MODE"))
        answer = await shop.post(shop.body(shop.holds.hold()))
        await elsewhere.rollback()
    assert (answer.json()["status"], went("overflow") - before) == ("pending", 1)
    await shop.settled(answer.json()["reference"], "confirmed")


async def _apply(shop, parts):
    section = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 6800}
    file = {"event_id": EVENT, "name": "Flash", "venue": "Hall", "currency": "EUR", "sections": [section], **parts}
    file["starts_at"] = "2027-01-01T20:00:00Z"
    head = {"authorization": f"Bearer {ROOT_SECRET}"}
    answer = await shop.http.put(f"/admin/orders/events/{EVENT}", json=file, headers=head)
    assert answer.status_code == 200, answer.text
    return answer.json()["changed"]
