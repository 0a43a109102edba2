"""The seats of a hold that nobody pays are free again after its time.

A fan releases a part of a hold and buys the rest; the tour's ticket limit counts it at its other events. Every command
of the pages of `docs/start` runs against the suite, in the order of the page.

A ticket names what stands on the row and on the chair, and who comes with it, also after a change.

An oversell is found by reconciliation, and the latest buyer is refunded and sees the reason.
"""

import io
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest
from pypdf import PdfReader

from onsale.client import Problem
from onsale.client.fan_documents import CustomerDetails, NewOrder
from onsale.local.engines import with_driver
from tests.journeys.buying.test_examples import PAGES, ROOT, folder, run_page  # noqa: F401 - a fixture
from tests.support.running.suite import RunningSuite, bearer, card, fan_of, refusal
from tests.support.wait import wait_until


async def test_the_seats_of_an_unpaid_hold_are_released(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales={"hold_ttl_s": 5, "grace_s": 0})
    async with suite.browser() as browser:
        first = await fan_of(browser, event_id).come_in()
        held = await first.hold({"seats": ["A-1-1"]})
        second = await fan_of(browser, event_id).come_in()
        with pytest.raises(Problem) as taken:
            await second.hold({"seats": ["A-1-1", "A-1-2"]})
        assert (taken.value.slug, taken.value.members["seats"]) == ("seats-taken", ["A-1-1"])

        async def seats_are_free() -> bool:
            with suppress(Problem):
                return bool(await second.hold({"seats": ["A-1-1", "A-1-2"]}))
            return False

        await wait_until(seats_are_free, timeout_s=12, interval_s=0.25)
        assert await refusal(first.order(held)) == (410, "hold-expired")
    assert await suite.wrong(event_id) == []


SAME: CustomerDetails = {"name": "A fan", "email": "same@example.org"}


