"""Commands against the running suite: access codes, the audit of a new event, hold times.

`onsale order` against a running suite: an order's commands and the share of the background.
"""

import asyncio
from pathlib import Path

import pytest

from features.reports import cli
from features.reports.schemas import HoldTimesReport
from tests.support.running.command_line import Command
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite

TIMES = {"holds": 2, "percentiles_s": dict.fromkeys(cli.PERCENTILES, 12.5),
         "histogram": [{"from_s": 0, "to_s": 10, "holds": 0}, {"from_s": 10, "to_s": 20, "holds": 2},
                       {"from_s": 20, "to_s": None, "holds": 0}]}  # fmt: skip
HALF = {"value": 0.5, "low": 0.3, "high": 0.7}
REPORT = {
    "event_id": "arena-2026", "holds": 4, "fans": 3, "to_payment": TIMES, "to_confirmed": TIMES,
    "returning": {"left": 2, "returned": 1, "bought": 1, "share": HALF},
    "suggestion": {"hold_ttl_s": 140, "now_s": 600, "kept_percent": 99, "buyers": 200, "buyers_min": 100,
                   "late_percent": 0.5},
    "arms": [{"arm": "a", "hold_ttl_s": 600, "fans": 9, "bought": 4, "open": 1, "conversion": HALF},
             {"arm": "b", "hold_ttl_s": 300, "fans": 0, "bought": 0, "open": 2, "conversion": None}],
    "b_minus_a": {"value": 0.0, "low": -0.1, "high": 0.1, "verdict": "no difference shown"},
}  # fmt: skip


def test_access_codes_are_created_shown_once_listed_and_revoked(
    operate: Command, suite: RunningSuite, tmp_path: Path
) -> None:
    event_id = asyncio.run(suite.open_event(room={"lanes": [
        {"lane": 0, "name": "General"}, {"lane": 1, "name": "Presale", "weight": 3, "code_required": True},
    ]}))  # fmt: skip
    codes = operate("codes", "create", event_id, "--lane", "1", "--count", "3").stdout.split()
    assert len(set(codes)) == 3
    listed = operate("codes", "list", event_id).stdout
    assert "0 of 1" in listed
    assert not any(code in listed for code in codes)
    assert "Presale" in operate("room", "show", event_id).stdout
    code_file = tmp_path / "codes.txt"
    code_file.write_text("\n".join(codes))
    assert "3 codes revoked" in operate("codes", "revoke", event_id, "--file", str(code_file)).stdout
    assert operate("codes", "revoke", event_id).returncode == 2
    refused = operate("codes", "create", event_id, "--lane", "1", "--file", str(code_file))
    assert refused.returncode == 2
    assert "is there already" in refused.stderr
    assert operate("codes", "create", event_id, "--lane", "5").returncode == 2


def test_the_audit_of_a_new_event_is_clean(operate: Command) -> None:
    result = operate("audit", "arena-2026")
    assert result.returncode == 0, result.stdout
    assert "NO" not in result.stdout


def test_hold_times_are_printed(operate: Command, suite: RunningSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "No hold has ended unpaid." in operate("stock", "hold-times", asyncio.run(suite.open_event())).stdout
    assert operate("stock", "hold-times", "nowhere").returncode == 2
    monkeypatch.setattr(cli, "with_admin", lambda _: HoldTimesReport.model_validate(REPORT))
    output = operate("stock", "hold-times", "arena-2026").stdout
    for text in ("4 holds of 3 fans", "12.5 s", "10 to 20 s", "2 fans had a hold end unpaid; 1 held again", "50.0%",
                 "hold_ttl_s: 140", "no difference shown"):  # fmt: skip
        assert text in output


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
