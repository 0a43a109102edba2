"""The background share: a percentage of orders is processed by workers, the others in their requests."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.orders.pricing import quote
from services.orders.pricing.quote import EventRules, Prices
from services.orders.worker.worker import Worker
from shared.contracts.prices import PriceRules
from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, ROOT, VIEWER, pass_header
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
