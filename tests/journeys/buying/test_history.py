"""A real purchase, recorded: the checker of histories finds nothing, and misses nothing."""

from pathlib import Path

import httpx

from onsale.history.checker import check
from onsale.history.checks.books import Sources
from onsale.history.log import History
from onsale.history.transport import RecordingTransport
from onsale.local.engines import with_driver
from tests.support.running.suite import Fan, RunningSuite, bearer, no_cookies


async def test_a_real_purchase_with_a_refund_is_clean(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event()
    history = History(tmp_path / "history.jsonl")
    transport = RecordingTransport(httpx.AsyncHTTPTransport(), history)
    async with httpx.AsyncClient(base_url=suite.url, transport=transport, cookies=no_cookies(), timeout=20) as browser:
        fan = await Fan(browser, event_id).come_in()
        given_back = await fan.hold(seats=["A-1-2"])
        path = f"{fan.path}/reservations/{given_back['reservation_id']}"
        assert (await browser.delete(path, headers=bearer(fan.admission))).status_code == 204
        held = await fan.hold(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}])
        kept = await browser.post(
            f"{fan.path}/reservations/{held['reservation_id']}/keep", json={"seats": ["A-1-1"]},
            headers=bearer(fan.admission),
        )  # fmt: skip
        first = await fan.buy(kept.json())
        left = await Fan(browser, event_id).come_in()
        gone = await browser.delete(f"{left.path}/queue", headers=bearer(left.token))
        assert gone.status_code == 204, gone.text
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
