"""`onsale webhooks` and `onsale order` against a running suite and a webhook receiver."""

import asyncio

from tests.support.providers.receiver import webhook_receiver
from tests.support.running.command_line import Command
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite
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


async def test_an_operator_lists_an_orders_commands_and_sets_the_background_share(
    operate: Command, suite: RunningSuite
) -> None:
    event_id = await suite.open_event()
    assert "100 % in the background" in await run(operate, "order", "background", event_id)
    assert "0 % in the background" in await run(operate, "order", "background", event_id, "--percent", "0")
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        answer = await fan.order(await fan.hold({"ga": [{"section_id": "GA1", "quantity": 1}]}))
    assert answer["status"] == "confirmed", "processed in its request"
    reference = answer["reference"]
    commands = await run(operate, "order", "commands", "--reference", reference)
    assert [name in commands for name in ("reserve", "checkout", "confirm", "payment")] == [True] * 4
    command_id = next(line.split()[-2] for line in commands.splitlines() if "checkout" in line)
    refused = await asyncio.to_thread(operate, "order", "rerun", command_id)
    assert (refused.returncode, refused.stderr) == (2, "onsale: This command has completed.\n")
    assert await suite.audit(event_id) == []
