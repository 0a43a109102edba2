"""A bought ticket is verified with the published keys alone, as a scanner does."""

from pathlib import Path

import pytest

from tests.support.running.command_line import command_line
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer


async def test_a_bought_ticket_is_verified_with_the_published_keys(
    suite: RunningSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        answer = await fan.order(await fan.hold({"seats": ["A-2-3"]}))
        assert (await fan.settled(answer))["status"] == "confirmed"
        owner = bearer(answer["order_token"])
        order_tickets = (await browser.get(f"/orders/{answer['reference']}/tickets", headers=owner)).json()
        keys = tmp_path / "keys.json"
        keys.write_bytes((await browser.get("/.well-known/ticket-keys.json")).content)
    [ticket] = order_tickets["tickets"]
    assert (order_tickets["event"]["name"], ticket["place"]) == ("A test", "Block A, row 2, seat 3")
    result = command_line(monkeypatch, capsys)("tickets", "verify", ticket["code"], "--keys", str(keys))
    assert (result.returncode, "A-2-3" in result.stdout) == (0, True)
    assert await suite.wrong(event_id) == []
