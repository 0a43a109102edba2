"""A real purchase, recorded: the checker of histories finds nothing, and misses nothing."""

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer
from tests.support.wait import wait_until


async def test_a_real_purchase_with_a_refund_is_clean(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        given_back = await fan.hold({"seats": ["A-1-2"]})
        await fan.release(given_back)
        held = await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        first = await fan.buy(await fan.keep(held, {"seats": ["A-1-1"]}))
        left = await fan_of(browser, event_id).come_in()
        await left.leave()
        refunded = await browser.post(
            f"/admin/orders/{first['reference']}/refund", json={"reason": "ill"},
            headers={**bearer(suite.admin_key), "idempotency-key": "a-refund-of-the-test"},
        )  # fmt: skip
        assert refunded.status_code == 202, refunded.text

    async def refund_is_through() -> bool:
        return not (await suite.checked(event_id)).violations

    await wait_until(refund_is_through)
    report = await suite.checked(event_id)
    assert {"joined", "called", "claimed", "held", "kept", "released", "left", "ordered", "refund_requested"} <= {
        *report.read
    }
