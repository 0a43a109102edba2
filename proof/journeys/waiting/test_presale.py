"""Operators create, list and revoke access codes, and change lanes."""

from tests.support.running.suite import RunningSuite, problem

LANES = [
    {"lane": 0, "name": "General", "weight": 1},
    {"lane": 1, "name": "Presale", "weight": 3, "code_required": True},
]


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
