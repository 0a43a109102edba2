"""A fan gives back a part of what they hold and buys the rest; a tour counts it at its other evenings."""

from tests.support.running.suite import Fan, RunningSuite, bearer, problem

SAME = {"name": "A fan", "email": "same@example.org"}


async def test_a_part_is_given_back_the_rest_is_bought_and_counts_on_the_whole_tour(suite: RunningSuite) -> None:
    tour = {"tour": {"tour_id": "tour-1", "tickets_per_customer": 3}}
    first, second = await suite.open_event(sales=tour), await suite.open_event(sales=tour)
    async with suite.browser() as browser:
        fan = await Fan(browser, first).come_in()
        hold = await fan.hold(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 3}])
        path = f"/events/{first}/reservations/{hold['reservation_id']}/keep"
        kept = {"seats": ["A-1-2"], "ga": [{"section_id": "GA1", "quantity": 1}]}
        answer = await browser.post(path, json=kept, headers=bearer(fan.admission))
        assert answer.status_code == 200, answer.text
        assert problem(await fan.order(hold)) == (409, "price-changed"), "as it was shown before"
        bought = await fan.ending((await fan.order(answer.json(), customer=SAME)).json())
        assert (bought["status"], sum(line["quantity"] for line in bought["lines"])) == ("confirmed", 2)
    async with suite.browser() as browser:
        again = await Fan(browser, second).come_in()
        refused = await again.order(await again.hold(seats=["A-1-1", "A-1-2"]), customer=SAME)
        assert problem(refused) == (409, "limit-exceeded")
        told = {name: refused.json()[name] for name in ("limit", "allowed", "used")}
        assert told == {"limit": "tour_tickets_per_customer", "allowed": 3, "used": 2}
    assert await suite.audit(first) == await suite.audit(second) == []
