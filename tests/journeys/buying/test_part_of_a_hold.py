"""A fan releases a part of a hold and buys the rest; the tour's ticket limit counts it at its other events."""

from tests.support.running.suite import Fan, RunningSuite, bearer, problem

SAME = {"name": "A fan", "email": "same@example.org"}


async def test_a_fan_releases_part_of_a_hold_and_the_rest_counts_towards_the_tour_limit(suite: RunningSuite) -> None:
    tour = {"tour": {"tour_id": "tour-1", "tickets_per_customer": 3}}
    first, second = await suite.open_event(sales=tour), await suite.open_event(sales=tour)
    async with suite.browser() as browser:
        fan = await Fan(browser, first).come_in()
        hold = await fan.hold(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 3}])
        path = f"/events/{first}/reservations/{hold['reservation_id']}/keep"
        kept = {"seats": ["A-1-2"], "ga": [{"section_id": "GA1", "quantity": 1}]}
        answer = await browser.post(path, json=kept, headers=bearer(fan.admission))
        assert answer.status_code == 200, answer.text
        assert problem(await fan.order(hold)) == (409, "price-changed"), "the order has the price before the release"
        bought = await fan.wait_for_end((await fan.order(answer.json(), customer=SAME)).json())
        assert (bought["status"], sum(line["quantity"] for line in bought["lines"])) == ("confirmed", 2)
    async with suite.browser() as browser:
        again = await Fan(browser, second).come_in()
        refused = await again.order(await again.hold(seats=["A-1-1", "A-1-2"]), customer=SAME)
        assert problem(refused) == (409, "limit-exceeded")
        shown = {name: refused.json()[name] for name in ("limit", "allowed", "used")}
        assert shown == {"limit": "tour_tickets_per_customer", "allowed": 3, "used": 2}
    assert await suite.audit(first) == await suite.audit(second) == []
