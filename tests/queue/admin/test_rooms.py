"""The operators' desk: drain, admit by hand, rebuild, plan, history; each by its role, each in the audit log."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.queue.admission import gatekeeper
from services.queue.app import create_app
from services.queue.rooms.capacity_plan import SlotUse, make_plan, slot_use
from services.queue.settings import Settings
from shared.contracts.admin.queue import PlanRequest
from shared.contracts.frames import LaneHead, LineFrame
from shared.runtime.clock import now_ms, to_datetime
from shared.security.auth import AdminKeys
from shared.web.app import public
from shared.web.problems import Unavailable
from tests.queue.conftest import EVENT, Queue, event_file
from tests.support.wait import wait_until

ROLES = ("viewer", "operator", "admin")
AT, ROOM = f"/admin/queue/events/{EVENT}", f"/admin/events/{EVENT}/room"


async def move(queue: Queue, action: Any) -> None:
    room = await queue.state.rooms.transition(EVENT, action, actor="test", reason=None)
    await queue.state.gatekeeper.apply_config(room)


async def hand_in(queue: Queue, count: int) -> int:
    room = await queue.state.rooms.read(EVENT)
    return await gatekeeper.admit_now(queue.state.line, queue.state.gatekeeper, room, count)


# -- draining ----------------------------------------------------------------------------------------------------------


async def test_a_draining_room_takes_nobody_new_and_calls_whoever_is_in_line(queue: Queue) -> None:
    await queue.open(rate_per_s=10, burst=1)
    await queue.crowd(6)
    await move(queue, "drain")
    assert [joined.word for joined in await queue.join("late")] == ["closed"]
    assert [joined.word for joined in await queue.join("fan-3", may_be_known=True)] == ["known"]
    frame = [await queue.tick(0.2) for _ in range(10)][-1]
    assert (frame.state, await queue.called()) == ("draining", [1, 2, 3, 4, 5, 6])
    assert (await queue.claim((2, "fan-2")))[0].word == "admitted"
    await move(queue, "open")
    assert [joined.word for joined in await queue.join("late")] == ["joined"]


async def test_draining_from_a_pause_starts_with_an_empty_bucket_and_the_database_refuses_too(queue: Queue) -> None:
    await queue.open(rate_per_s=10, burst=50)
    await queue.crowd(60)
    await move(queue, "pause")
    await queue.tick(60)
    await move(queue, "drain")
    await queue.tick(0.2)
    assert len(await queue.called()) <= 3
    await queue.redis.flushall()
    queue.state.line.unresponsive.add(EVENT)
    assert [joined.word for joined in await queue.join("late")] == ["closed"]


async def test_a_paused_room_closes_when_its_sale_ends(queue: Queue) -> None:
    ends = to_datetime(now_ms()) + timedelta(seconds=20)
    await queue.open(sale_ends_at=ends.isoformat())
    await move(queue, "pause")
    assert (await queue.tick(1)).state == "paused"
    assert (await queue.tick(30)).state == "closed"
    assert await hand_in(queue, 5) == 0


@pytest.mark.parametrize("how", ["close", "end"])
async def test_in_a_closed_room_nobody_gets_a_pass_and_who_has_one_keeps_it(queue: Queue, how: str) -> None:
    ends = to_datetime(now_ms()) + timedelta(seconds=60)
    await queue.open(sale_ends_at=ends.isoformat())
    await queue.crowd(2)
    await queue.tick()
    [had] = await queue.claim((1, "fan-1"))
    if how == "close":
        await move(queue, "close")
    else:
        await queue.tick(61)
    again, late = await queue.claim((1, "fan-1"), (2, "fan-2"))
    assert (again.admission, late.admission, late.word) == (had.admission, None, "waiting")


# -- by hand -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False])
async def test_admits_by_hand_cost_no_tokens_and_what_cannot_be_called_is_forgotten(
    queue: Queue, without, guarded: bool
) -> None:
    if not guarded:
        without("tick", "set.admit_now, set.manually_admitted = 0,", "set.manually_admitted =")
    await queue.open(rate_per_s=0, max_active=7)
    await queue.crowd(20)
    await move(queue, "pause")
    assert await hand_in(queue, 3) == 3
    assert await hand_in(queue, 10) == 4, "never above max_active"
    assert await queue.called() == [1, 2, 3, 4, 5, 6, 7]
    room = await queue.state.rooms.read(EVENT)
    await gatekeeper._request_admissions(queue.state.line, room, 9)
    await queue.tick()
    await queue.configure(max_active=20)
    await queue.tick()
    assert (len(await queue.called()) == 7) == guarded


async def test_admits_by_hand_come_on_top_of_the_rate(queue: Queue) -> None:
    await queue.open(rate_per_s=10, burst=1)
    await queue.crowd(100)
    await queue.tick(1)
    before = len(await queue.called())
    assert await hand_in(queue, 20) == 20
    for _ in range(5):
        await queue.tick(0.2)
    assert len(await queue.called()) - before in range(21, 33)


async def test_a_redis_being_rebuilt_calls_nobody_by_hand(queue: Queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    with pytest.raises(Unavailable):
        await hand_in(queue, 5)


async def test_a_rebuild_by_hand_keeps_places_order_and_calls(queue: Queue) -> None:
    await queue.open(rate_per_s=5, burst=2)
    await queue.crowd(10)
    await queue.tick(1)
    called, generation = await queue.called(), (await queue.room_hash())["generation"]
    assert await queue.state.recovery.rebuild(EVENT) is False, "nothing to do by itself"
    assert await queue.state.recovery.rebuild(EVENT, force=True) is True
    assert int((await queue.room_hash())["generation"]) == int(generation) + 1
    assert await queue.called() == called
    await queue.tick(1)
    await queue.tick(1)
    assert (await queue.called())[: len(called) + 1] == [*called, called[-1] + 1]


# -- reset -------------------------------------------------------------------------------------------------------------


async def test_no_pass_of_the_new_line_before_inventory_has_killed_the_old_ones(queue: Queue, inventory) -> None:
    await queue.open()
    room = await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    await queue.state.gatekeeper.apply_config(room)
    await queue.tick()
    [joined] = await queue.join("ann")
    await queue.tick()
    question = queue.places((joined.join_seq, "ann"), epoch=2)
    inventory.away = True
    with pytest.raises(Unavailable):
        await queue.state.claims.claim(question)
    inventory.away = False
    assert [claim.word for claim in await queue.state.claims.claim(question)] == ["admitted"]
    await queue.state.claims.claim(question)
    assert inventory.floors == [2], "asked once, remembered"


async def test_a_reset_that_inventory_did_not_hear_of_is_told_again(queue: Queue, inventory) -> None:
    await queue.open()
    await queue.state.rooms.reset(EVENT, actor="test", reason=None)
    inventory.away = True
    await queue.state.control_loop.run_once()
    assert inventory.floors == []
    inventory.away = False
    for _ in range(3):
        await queue.state.control_loop.run_once()
    assert inventory.floors == [2]


# -- the dry run -------------------------------------------------------------------------------------------------------


def live(head: int = 0, tail: int = 7200, **facts: Any) -> LineFrame:
    return LineFrame.model_validate({
        "event_id": EVENT, "epoch": 1, "version": 1, "ready": True, "at_ms": 1, "state": "open", "rate_per_s": 50.0,
        "lanes": {0: LaneHead(head_seq=head, tail_seq=tail)}, "live_ratio": 0.5, **facts,
    })  # fmt: skip


async def test_a_plan_says_when_the_line_drains_and_what_binds(queue: Queue) -> None:
    await queue.open(rate_per_s=50, max_active=100)
    room = await queue.state.rooms.read(EVENT)
    at_ms = 1_800_000_000_000
    plan = make_plan(room, live(), SlotUse(), PlanRequest(rate_per_s=10), at_ms=at_ms)
    assert (plan.expected_calls, plan.limiting_factor, plan.drains_in_s) == (3600, "rate", 360)
    assert "drains at 08:06 UTC" in plan.summary
    plan = make_plan(room, live(), SlotUse(slot_s=20.0), PlanRequest(), at_ms=at_ms)
    assert (plan.limiting_factor, plan.calls_per_s, plan.drains_in_s) == ("max_active", 5, 720)
    assert "max_active 100 limits" in plan.summary
    plan = make_plan(room, live(), SlotUse(slot_s=20.0), PlanRequest(max_active=2000), at_ms=at_ms)
    assert (plan.limiting_factor, plan.drains_in_s) == ("rate", 72)
    assert make_plan(room, live(7200), SlotUse(), PlanRequest()).limiting_factor == "nobody waits"
    await queue.configure(max_active=0)
    stuck = make_plan(await queue.state.rooms.read(EVENT), live(), SlotUse(), PlanRequest())
    assert (stuck.limiting_factor, stuck.drains_at) == ("nothing moves", None)


async def test_a_plan_counts_from_the_start_of_the_sale(queue: Queue) -> None:
    at_ms = now_ms()
    await queue.open(rate_per_s=10, sale_starts_at=to_datetime(at_ms + 100_000).isoformat())
    room = await queue.state.rooms.read(EVENT)
    assert make_plan(room, live(), SlotUse(), PlanRequest(), at_ms=at_ms).drains_in_s in (460, 461)


async def test_how_long_a_slot_is_taken_is_measured_from_the_database(queue: Queue) -> None:
    await queue.open(claim_window_s=20, max_misses=1, session_s=100)
    await queue.crowd(10)
    await queue.tick()
    room = await queue.state.rooms.read(EVENT)
    assert await slot_use(queue.db, room, at_ms=queue.time_ms) == SlotUse()
    await queue.claim(*((seq, f"fan-{seq}") for seq in range(1, 5)))
    await queue.tick(21)
    await queue.sql("UPDATE queue.place SET ended_at = to_timestamp(:ms / 1000.0), end_reason = 'completed' "
                    "WHERE join_seq <= 4", ms=queue.time_ms)  # fmt: skip
    use = await slot_use(queue.db, room, at_ms=queue.time_ms)
    assert use.claimed_share == 0.4
    assert use.slot_s is not None
    assert 19 < use.slot_s < 22


# -- the door ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def app(redis_url: str, postgres_url: str) -> AsyncIterator[FastAPI]:
    keys = ",".join(f"{role[:3]}:{role}:a-{role}-secret-of-some-length" for role in ROLES)
    settings = Settings(
        redis_url=redis_url, postgres_url=postgres_url, admin_keys=AdminKeys(keys), tick_s=0.05, log_requests=False
    )
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://queue") as client:
        client.headers["Authorization"] = "Bearer a-admin-secret-of-some-length"
        assert (await client.put(AT, json=event_file().model_dump(mode="json"))).status_code == 201
        yield client


ENDPOINTS = [
    ("PUT", "", "admin"), ("GET", "/room", "viewer"), ("PATCH", "/room", "operator"), ("GET", "/audit", "viewer"),
    ("GET", "/changes", "viewer"), ("POST", "/room/capacity-plan", "viewer"), ("POST", "/room/message", "operator"),
    ("POST", "/room/admit", "operator"), ("POST", "/room/rebuild", "operator"), ("POST", "/room/reset", "admin"),
    *(("POST", f"/room/{action}", "operator") for action in ("open", "pause", "resume", "drain", "close")),
    ("GET", "/codes", "viewer"), ("POST", "/codes", "operator"), ("POST", "/codes/revoke", "operator"),
    ("POST", "/lottery/draw", "operator"),
]  # fmt: skip


async def test_every_endpoint_requires_its_role(app: FastAPI, client: httpx.AsyncClient) -> None:
    listed = {
        (method.upper(), path.removeprefix("/admin/queue/events/{event_id}").removeprefix("/admin/events/{event_id}"))
        for path, methods in app.openapi()["paths"].items() if path.startswith("/admin") for method in methods
    }  # fmt: skip
    known = {(method, path if path.rsplit("/", 1)[-1] not in ("open", "pause", "resume", "drain", "close") else
              "/room/{action}") for method, path, _ in ENDPOINTS}  # fmt: skip
    assert listed <= known, "an endpoint without a known role"
    for method, path, needed in ENDPOINTS:
        address = ROOM + path.removeprefix("/room") if path.startswith("/room") else AT + path
        assert (await client.request(method, address, headers={"Authorization": ""})).status_code == 401
        for role in ROLES:
            key = {"Authorization": f"Bearer a-{role}-secret-of-some-length"}
            answer = await client.request(method, address, headers=key)
            assert (answer.status_code == 403) == (ROLES.index(role) < ROLES.index(needed)), (method, path, role)


async def test_everything_done_can_be_read_a_page_at_a_time(client: httpx.AsyncClient) -> None:
    for action in ("open", "drain", "open", "pause"):
        assert (await client.post(f"{ROOM}/{action}", json={"reason": f"to {action}"})).status_code == 200
    assert (await client.patch(ROOM, json={"rate_per_s": 7, "reason": "slower"})).status_code == 200
    admitted = await client.post(f"{ROOM}/admit", json={"count": 5, "reason": "press"})
    assert admitted.json() == {"called": 0, "asked": 5}
    assert (await client.post(f"{ROOM}/rebuild")).json()["state"] == "paused"
    latest = (await client.get(f"{AT}/changes?page_size=3")).json()
    assert [(c["actor"], c["action"]) for c in latest["changes"]] == [
        ("adm", "rebuild"), ("adm", "admit"), ("adm", "change")
    ]  # fmt: skip
    assert latest["changes"][1]["after"]["admit"] == 5
    assert (latest["changes"][2]["before"]["rate_per_s"], latest["changes"][2]["after"]["rate_per_s"]) == (1000, 7)
    older = (await client.get(latest["next"])).json()
    assert [c["reason"] for c in older["changes"]] == ["to pause", "to open", "to drain"]
    oldest = (await client.get(older["next"])).json()
    assert ([c["action"] for c in oldest["changes"]], oldest["next"]) == (["open", "create"], None)
    assert (await client.get(f"{AT}/changes?page_size=0")).status_code == 422
    assert (await client.get("/admin/queue/events/nowhere/changes")).status_code == 404


async def test_whoever_has_read_an_older_room_audit_logs_nothing(client: httpx.AsyncClient) -> None:
    etag = (await client.get(ROOM)).headers["ETag"]
    await client.post(f"{ROOM}/open")
    room = (await client.get(ROOM)).json()
    for path, body in [("close", {}), ("message", {"message": "x"}), ("reset", {}), ("rebuild", {}),
                       ("admit", {"count": 1})]:  # fmt: skip
        answer = await client.post(f"{ROOM}/{path}", json=body, headers={"If-Match": etag})
        assert (answer.status_code, answer.json()["type"]) == (412, "/problems/version-mismatch"), path
    assert (await client.get(ROOM)).json()["version"] == room["version"]
    assert (await client.post(f"{ROOM}/admit", json={"count": 0})).status_code == 422
    await client.post(f"{ROOM}/close")
    assert (await client.post(f"{ROOM}/admit", json={"count": 1})).json()["type"] == "/problems/room-state-conflict"
    assert (await client.patch(ROOM, json={"pace": {"autotune": "on"}})).status_code == 422


async def test_a_plan_changes_nothing_and_the_room_shows_how_it_is_paced(client: httpx.AsyncClient) -> None:
    await client.post(f"{ROOM}/open")
    patched = await client.patch(
        ROOM, json={"pace": {"autotune": "observe", "rate_min": 10, "rate_max": 900}, "reason": "look"}
    )
    assert (patched.json()["pace"]["autotune"], patched.json()["pace"]["guard"]) == ("observe", "on")
    before = (await client.get(ROOM)).json()["version"]
    assert (await client.post(f"{ROOM}/capacity-plan", json={"rate_per_s": 100})).json()[
        "limiting_factor"
    ] == "nobody waits"

    async def target_rate() -> bool:
        room = (await client.get(ROOM)).json()
        return bool(room["autotune_rate_per_s"] == 900 and room["version"] == before and room["throttled"] is None)

    await wait_until(target_rate)


async def test_the_plain_fixed_rate_is_one_setting(queue: Queue) -> None:
    """`burst: 1`, a `max_active` that does not bind, stock coupling off, from the event file: N a second, evenly."""
    await queue.open(rate_per_s=5, burst=1, max_active=1_000_000, stock_coupling=False, pace={"guard": "off"})
    assert (await queue.state.rooms.read(EVENT)).stock_coupling is False
    await queue.crowd(60)
    called = []
    for _ in range(50):
        await queue.tick(0.2)
        called.append(len(await queue.called()))
    steps = [later - earlier for earlier, later in zip([0, *called], called, strict=False)]
    assert set(steps) <= {0, 1, 2}
    assert called[-1] in range(45, 52), "5 a second for 10 s; the opening itself may take its time"
