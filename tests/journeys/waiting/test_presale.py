"""A presale: a lane for access codes beside the general lane, called by weight; each code is used once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.running.suite import RunningSuite, bearer, fan_of, problem
from tests.support.wait import wait_until

LANES = [
    {"lane": 0, "name": "General", "weight": 1},
    {"lane": 1, "name": "Presale", "weight": 3, "code_required": True},
]
EACH = 20


async def test_two_lanes_are_called_by_weight_and_each_code_is_used_once(
    suite: RunningSuite, operate: Callable[..., Awaitable[str]], tmp_path: Path
) -> None:
    event_id = await suite.open_event(room={"lanes": LANES, "max_active": 0})
    code_file = tmp_path / "codes.txt"
    options = ("--lane", "1", "--count", str(EACH), "--file", str(code_file))
    await operate("codes", "create", event_id, *options)
    assert code_file.stat().st_mode & 0o777 == 0o600
    codes = code_file.read_text().split()
    async with suite.browser() as browser, suite.operator() as operator:
        presale = [(await join(browser, event_id, code), 1) for code in codes]
        general = [(await join(browser, event_id, None), 0) for _ in range(EACH)]
        for fan, lane in presale + general:
            assert fan["lane"] == lane
        assert [place["join_seq"] for place, _ in presale] == list(range(1, EACH + 1)), "each lane has its own numbers"

        for code, refusal in ((codes[0], (409, "code-used-up")), ("0000-0000-0000-0000", (403, "code-unknown"))):
            assert problem(await browser.post(f"/events/{event_id}/queue", json={"code": code})) == refusal
        assert (await join(browser, event_id, None))["lane"] == 0, "the general lane needs no code"

        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert (line["lanes"]["1"]["name"], line["lanes"]["1"]["code_required"]) == ("Presale", True)
        room_path = f"/admin/events/{event_id}/room"
        await operator.patch(room_path, json={"max_active": 16})

        async def sixteen_are_called() -> bool:
            return bool((await operator.get(room_path)).json()["called"] == 16)

        await wait_until(sixteen_are_called)
        lanes = (await operator.get(room_path)).json()["lanes"]
        totals = [(lane["calls"], lane["contended_calls"], lane["fair_share"]) for lane in (lanes["0"], lanes["1"])]
        assert totals == [(4, 4, 4), (12, 12, 12)]
        for places, ready in ((presale, 12), (general, 4)):
            statuses = await asyncio.gather(*(status(browser, event_id, place["queue_token"]) for place, _ in places))
            assert statuses == ["ready"] * ready + ["waiting"] * (EACH - ready), "each lane is called in its order"

        buyer = fan_of(browser, event_id)
        buyer.queue_token = presale[0][0]["queue_token"]
        await buyer.claim()
        assert (await buyer.buy(await buyer.hold({"ga": [{"section_id": "GA1", "quantity": 1}]})))[
            "status"
        ] == "confirmed"

        listed = (await operator.get(f"/admin/queue/events/{event_id}/codes")).json()
        assert [(code["uses"], code["lane"]) for code in listed["codes"]] == [(1, 1)] * EACH
    assert await suite.wrong(event_id) == []


async def join(browser, event_id: str, code: str | None) -> dict:
    answer = await browser.post(f"/events/{event_id}/queue", json={"code": code} if code else {})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def status(browser, event_id: str, token: str) -> str:
    answer = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(token))
    return str(answer.json()["status"])
