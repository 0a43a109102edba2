"""A presale: a lane for access codes beside the general lane, called by weight; each code is used once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer, problem
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
    assert await suite.audit(event_id) == []


async def test_operators_create_list_and_revoke_codes_and_change_lanes(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"lanes": LANES, "max_active": 0})
    admin_path, room_path = f"/admin/queue/events/{event_id}", f"/admin/events/{event_id}/room"
    async with suite.operator() as operator, suite.browser() as browser:
        codes = (await operator.post(f"{admin_path}/codes", json={"lane": 1, "count": 3, "uses": 2})).json()["codes"]
        await join(browser, event_id, codes[0])
        page = (await operator.get(f"{admin_path}/codes?lane=1&page_size=2")).json()
        rest = (await operator.get(page["next"])).json()
        assert (len(page["codes"]), len(rest["codes"]), rest["next"]) == (2, 1, None)
        assert len({code["code_id"] for code in page["codes"] + rest["codes"]}) == 3
        assert not any(code in str(page) for code in codes), "a listing shows no code"
        for body, revoked in (({"codes": codes[:1]}, 1), ({"codes": codes[:1]}, 0), ({"code_ids": ["0" * 16]}, 0)):
            answer = await operator.post(f"{admin_path}/codes/revoke", json=body)
            assert (answer.status_code, answer.json()) == (200, {"revoked": revoked})
        known = (await operator.get(f"{admin_path}/codes")).json()["codes"]
        ids = [code["code_id"] for code in known if code["revoked_at"] is None]
        assert (await operator.post(f"{admin_path}/codes/revoke", json={"code_ids": ids})).json() == {"revoked": 2}
        refused = await browser.post(f"/events/{event_id}/queue", json={"code": codes[1]})
        assert problem(refused) == (403, "code-unknown")

        before = (await operator.get(room_path)).json()
        for path, body, refusal in (
            ("/codes", {"lane": 2}, (422, "lane-takes-no-codes")), ("/codes", {"lane": 0}, (422, "invalid-request")),
            ("/codes", {"lane": 1, "count": 10_001}, (422, "invalid-request")),
            ("/codes/revoke", {"code_ids": ["x"]}, (422, "invalid-request")),
        ):  # fmt: skip
            assert problem(await operator.post(f"{admin_path}{path}", json=body)) == refusal
        gone = await operator.patch(room_path, json={"lanes": LANES[:1]})
        assert problem(gone) == (409, "lane-in-use")
        assert problem(await operator.patch(room_path, json={"lanes": LANES[1:]})) == (422, "invalid-request")
        assert problem(await browser.post(f"{admin_path}/codes", json={"lane": 1})) == (401, "no-credential")
        assert (await operator.get(room_path)).json()["version"] == before["version"], "nothing changed"
        changed = await operator.patch(room_path, json={"lanes": [LANES[0], {**LANES[1], "weight": 7}]})
        assert changed.json()["lanes"]["1"]["weight"] == 7


async def join(browser, event_id: str, code: str | None) -> dict:
    answer = await browser.post(f"/events/{event_id}/queue", json={"code": code} if code else {})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def status(browser, event_id: str, token: str) -> str:
    answer = await browser.get(f"/events/{event_id}/queue/status", headers=bearer(token))
    return str(answer.json()["status"])
