"""The app as it is served: loops running, operators and neighbours at their endpoints."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from redis.asyncio import Redis

from services.queue.app import create_app
from services.queue.line import insert_places
from services.queue.line import join as join_module
from services.queue.settings import Settings
from shared.contracts.frames import LineFrame, line_channel
from shared.contracts.queue import (
    EventHeartbeats,
    HeartbeatReport,
    JoinBatch,
    JoinRequest,
    PlaceRef,
    PlacesQuestion,
    QueueClient,
)
from shared.rpc.client import ServiceClient
from shared.runtime.settings import development_keys
from shared.security.auth import AdminKeys
from shared.security.tokens import PassReader
from shared.web.app import internal, public
from shared.web.problems import BadCredential, StaleEpoch, UnknownEvent
from tests.queue.conftest import EVENT, event_file
from tests.support.wait import wait_until

ADMIN = {"Authorization": "Bearer an-admin-secret-of-some-length"}
VIEWER = {"Authorization": "Bearer a-viewer-secret-of-some-length"}


@pytest.fixture
async def app(redis_url: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator:
    keys = "ann:admin:an-admin-secret-of-some-length,vic:viewer:a-viewer-secret-of-some-length"
    settings = Settings(
        redis_url=redis_url, postgres_url=postgres_url, admin_keys=AdminKeys(keys), tick_s=0.05, log_requests=False
    )
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def admin(app) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://queue") as client:
        client.headers.update(ADMIN)
        yield client


@pytest.fixture
async def queue_client(app) -> AsyncIterator[QueueClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app))) as client:
        yield QueueClient(ServiceClient(client, "http://queue", development_keys("service"), name="queue"))


async def put(admin: httpx.AsyncClient, **room) -> httpx.Response:
    return await admin.put(f"/admin/queue/events/{EVENT}", json=event_file(**room).model_dump(mode="json"))


def batch(*holders: str, batch_id: str = "batch-0001") -> JoinBatch:
    return JoinBatch(event_id=EVENT, batch_id=batch_id, joins=[JoinRequest(holder=holder) for holder in holders])


def place(epoch: int, seq: int, holder: str) -> PlacesQuestion:
    return PlacesQuestion(event_id=EVENT, epoch=epoch, places=[PlaceRef(lane=0, join_seq=seq, holder=holder)])


async def test_from_the_event_file_to_a_pass(admin, queue_client: QueueClient, redis: Redis):
    assert (await put(admin)).status_code == 201
    assert (await put(admin)).status_code == 200
    assert [j.word for j in (await queue_client.join(batch("too-early"))).joined] == ["closed"]
    opened = await admin.post(f"/admin/events/{EVENT}/room/open")
    assert opened.json()["state"] == "open"
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(line_channel(EVENT))
        answer = await queue_client.join(batch("ann", "ben"))
        assert [j.join_seq for j in answer.joined] == [1, 2]

        async def frame_with_head() -> bool:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=0.1)
            return message is not None and LineFrame.model_validate_json(message["data"]).lanes[0].head_seq == 2

        await wait_until(frame_with_head)
    assert (await queue_client.status(place(1, 1, "ann"))).places[0].status == "ready"
    [claimed] = (await queue_client.claim(place(1, 1, "ann"))).claims
    admission = PassReader(development_keys("pass").public()).read(claimed.admission or "", now_s=0)
    assert (admission.event_id, admission.holder, admission.jti, admission.qty_max) == (EVENT, "ann", "1-0-1-1", 6)
    room = (await admin.get(f"/admin/events/{EVENT}/room")).json()
    assert (room["called"], room["active"]) == (1, 1)
    general = room["lanes"]["0"]
    assert (general["name"], general["head_seq"], general["tail_seq"], general["calls"]) == ("General", 2, 2, 2)


async def test_a_running_queue_renews_the_batch_it_is_writing(
    app, admin, queue_client: QueueClient, redis: Redis, monkeypatch: pytest.MonkeyPatch
):
    """While the insert is pending its batch shows a heartbeat each second, from a loop that nobody calls."""
    await put(admin)
    await admin.post(f"/admin/events/{EVENT}/room/open", json={"reason": "test"})
    begun, disk = asyncio.Event(), asyncio.Event()

    async def slowly(*args, **named):
        begun.set()
        await disk.wait()
        return await insert_places.insert_places(*args, **named)

    monkeypatch.setattr(join_module, "insert_places", slowly)
    joining = asyncio.create_task(queue_client.join(batch("ann")))
    await begun.wait()

    async def noted_ms() -> float:
        [(_, at_ms)] = await redis.zrange(f"queue:{{{EVENT}}}:1:0:inflight", 0, 0, withscores=True)
        return float(at_ms)

    first_ms = await noted_ms()

    async def renewed() -> bool:
        return await noted_ms() > first_ms

    await wait_until(renewed)
    disk.set()
    assert [joined.join_seq for joined in (await joining).joined] == [1]


async def test_an_operator_changes_the_rate_and_the_next_tick_obeys(admin, queue_client: QueueClient):
    await put(admin, rate_per_s=0)
    await admin.post(f"/admin/events/{EVENT}/room/open")
    await queue_client.join(batch("ann"))
    room = await admin.get(f"/admin/events/{EVENT}/room")
    patched = await admin.patch(
        f"/admin/events/{EVENT}/room", json={"rate_per_s": 500, "reason": "doors"},
        headers={"If-Match": room.headers["ETag"]},
    )  # fmt: skip
    assert patched.json()["rate_per_s"] == 500
    assert patched.headers["ETag"] != room.headers["ETag"]
    await wait_until(lambda: _is(queue_client, "ready"))
    late = await admin.patch(
        f"/admin/events/{EVENT}/room", json={"rate_per_s": 1}, headers={"If-Match": room.headers["ETag"]}
    )
    assert (late.status_code, late.json()["type"]) == (412, "/problems/version-mismatch")


async def _is(queue_client: QueueClient, state: str) -> bool:
    return (await queue_client.status(place(1, 1, "ann"))).places[0].status == state


async def test_pause_resume_close_message_and_reset(admin, queue_client: QueueClient):
    await put(admin)
    at = f"/admin/events/{EVENT}/room"
    assert (await admin.post(f"{at}/pause")).json()["type"] == "/problems/room-state-conflict"
    await admin.post(f"{at}/open")
    assert (await admin.post(f"{at}/pause")).json()["shown_state"] == "paused"
    assert (await admin.post(f"{at}/resume", json={"reason": "go"})).json()["shown_state"] == "open"
    assert (await admin.post(f"{at}/message", json={"message": "Soon."})).json()["message"] == "Soon."
    assert (await queue_client.frame(EVENT)).message == "Soon."
    assert [j.join_seq for j in (await queue_client.join(batch("ann"))).joined] == [1]
    assert (await admin.post(f"{at}/reset", json={"reason": "again"})).json()["epoch"] == 2
    with pytest.raises(StaleEpoch):
        await queue_client.status(place(1, 1, "ann"))
    again = await queue_client.join(batch("ann", batch_id="batch-0002"))
    assert (again.epoch, again.joined[0].word, again.joined[0].join_seq) == (2, "joined", 1)
    assert (await admin.post(f"{at}/close")).json()["shown_state"] == "closed"
    assert (await queue_client.join(batch("ben", batch_id="batch-0003"))).joined[0].word == "closed"


async def test_bad_input_changes_nothing(app, admin, queue_client: QueueClient):
    await put(admin)
    at = f"/admin/events/{EVENT}/room"
    before = (await admin.get(at)).json()
    for body, status in [
        ({"rate_per_s": -1}, 422), ({"rate": 5}, 422), ({"rate_per_s": None}, 422), ({"burst": 0}, 422),
        ({"reason": "nul\0"}, 422),
        ({"sale_starts_at": "2027-01-02T00:00:00Z", "sale_ends_at": "2027-01-01T00:00:00Z"}, 422),
    ]:  # fmt: skip
        answer = await admin.patch(at, json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), body
    assert (await admin.patch(at, content=b"{", headers={"content-type": "application/json"})).status_code == 400
    assert (await admin.patch(at, json={"burst": 5}, headers=VIEWER)).status_code == 403
    assert (await admin.patch(at, json={"burst": 5}, headers={"Authorization": "Bearer nobody"})).status_code == 401
    assert (await admin.put("/admin/queue/events/other", json=event_file().model_dump(mode="json"))).status_code == 422
    assert (await admin.get("/admin/events/nowhere/room")).json()["type"] == "/problems/unknown-event"
    assert (await admin.post(f"{at}/explode")).status_code == 422
    assert (await admin.get(at)).json() == before
    with pytest.raises(UnknownEvent):
        await queue_client.join(JoinBatch(event_id="nowhere", batch_id="batch-0009", joins=[JoinRequest(holder="ann")]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app))) as stranger:
        forged = QueueClient(ServiceClient(stranger, "http://queue", development_keys("other"), name="queue"))
        with pytest.raises(BadCredential):
            await forged.join(batch("ann"))


async def test_every_change_is_audited(admin, postgres_url: str, queue_client: QueueClient, postgres):
    await put(admin)
    await admin.patch(f"/admin/events/{EVENT}/room", json={"burst": 7, "reason": "why not"})
    async with postgres.connect() as connection:
        from sqlalchemy import text

        rows = (await connection.execute(text("SELECT * FROM queue.room_audit_log ORDER BY id"))).fetchall()
    assert [(row.actor, row.action, row.reason) for row in rows] == [
        ("ann", "create", None), ("ann", "change", "why not")
    ]  # fmt: skip
    assert (rows[1].before["burst"], rows[1].after["burst"]) == (1000, 7)


async def test_heartbeat_reports_are_answered_with_when_to_report_again(admin, queue_client: QueueClient, redis: Redis):
    await put(admin, liveness_window_s=20)
    signs = EventHeartbeats(event_id=EVENT, epoch=1, lanes={0: [1, 2**40]})
    answer = await queue_client.report_heartbeats(HeartbeatReport(reporter="gateway-1", events=[signs]))
    assert answer.report_again_s == 5
    assert await redis.zcard("queue:reporters") == 1
    await queue_client.report_heartbeats(HeartbeatReport(reporter="gateway-1", final=True, events=[]))
    assert await redis.zcard("queue:reporters") == 0


async def test_a_lottery_that_nobody_could_enter_is_not_opened(admin):
    value = {"what": "an index", "known_at": "2020-01-01T12:00:00Z"}
    rules = {"entry_closes_at": "2020-01-01T10:00:00Z", "public_value": value}
    assert (await put(admin, ordering="lottery", lottery=rules)).json()["lottery"] == rules
    refused = await admin.post(f"/admin/events/{EVENT}/room/open")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/room-state-conflict")
    assert (await admin.get(f"/admin/events/{EVENT}/room")).json()["state"] == "draft"
    for text in ("", "  ", "x" * 501, "a\u0000b"):
        body = {"public_value": text}
        assert (await admin.post(f"/admin/queue/events/{EVENT}/lottery/draw", json=body)).status_code == 422
    early = await admin.post(f"/admin/queue/events/{EVENT}/lottery/draw", json={"public_value": "1"}, headers=VIEWER)
    assert early.status_code == 403
