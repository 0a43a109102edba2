"""With `ONSALE_FEATURES_OFF=reports` a suite sells and rehearses, and says on its screens what is not counted."""

from features.console.cli.rehearse import Rehearsal
from onsale.admin_client import AdminClient
from onsale.simulate.command import Crowd
from tests.journeys.console.test_screen_of_a_sale import snapshot
from tests.support.running.fans import fan_of
from tests.support.running.suite import running_suite
from tests.support.wait import wait_until


async def test_without_reports_a_sale_goes_on_and_the_console_says_what_is_not_counted() -> None:
    with running_suite(ONSALE_FEATURES_OFF="reports") as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser, suite.operator() as operator:
            fan = await fan_of(browser, event_id).come_in()
            assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
            assert (await operator.get(f"/admin/orders/events/{event_id}/flow")).status_code == 404

            async def is_said() -> bool:
                found = await snapshot(operator, event_id)
                assert "ServiceDown" not in {alarm.name for alarm in found.alarms}
                stock, without = found.vitals.stock, found.vitals.without_reports
                return (without, stock.sold, stock.paying) == (["queue", "inventory", "orders"], 1, None)

            await wait_until(is_said, timeout_s=10)
            admin = AdminClient(operator, suite.url, suite.admin_key)
            rehearsal = Rehearsal(
                admin=admin, url=suite.url, event_id=event_id, fans=1, seed=1, arrive_over_s=0, reason="a test"
            )
            crowd = Crowd(suite.url, event_id, fans=1, arrive_over_s=0, seed=1, streams=0)
            assert (await rehearsal._result(event_id, crowd)).wait_p50_s is None
        assert await suite.audit(event_id) == []
