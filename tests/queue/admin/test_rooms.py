"""Operators manage a room: drain, admit, rebuild and reset, each with its role and its audit log entry."""

import asyncio
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from services.queue.admission import gatekeeper
from services.queue.problems import RoomStateConflict
from services.queue.rooms.model import RequestedBy
from shared.contracts.admin.queue import AdmitResult
from shared.errors.problems import IdempotencyInFlight, IdempotencyKeyReused, Unavailable
from shared.runtime.clock import now_ms, to_datetime
from tests.queue.conftest import (
    EVENT,
    EVENT_URL,
    OPERATORS,
    ROOM_URL,
    TEST,
    Queue,
    credentials,
    put_event,
)

ROLES = list(OPERATORS)


async def admit_now(queue: Queue, count: int) -> int:
    room = await queue.state.rooms.read(EVENT)
    return await gatekeeper.admit_now(queue.state.line, queue.state.gatekeeper, room, count)


# -- draining ----------------------------------------------------------------------------------------------------------


async def test_a_draining_room_refuses_joins_and_calls_the_fans_in_line(queue: Queue) -> None:
    await queue.open(fans=6, rate_per_s=10, burst=1)
    await queue.transition("drain")
    assert [joined.word for joined in await queue.join("late")] == ["closed"]
    assert [joined.word for joined in await queue.join("fan-3", may_be_known=True)] == ["known"]
    frame = [await queue.tick(0.2) for _ in range(10)][-1]
    assert (frame.state, await queue.called()) == ("draining", [1, 2, 3, 4, 5, 6])
    assert (await queue.claim((2, "fan-2")))[0].word == "admitted"
    await queue.transition("open")
    assert [joined.word for joined in await queue.join("late")] == ["joined"]


async def test_draining_after_a_pause_starts_without_tokens_and_refuses_joins_without_redis(queue: Queue) -> None:
    await queue.open(fans=60, rate_per_s=10, burst=50)
    await queue.transition("pause")
    await queue.tick(60)
    await queue.transition("drain")
    await queue.tick(0.2)
    assert len(await queue.called()) <= 3
    await queue.redis.flushall()
    queue.state.line.unresponsive.add(EVENT)
    assert [joined.word for joined in await queue.join("late")] == ["closed"]


async def test_a_paused_room_closes_when_its_sale_ends(queue: Queue) -> None:
    ends = to_datetime(now_ms()) + timedelta(seconds=20)
    await queue.open(sale_ends_at=ends.isoformat())
    await queue.transition("pause")
    assert (await queue.tick(1)).state == "paused"
    assert (await queue.tick(30)).state == "closed"
    assert await admit_now(queue, 5) == 0


@pytest.mark.parametrize("closed_by", ["operator", "schedule"])
async def test_a_closed_room_issues_no_new_pass_and_repeats_those_it_issued(queue: Queue, closed_by: str) -> None:
    ends = to_datetime(now_ms()) + timedelta(seconds=60)
    await queue.open_and_call(fans=2, sale_ends_at=ends.isoformat())
    [before] = await queue.claim((1, "fan-1"))
    if closed_by == "operator":
        await queue.transition("close")
    else:
        await queue.tick(61)
    again, late = await queue.claim((1, "fan-1"), (2, "fan-2"))
    assert (again.admission, late.admission, late.word) == (before.admission, None, "waiting")


# -- manual admission and rebuild --------------------------------------------------------------------------------------


async def test_manual_admissions_need_no_tokens_and_those_beyond_max_active_are_dropped(queue: Queue) -> None:
    await queue.open(fans=20, rate_per_s=0, max_active=7)
    await queue.transition("pause")
    assert await admit_now(queue, 3) == 3
    assert await admit_now(queue, 10) == 4, "only up to max_active"
    assert await queue.called() == [1, 2, 3, 4, 5, 6, 7]
    room = await queue.state.rooms.read(EVENT)
    await gatekeeper._request_admissions(queue.state.line, room, 9)
    await queue.tick()
    await queue.configure(max_active=20)
    await queue.tick()
    assert len(await queue.called()) == 7


async def test_manual_admissions_are_added_to_the_rate(queue: Queue) -> None:
    await queue.open(fans=100, rate_per_s=10, burst=1)
    await queue.tick(1)
    before = len(await queue.called())
    assert await admit_now(queue, 20) == 20
    for _ in range(5):
        await queue.tick(0.2)
    assert len(await queue.called()) - before in range(21, 33)


async def test_manual_admission_is_unavailable_while_redis_is_rebuilt(queue: Queue) -> None:
    await queue.open()
    await queue.redis.flushall()
    with pytest.raises(Unavailable):
        await admit_now(queue, 5)


