"""The core is whole: a copy of the tree without `features/` queues, holds, sells, refunds, and survives the loss of
Redis.
"""

import os
import shutil
from pathlib import Path

from redis.asyncio import Redis

from onsale.client import Problem
from shared.errors.problems import MEDIA_TYPE
from tests.support.running.suite import bearer, fan_of, running_suite
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[1]
CORE = ("services", "shared", "onsale")


async def test_a_copy_without_features_sells_and_refunds(tmp_path: Path) -> None:
    for folder in CORE:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore, copy_function=os.link)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "__init__.py").touch()  # an installed package of this name would be found without it
    with running_suite(PYTHONPATH=str(tmp_path)) as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser, suite.operator() as operator:
            for page in ("/console/", f"/e/{event_id}"):
                refused = await browser.get(page, headers={"accept": "text/html"})
                assert (refused.status_code, refused.headers["content-type"]) == (404, MEDIA_TYPE)
            fan = await fan_of(browser, event_id).come_in()
            order = await fan.order(await fan.hold({"seats": ["A-1-1", "A-1-2"]}))
            assert (await fan.settled(order))["status"] == "confirmed"
            reference = order["reference"]
            refund = {"reason": "fell ill", "tickets": {"seats": ["A-1-1"]}, "return_to_sale": True}
            key = {"idempotency-key": "one-seat-back"}
            answer = await operator.post(f"/admin/orders/{reference}/refund", json=refund, headers=key)
            assert answer.is_success, answer.text

            async def is_refunded() -> bool:
                shown = await browser.get(f"/orders/{reference}", headers=bearer(order["order_token"]))
                return bool(shown.json()["status"] == "partially_refunded")

            await wait_until(is_refunded)
            async with Redis.from_url(suite.engines["redis_url"]) as redis:
                await redis.flushall()
            other = fan_of(browser, event_id)

            async def sells_again() -> bool:
                try:
                    await other.come_in()
                    held = await other.hold({"seats": ["A-1-1"]})
                except Problem:
                    return False
                return (await other.buy(held))["status"] == "confirmed"

            await wait_until(sells_again, timeout_s=20)
        assert await suite.audit(event_id) == []
        assert "/console/" not in suite.log_text()