async def test_a_fan_releases_part_of_a_hold_and_the_rest_counts_towards_the_tour_limit(suite: RunningSuite) -> None:
    tour = {"tour": {"tour_id": "tour-1", "tickets_per_customer": 3}}
    first, second = await suite.open_event(sales=tour), await suite.open_event(sales=tour)
    async with suite.browser() as browser:
        fan = await fan_of(browser, first).come_in()
        hold = await fan.hold({"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 3}]})
        kept = await fan.keep(hold, {"seats": ["A-1-2"], "ga": [{"section_id": "GA1", "quantity": 1}]})
        at_the_price_before = fan.client.create_order(
            {
                "reservation_id": hold["reservation_id"], "expected_total_minor": hold["total_amount_minor_units"],
                "currency": "EUR", "customer": SAME, "payment": card("ok"),
            },
            token=fan.admission,
        )  # fmt: skip
        assert await refusal(at_the_price_before) == (409, "price-changed")
        bought = await fan.buy(kept, SAME)
        assert (bought["status"], sum(line["quantity"] for line in bought["lines"])) == ("confirmed", 2)
    async with suite.browser() as browser:
        again = await fan_of(browser, second).come_in()
        with pytest.raises(Problem) as refused:
            await again.order(await again.hold({"seats": ["A-1-1", "A-1-2"]}), SAME)
        assert (refused.value.status, refused.value.slug) == (409, "limit-exceeded")
        shown = {name: refused.value.members[name] for name in ("limit", "allowed", "used")}
        assert shown == {"limit": "tour_tickets_per_customer", "allowed": 3, "used": 2}
    assert await suite.wrong(first) == await suite.wrong(second) == []


LONG = sorted({*(ROOT / "docs" / "start").glob("*.md")} - {*PAGES})


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_every_command_of_the_page_runs(folder: Path, suite: RunningSuite, path: Path) -> None:  # noqa: F811
    run_page(folder, suite, path)


async def test_a_ticket_says_what_stands_on_the_row_and_the_chair(suite: RunningSuite) -> None:
    """The labels of the event file are read by the fan, by the operator and at the entrance."""
    stalls = {
        "section_id": "A", "name": "Stalls", "kind": "seated", "rows": ["A", {"row": "AA", "seats": [1, "1b", 3]}],
        "seats_per_row": 3, "seats": "even from the right", "price_minor": 5000,
    }  # fmt: skip
    event_id = await suite.open_event(sections=[stalls])
    places = ["A-A-6", "A-AA-1b"]
    async with suite.browser() as browser, suite.operator() as operator:
        fan = await fan_of(browser, event_id).come_in()
        held = await fan.hold({"seats": places})
        answer = await fan.order(held)
        order = await fan.settled(answer)
        owner = bearer(answer["order_token"])
        tickets = (await browser.get(f"/orders/{answer['reference']}/tickets", headers=owner)).json()["tickets"]
        papers = await browser.get(f"/orders/{answer['reference']}/tickets.pdf", headers=owner)
        receipt = await browser.get(f"/orders/{answer['reference']}/receipt.pdf", headers=owner)
        scanners = (await operator.get(f"/admin/orders/events/{event_id}/tickets.json")).json()["tickets"]
        exported = (await operator.get("/admin/orders/export.csv", params={"event_id": event_id})).text
        found = (await operator.get("/admin/orders", params={"q": "A-AA-1b"})).json()["orders"]
    assert held["seats"] == [line["seat_id"] for line in order["lines"]] == places
    assert [ticket["place"] for ticket in tickets] == ["Stalls, row A, seat 6", "Stalls, row AA, seat 1b"]
    assert sorted(ticket["seat_id"] for ticket in scanners) == places
    assert all(f",{place}," in exported for place in places)
    assert answer["reference"] in [one["reference"] for one in found]
    for paper in (papers, receipt):
        text = " ".join(page.extract_text() for page in PdfReader(io.BytesIO(paper.content)).pages)
        assert "seat 1b" in " ".join(text.split()), text
    assert await suite.wrong(event_id) == []


async def test_a_ticket_has_its_name_also_after_a_change(suite: RunningSuite) -> None:
    """The buyer is told what is asked, buys with names, and changes one; paper, page and entrance have the new one."""
    event_id = await suite.open_event(sales={"names": "ticket"})
    async with suite.browser() as browser, suite.operator() as operator:
        asked = (await browser.get(f"/events/{event_id}")).json()
        fan = await fan_of(browser, event_id).come_in()
        held = await fan.hold({"seats": ["A-1-1", "A-1-2"]})
        quote = await fan.client.quote({"reservation_id": held["reservation_id"]}, token=fan.admission)
        assert asked["names"] == quote["names"] == "ticket"
        assert asked["names_until"] == asked["starts_at"]
        order: NewOrder = {
            "reservation_id": held["reservation_id"], "expected_total_minor": quote["total_minor"], "currency": "EUR",
            "customer": SAME, "payment": card("ok"), "names": ["Ada Lovelace"],
        }  # fmt: skip
        assert await refusal(fan.client.create_order(order, token=fan.admission)) == (422, "ticket-names-refused")
        order["names"] = ["Ada Lovelace", "Bob"]
        answer = await fan.client.create_order(order, token=fan.admission)
        await fan.settled(answer)
        reference, key, owner = answer["reference"], answer["order_token"], bearer(answer["order_token"])
        first, second = (await fan.client.tickets(reference, token=key))["tickets"]
        assert [first["name"], second["name"]] == ["Ada Lovelace", "Bob"]
        changed = await fan.client.change_ticket_names(
            reference, {"names": {second["ticket_id"]: "Grace Hopper"}}, token=key
        )
        assert [line["names"][0]["name"] for line in changed["lines"]] == ["Ada Lovelace", "Grace Hopper"]
        after = (await fan.client.tickets(reference, token=key))["tickets"]
        assert [(one["ticket_id"], one["code"]) for one in after] == [
            (one["ticket_id"], one["code"]) for one in (first, second)
        ]
        papers = await browser.get(f"/orders/{reference}/tickets.pdf", headers=owner)
        scanners = (await operator.get(f"/admin/orders/events/{event_id}/tickets.json")).json()["tickets"]
        assert {one["ticket_id"]: one["name"] for one in scanners} == {
            first["ticket_id"]: "Ada Lovelace", second["ticket_id"]: "Grace Hopper",
        }  # fmt: skip
        pages = [page.extract_text() for page in PdfReader(io.BytesIO(papers.content)).pages]
        assert ["Ada Lovelace" in pages[0], "Grace Hopper" in pages[1], "Bob" in pages[1]] == [True, True, False]
        body = {"names": {first["ticket_id"]: "Ada King"}, "reason": "married"}
        by_hand = await operator.post(f"/admin/orders/{reference}/names", json=body)
        assert by_hand.json()["lines"][0]["names"][0]["name"] == "Ada King", by_hand.text
    assert await suite.wrong(event_id) == []


POLICY = {"oversell": {"policy": "cancel_latest", "review_percent": 50}}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 10, "price_minor": 3000}]


async def test_the_latest_buyer_of_an_oversold_section_is_refunded_and_sees_why(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales=POLICY, sections=FLOOR)
    database = await asyncpg.connect(with_driver(suite.engines["postgres_url"]))
    async with suite.browser() as browser, suite.operator() as operator:
        orders = []
        for _ in range(3):
            fan = await fan_of(browser, event_id).come_in()
            held = await fan.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
            order = await fan.order(held)
            await fan.settled(order)
            orders.append(order)
        shrink = "UPDATE inventory.section SET capacity = 5, seats_remaining = 0 WHERE event_id = $1"
        await database.execute(shrink, event_id)
        await database.close()
        path = f"/admin/inventory/events/{event_id}/reconcile"

        async def statuses() -> list[str]:
            await operator.post(path)
            answers = [
                await browser.get(f"/orders/{order['reference']}", headers=bearer(order["order_token"]))
                for order in orders
            ]
            return [answer.json()["status"] for answer in answers]

        async def last_order_is_refunded() -> bool:
            return await statuses() == ["confirmed", "confirmed", "refunded"]

        await wait_until(last_order_is_refunded, timeout_s=25, interval_s=0.5)
        last = await browser.get(f"/orders/{orders[2]['reference']}", headers=bearer(orders[2]["order_token"]))
        assert (last.json()["oversold"], last.json()["refunded_minor"]) == (True, 6000)
        (case,) = (await operator.get(path)).json()["oversell"]
        assert (case["status"], case["excess"], case["returns"][0]["refund"]) == ("cancelled", 1, "asked")
        section = (await browser.get(f"/events/{event_id}/sections")).json()["sections"][0]
        assert section["available_seats"] == 1
    assert await suite.audit(event_id) == []  # the history lacks the refunds, which its fans did not ask for