async def test_a_forced_rebuild_keeps_places_order_and_calls(queue: Queue) -> None:
    await queue.open(fans=10, rate_per_s=5, burst=2)
    await queue.tick(1)
    called, generation = await queue.called(), (await queue.room_hash())["generation"]
    assert await queue.state.recovery.rebuild(EVENT) is False, "a complete line needs no rebuild"
    assert await queue.state.recovery.rebuild(EVENT, force=True) is True
    assert int((await queue.room_hash())["generation"]) == int(generation) + 1
    assert await queue.called() == called
    await queue.tick(1)
    await queue.tick(1)
    assert (await queue.called())[: len(called) + 1] == [*called, called[-1] + 1]


# -- reset -------------------------------------------------------------------------------------------------------------


async def test_a_new_line_issues_no_pass_before_inventory_refuses_the_old_passes(queue: Queue, inventory) -> None:
    await queue.open()
    await queue.reset()
    await queue.tick()
    [joined] = await queue.join("ann")
    await queue.tick()
    question = queue.places((joined.join_seq, "ann"), epoch=2)
    inventory.unavailable = True
    with pytest.raises(Unavailable):
        await queue.state.claims.claim(question)
    inventory.unavailable = False
    assert [claim.word for claim in await queue.state.claims.claim(question)] == ["admitted"]
    await queue.state.claims.claim(question)
    assert inventory.min_pass_epochs == [2], "requested once"


async def test_the_control_loop_reports_a_reset_to_inventory_until_it_succeeds(queue: Queue, inventory) -> None:
    await queue.open()
    await queue.state.rooms.reset(EVENT, TEST)
    inventory.unavailable = True
    await queue.state.control_loop.run_once()
    assert inventory.min_pass_epochs == []
    inventory.unavailable = False
    for _ in range(3):
        await queue.state.control_loop.run_once()
    assert inventory.min_pass_epochs == [2]


# -- endpoints ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def client(admin: httpx.AsyncClient) -> httpx.AsyncClient:
    """An admin's client, after the event file was applied."""
    assert (await put_event(admin)).status_code == 201
    return admin


ENDPOINTS = [
    ("PUT", "", "admin"), ("GET", "", "viewer"), ("GET", "/room", "viewer"), ("PATCH", "/room", "operator"),
    ("GET", "/audit", "viewer"),
    ("GET", "/changes", "viewer"), ("POST", "/room/capacity-plan", "viewer"), ("POST", "/room/message", "operator"),
    ("POST", "/room/admit", "operator"), ("POST", "/room/rebuild", "operator"), ("POST", "/room/reset", "admin"),
    ("POST", "/room/gate", "admin"),
    *(("POST", f"/room/{action}", "operator") for action in ("open", "pause", "resume", "drain", "close")),
    ("GET", "/flow", "viewer"), ("GET", "/flow/history", "viewer"), ("GET", "/admin/queue/checks", "viewer"),
    ("GET", "/codes", "viewer"), ("POST", "/codes", "operator"), ("POST", "/codes/revoke", "operator"),
    ("POST", "/lottery/draw", "operator"),
]  # fmt: skip


async def test_every_endpoint_requires_its_role(app: FastAPI, client: httpx.AsyncClient) -> None:
    endpoints = {
        (method.upper(), path.removeprefix("/admin/queue/events/{event_id}").removeprefix("/admin/events/{event_id}"))
        for path, methods in app.openapi()["paths"].items() if path.startswith("/admin") for method in methods
    }  # fmt: skip
    known = {(method, path if path.rsplit("/", 1)[-1] not in ("open", "pause", "resume", "drain", "close") else
              "/room/{action}") for method, path, _ in ENDPOINTS}  # fmt: skip
    assert endpoints <= known, "an endpoint without a known role"
    for method, path, needed in ENDPOINTS:
        address = ROOM_URL + path.removeprefix("/room") if path.startswith("/room") else EVENT_URL + path
        address = path if path.startswith("/admin/") else address
        assert (await client.request(method, address, headers={"Authorization": ""})).status_code == 401
        for role in ROLES[: ROLES.index(needed) + 1]:
            answer = await client.request(method, address, headers=credentials(role))
            assert (answer.status_code == 403) == (role != needed), (method, path, role)


