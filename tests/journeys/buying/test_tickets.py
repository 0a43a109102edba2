"""From a purchase to the door: what the suite publishes is all a scanner needs."""

import sys
from pathlib import Path

import pytest

from onsale.cli import app as cli
from tests.support.running.suite import Fan, RunningSuite, bearer


async def test_a_fan_is_let_in_by_public_keys_alone(
    suite: RunningSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        answer = (await fan.order(await fan.hold(seats=["A-2-3"]))).json()
        assert (await fan.ending(answer))["status"] == "confirmed"
        mine = bearer(answer["order_token"])
        told = (await browser.get(f"/orders/{answer['reference']}/tickets", headers=mine)).json()
        keys = tmp_path / "keys.json"
        keys.write_bytes((await browser.get("/.well-known/ticket-keys.json")).content)
    [ticket] = told["tickets"]
    assert (told["event"]["name"], ticket["place"]) == ("A test", "Block A, row 2, seat 3")
    monkeypatch.setattr(sys, "argv", ["onsale", "tickets", "verify", ticket["code"], "--keys", str(keys)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, "A-2-3" in capsys.readouterr().out) == (0, True)
    assert await suite.audit(event_id) == []
