"""A ticket names what stands on the row and on the chair."""

import io

from pypdf import PdfReader

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer


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
