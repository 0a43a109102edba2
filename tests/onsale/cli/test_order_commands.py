"""What operators type about orders and webhooks, against the running suite and an organiser's server."""

import asyncio

from tests.support.providers.receiver import receiving
from tests.support.running.command_line import Command
from tests.support.running.suite import Fan, RunningSuite
from tests.support.wait import wait_until


async def said(operate: Command, *words: str) -> str:
    ended = await asyncio.to_thread(operate, *words)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def test_an_organiser_is_told_and_an_operator_sees_to_it(operate: Command, suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, receiving() as receiver:
        added = await said(operate, "webhooks", "add", f"{receiver.url}/crm", "--event", event_id)
        endpoint_id, secret = added.split()[0], added.split()[-1]
        fan = await Fan(browser, event_id).come_in()
        order = await fan.buy(await fan.hold(ga_section="GA1", ga_quantity=1))
        await wait_until(lambda: sorted(receiver.kinds) == ["order.confirmed", "order.created"], timeout_s=10)
        assert {one.verified(secret)["data"]["reference"] for one in receiver.received} == {order["reference"]}
        assert "healthy" in await said(operate, "webhooks", "list")

        async def sent() -> list[str]:
            told = await said(operate, "webhooks", "deliveries", endpoint_id, "--status", "delivered")
            return [line.split()[1] for line in told.splitlines() if order["reference"] in line]

        await wait_until(sent)
        delivery, *_ = await sent()
        assert order["reference"] in await said(operate, "webhooks", "resend", delivery)
        await wait_until(lambda: len(receiver.received) == 3, timeout_s=10)
        await said(operate, "webhooks", "enable", endpoint_id)
        await said(operate, "webhooks", "remove", endpoint_id)
        assert (await asyncio.to_thread(operate, "webhooks", "deliveries", endpoint_id)).returncode == 2


async def test_an_operator_reads_what_was_done_and_switches_who_does_it(operate: Command, suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    assert "100 % in the background" in await said(operate, "order", "background", event_id)
    assert "0 % in the background" in await said(operate, "order", "background", event_id, "--percent", "0")
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        answer = await fan.order(await fan.hold(ga_section="GA1", ga_quantity=1))
    assert answer.json()["status"] == "confirmed", "in its request"
    reference = answer.json()["reference"]
    done = await said(operate, "order", "commands", "--reference", reference)
    assert [word in done for word in ("reserve", "checkout", "confirm", "payment")] == [True] * 4
    command_id = next(line.split()[-2] for line in done.splitlines() if "checkout" in line)
    refused = await asyncio.to_thread(operate, "order", "rerun", command_id)
    assert (refused.returncode, refused.stderr) == (2, "onsale: This command has completed.\n")
    assert await suite.audit(event_id) == []
