"""`onsale webhooks` against a running suite and a webhook receiver."""

import asyncio

from tests.support.providers.receiver import webhook_receiver
from tests.support.running.program import Command
from tests.support.running.suite import RunningSuite, fan_of
from tests.support.wait import wait_until


async def run(operate: Command, *arguments: str) -> str:
    result = await asyncio.to_thread(operate, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


async def test_an_operator_adds_lists_resends_enables_and_removes_a_webhook_endpoint(
    operate: Command, suite: RunningSuite
) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, webhook_receiver() as receiver:
        added = await run(operate, "webhooks", "add", f"{receiver.url}/crm", "--event", event_id)
        endpoint_id, secret = added.split()[0], added.split()[-1]
        fan = await fan_of(browser, event_id).come_in()
        order = await fan.buy(await fan.hold({"ga": [{"section_id": "GA1", "quantity": 1}]}))
        await wait_until(lambda: sorted(receiver.event_types) == ["order.confirmed", "order.created"], timeout_s=10)
        assert {request.verified(secret)["data"]["reference"] for request in receiver.received} == {order["reference"]}
        assert "healthy" in await run(operate, "webhooks", "list")

        async def deliveries() -> list[str]:
            listed = await run(operate, "webhooks", "deliveries", endpoint_id, "--status", "delivered")
            return [line.split()[1] for line in listed.splitlines() if order["reference"] in line]

        await wait_until(deliveries)
        delivery, *_ = await deliveries()
        assert order["reference"] in await run(operate, "webhooks", "resend", delivery)
        await wait_until(lambda: len(receiver.received) == 3, timeout_s=10)
        await run(operate, "webhooks", "enable", endpoint_id)
        await run(operate, "webhooks", "remove", endpoint_id)
        assert (await asyncio.to_thread(operate, "webhooks", "deliveries", endpoint_id)).returncode == 2
