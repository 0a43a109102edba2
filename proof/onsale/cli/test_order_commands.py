"""`onsale order` against a running suite: an order's commands and the share of the background."""

import asyncio

from tests.support.running.command_line import Command
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite


async def run(operate: Command, *arguments: str) -> str:
    result = await asyncio.to_thread(operate, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


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
