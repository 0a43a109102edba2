"""With `ONSALE_FEATURES_OFF=reports` a suite sells, rehearses, and says on its screens what is not counted."""

from features.console.cli.rehearse import Rehearsal
from onsale.admin_client import AdminClient
from onsale.simulate.command import Crowd
from tests.journeys.console.test_screen_of_a_sale import snapshot
from tests.support.running.fans import fan_of
from tests.support.running.suite import running_suite


async def test_without_reports_a_sale_goes_on() -> None:
    with running_suite(ONSALE_FEATURES_OFF="reports") as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser, suite.operator() as operator:
            fan = await fan_of(browser, event_id).come_in()
            assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
            assert (await operator.get(f"/admin/orders/events/{event_id}/flow")).status_code == 404
            found = await snapshot(operator, event_id)
            assert found.vitals.without_reports
            assert "ServiceDown" not in {alarm.name for alarm in found.alarms}
            admin, crowd = AdminClient(operator, suite.url, suite.admin_key), {"fans": 1, "seed": 1, "arrive_over_s": 0}
            rehearsal = Rehearsal(admin=admin, url=suite.url, event_id=event_id, reason="a test", **crowd)
            result = await rehearsal._result(event_id, Crowd(suite.url, event_id, streams=0, **crowd))
            assert result.wait_p50_s is None
        assert await suite.audit(event_id) == []
