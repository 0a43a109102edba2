"""With `ONSALE_LOG_SALE=1` each step of a sale leaves a line with event, request and time; without it there is none."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from onsale.local.suite_services import Suite
from onsale.local.up import up
from shared.runtime import tracing as module
from shared.runtime.logging import request_fields
from shared.runtime.tracing import SaleLog
from tests.support.engines.engines import fast_directory
from tests.support.running.suite import RunningSuite, bearer, card, fan_of, no_cookies
from tests.support.wait import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(120)]
OF_REQUESTS = {"sale.join", "sale.leave", "sale.position", "sale.claim", "sale.hold", "sale.release", "sale.order"}
OF_WORK = {
    "sale.admission", "sale.batch", "sale.engine", "sale.statement", "sale.seats", "sale.payment_step",
    "sale.payment_timeout", "sale.publish", "sale.deliver", "sale.connect", "sale.disconnect",
}  # fmt: skip
ENDLESS = {"sale.connect", "sale.payment_timeout", "sale.seats"}  # a moment, without a duration of its own


class Lines(list[dict[str, Any]]):
    """What the lines would be."""

    def info(self, name: str, **facts: Any) -> None:
        orjson.dumps(facts, option=orjson.OPT_NON_STR_KEYS)
        self.append({**request_fields.get(), **facts, "name": name})

    def named(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self if line["name"] == name]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Lines:
    collected = Lines()
    monkeypatch.setattr(module, "SALE", collected)
    for name in ("on", "share"):
        monkeypatch.setattr(module.sale_log, name, getattr(SaleLog(), name))
    return collected


@pytest.fixture
async def logged_suite(lines: Lines, share: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningSuite]:
    """A suite in this process, so that its lines can be seen."""
    monkeypatch.setenv("ONSALE_LOG_SALE", share)
    monkeypatch.setenv("ORDERS_PROVIDER_TIMEOUT_S", "0.5")
    with tempfile.TemporaryDirectory(prefix="onsale-logged-", dir=fast_directory()) as folder:
        here = RunningSuite(Path(folder) / "data")
        async with up(Suite(here.data_dir, [], port=here.port, report=lambda _: None)):
            yield here


async def go_through_a_sale(suite: RunningSuite, event_id: str) -> list[str]:
    """One fan leaves, one buys while they watch a stream; what no line may have in it."""
    async with httpx.AsyncClient(base_url=suite.url, timeout=20, cookies=no_cookies()) as client:
        leaver = fan_of(client, event_id)
        await leaver.join()
        await leaver.leave()
        fan = await fan_of(client, event_id).come_in()
        path = f"/events/{event_id}"
        async with client.stream("GET", f"{path}/sections/updates", headers=bearer(fan.admission)) as stream:
            assert stream.status_code == 200
            held = await fan.hold({"seats": ["A-1-1"]})
            async for line in stream.aiter_lines():
                if '"held"' in line or "held" in line:
                    break
            await fan.release(held)
        placed = await fan.order(await fan.hold({"seats": ["A-1-2"]}), payment=card("timeout_after_success"))
        secrets = (fan.queue_token, fan.admission, fan.checkout_key, leaver.queue_token, placed["order_token"])
        return [*map(str, secrets), "example.org", "A fan"]


@pytest.mark.parametrize("share", ["1"])
async def test_every_step_of_a_sale_has_a_line_with_its_event_its_request_and_its_time(
    logged_suite: RunningSuite, lines: Lines
) -> None:
    event_id = await logged_suite.open_event()
    secrets = await go_through_a_sale(logged_suite, event_id)

    async def all_there() -> bool:
        return {line["name"] for line in lines} >= OF_REQUESTS | OF_WORK

    await wait_until(all_there, timeout_s=30)
    for name in OF_REQUESTS:
        [*_, line] = lines.named(name)
        assert line["event_id"] == event_id, line
        assert line["request_id"] and line["ms"] >= 0 and line["status"] < 300, line  # noqa: PT018
    for name in OF_WORK:
        found = lines.named(name)
        assert any(line.get("event_id") == event_id for line in found), name
        assert name in ENDLESS or all(line["ms"] >= 0 for line in found), name
    for name in ("sale.batch", "sale.engine", "sale.statement", "sale.connect", "sale.disconnect"):
        assert any(line.get("request_id") for line in lines.named(name)), name
    [hold, *_] = lines.named("sale.hold")
    followed = {line["name"] for line in lines if line.get("request_id") == hold["request_id"]}
    assert {"sale.hold", "sale.engine", "sale.statement", "sale.seats"} <= followed, "the id leads through its batch"
    [join, *_] = lines.named("sale.join")
    scripts = {str(line.get("script")) for line in lines if line.get("request_id") == join["request_id"]}
    assert any(script.startswith("services.queue") for script in scripts), "and from the gateway to the queue"
    for secret in secrets:
        assert secret not in str(lines)


@pytest.mark.parametrize("share", ["0"])
async def test_without_the_setting_there_is_no_line(logged_suite: RunningSuite, lines: Lines) -> None:
    await go_through_a_sale(logged_suite, await logged_suite.open_event())
    assert lines == []
