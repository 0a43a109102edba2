"""A real purchase, recorded: the checker of histories finds nothing, and misses nothing."""

from pathlib import Path

import httpx

from onsale.history.checker import check
from onsale.history.checks.books import Sources
from onsale.history.log import History
from onsale.history.transport import RecordingTransport
from onsale.local.engines import with_driver
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, no_cookies


async def test_a_real_purchase_with_a_refund_is_clean(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event()
    history = History(tmp_path / "history.jsonl")
    transport = RecordingTransport(httpx.AsyncHTTPTransport(), history)
    async with httpx.AsyncClient(base_url=suite.url, transport=transport, cookies=no_cookies(), timeout=20) as browser:
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
    engines = suite.engines
    url = with_driver(engines["postgres_url"])
    report = await check(history.path, Sources(url, url, url, engines["sandbox_url"]), [event_id])
    assert report.violations == []
    assert {"joined", "called", "claimed", "held", "kept", "released", "left", "ordered", "refund_requested"} <= {
        *report.read
    }
