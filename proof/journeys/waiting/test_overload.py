"""The overload guard: a slow inventory lowers the admission rate, and the rate rises again afterwards.

Operators create, list and revoke access codes, and change lanes.

An allotment is opened after an event sold out, and the line calls fans again.
"""

import asyncio
from typing import Any

import asyncpg

from onsale.client import Problem
from tests.support.running.suite import RunningSuite, fan_of, has_status, problem
from tests.support.wait import wait_until

SLOW_MS, FANS = 300, 14


async def test_a_slow_inventory_lowers_the_admission_rate_within_thirty_seconds(suite: RunningSuite) -> None:
    room = {"rate_per_s": 200, "burst": 50, "pace": {"guard": "on", "slow_ms": SLOW_MS}}
    event_id = await suite.open_event(room=room)
    database = await asyncpg.connect(suite.engines["postgres_url"].replace("+asyncpg", ""))
    async with suite.operator() as operator, suite.browser() as browser:
        room_now: dict[str, Any] = {}

        async def is_throttled() -> bool:
            room_now.update((await operator.get(f"/admin/events/{event_id}/room")).json())
            return room_now["throttled"] is not None

        fans = await asyncio.gather(*(fan_of(browser, event_id).come_in() for _ in range(FANS)))
        transaction = database.transaction()
        await transaction.start()
        await database.execute("LOCK TABLE inventory.reservation IN ACCESS EXCLUSIVE MODE")
        holds = [asyncio.create_task(fan.hold({"ga": [{"section_id": "GA1", "quantity": 1}]})) for fan in fans]
        await wait_until(is_throttled, timeout_s=30)
        await transaction.rollback()
        await database.close()
        assert room_now["throttled"]["reason"].startswith("inventory-")
        assert room_now["effective_rate_per_s"] < room_now["rate_per_s"] == 200
        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert line["throttled"]["factor"] < 1
        refused = [each for each in await asyncio.gather(*holds, return_exceptions=True) if isinstance(each, Exception)]
        assert all(isinstance(each, Problem) and each.status == 503 for each in refused), refused

        lowest = room_now["effective_rate_per_s"]

        async def rate_rises() -> bool:
            nonlocal lowest
            await is_throttled()
            lowest = min(lowest, room_now["effective_rate_per_s"])
            return bool(room_now["effective_rate_per_s"] > lowest)

        await wait_until(rate_rises, timeout_s=30)
    assert await suite.wrong(event_id) == []


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


FLOOR = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 4, "price_minor": 3000, "fee_minor": 100}


async def test_a_sold_out_line_calls_again_when_an_allotment_opens(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sections=[FLOOR], room={"max_active": 1, "burst": 1})
    stock = f"/admin/inventory/events/{event_id}"
    async with suite.browser() as browser, suite.operator() as operator:
        allotment = {"name": "Radio", "kind": "channel", "ga": [{"section_id": "GA1", "quantity": 2}]}
        assert (await operator.put(f"{stock}/allotments/radio", json=allotment)).is_success
        first, second = await fan_of(browser, event_id).come_in(), fan_of(browser, event_id)
        await second.join()
        reservation = await first.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
        assert (await first.buy(reservation))["status"] == "confirmed"

        async def is_sold_out() -> bool:
            return bool((await browser.get(f"/events/{second.event_id}/queue")).json()["state"] == "sold_out")

        await wait_until(is_sold_out, timeout_s=20)
        # the second fan may have been called just before the queue learned that nothing is left
        assert (await second.status())["status"] in ("waiting", "ready")

        opened = await operator.post(f"{stock}/allotments/radio/open", json={"reason": "sold nothing"})
        assert opened.json()["changed"] is True
        await wait_until(lambda: has_status(second, "ready"))
        await second.claim()
        assert (await second.buy(await second.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})))[
            "status"
        ] == "confirmed"
        report = (await operator.get(f"{stock}/stock")).json()
        assert (report["total"]["sold"], report["total"]["revenue_minor"]) == (4, 4 * 3100)
        sales = (await operator.get(f"{stock}/sales.csv")).text.splitlines()
        assert len(sales) == 3
    assert await suite.wrong(event_id) == []