async def test_changes_of_a_room_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    for action in ("open", "drain", "open", "pause"):
        assert (await client.post(f"{ROOM_URL}/{action}", json={"reason": f"to {action}"})).status_code == 200
    assert (await client.patch(ROOM_URL, json={"rate_per_s": 7, "reason": "slower"})).status_code == 200
    admitted = await client.post(f"{ROOM_URL}/admit", json={"count": 5, "reason": "press"})
    assert admitted.json() == {"called": 0, "asked": 5}
    assert (await client.post(f"{ROOM_URL}/rebuild")).json()["state"] == "paused"
    latest = (await client.get(f"{EVENT_URL}/changes?page_size=3")).json()
    assert [(c["actor"], c["action"]) for c in latest["changes"]] == [
        ("ann", "rebuild"), ("ann", "admit"), ("ann", "change")
    ]  # fmt: skip
    assert latest["changes"][1]["after"]["admit"] == 5
    assert (latest["changes"][2]["before"]["rate_per_s"], latest["changes"][2]["after"]["rate_per_s"]) == (1000, 7)
    older = (await client.get(latest["next"])).json()
    assert [c["reason"] for c in older["changes"]] == ["to pause", "to open", "to drain"]
    oldest = (await client.get(older["next"])).json()
    assert ([c["action"] for c in oldest["changes"]], oldest["next"]) == (["open", "create"], None)
    assert (await client.get(f"{EVENT_URL}/changes?page_size=0")).status_code == 422
    assert (await client.get("/admin/queue/events/nowhere/changes")).status_code == 404


async def test_requests_with_one_idempotency_key_admit_once(queue: Queue) -> None:
    """A double click, a repeated request and one that was broken off in between."""
    await queue.open(fans=20, rate_per_s=0)
    admit, by = queue.state.operations.admit, RequestedBy("ann")
    answers = await asyncio.gather(*(admit(EVENT, 3, by, "a-key") for _ in range(2)), return_exceptions=True)
    done = [answer for answer in answers if isinstance(answer, AdmitResult)]
    assert {(answer.called, answer.asked) for answer in done} == {(3, 3)}
    assert all(isinstance(answer, AdmitResult | IdempotencyInFlight) for answer in answers)
    assert await admit(EVENT, 3, by, "a-key") == AdmitResult(called=3, asked=3)
    with pytest.raises(IdempotencyKeyReused):
        await admit(EVENT, 4, by, "a-key")
    assert len(await queue.called()) == 3
    assert (await admit(EVENT, 2, by, "another-key")).called == 2

    await queue.sql("UPDATE queue.admit_key SET called = NULL")
    with pytest.raises(IdempotencyInFlight):
        await admit(EVENT, 3, by, "a-key")
    assert len(await queue.called()) == 5


async def test_a_refused_admission_leaves_its_key_for_the_next_attempt(queue: Queue) -> None:
    await queue.open(fans=3, rate_per_s=0)
    await queue.transition("close")
    admit, by = queue.state.operations.admit, RequestedBy("ann")
    for _ in range(2):
        with pytest.raises(RoomStateConflict):
            await admit(EVENT, 1, by, "a-key")
    await queue.transition("open")
    assert (await admit(EVENT, 1, by, "a-key")).called == 1


async def test_requests_with_the_etag_of_an_older_version_change_nothing(client: httpx.AsyncClient) -> None:
    etag = (await client.get(ROOM_URL)).headers["ETag"]
    await client.post(f"{ROOM_URL}/open")
    room = (await client.get(ROOM_URL)).json()
    for path, body in [("close", {}), ("message", {"message": "x"}), ("reset", {}), ("rebuild", {}),
                       ("admit", {"count": 1})]:  # fmt: skip
        answer = await client.post(f"{ROOM_URL}/{path}", json=body, headers={"If-Match": etag})
        assert (answer.status_code, answer.json()["type"]) == (412, "/problems/version-mismatch"), path
    assert (await client.get(ROOM_URL)).json()["version"] == room["version"]
    assert (await client.post(f"{ROOM_URL}/admit", json={"count": 0})).status_code == 422
    await client.post(f"{ROOM_URL}/close")
    assert (await client.post(f"{ROOM_URL}/admit", json={"count": 1})).json()["type"] == "/problems/room-state-conflict"
    assert (await client.patch(ROOM_URL, json={"pace": {"autotune": "on"}})).status_code == 422


async def test_a_room_without_control_loops_calls_at_a_fixed_rate(queue: Queue) -> None:
    """From the event file: `burst: 1`, a high `max_active`, stock coupling and the throttle off."""
    await queue.open(rate_per_s=5, burst=1, max_active=1_000_000, stock_coupling=False, pace={"guard": "off"})
    assert (await queue.state.rooms.read(EVENT)).stock_coupling is False
    await queue.join_fans(60)
    called = []
    for _ in range(50):
        await queue.tick(0.2)
        called.append(len(await queue.called()))
    steps = [later - earlier for earlier, later in zip([0, *called], called, strict=False)]
    assert set(steps) <= {0, 1, 2}
    assert called[-1] in range(45, 52), "5 a second for 10 s, less the time of the opening"
