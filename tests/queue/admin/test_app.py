"""The app with its background loops running, used by operators and by other services."""

import asyncio

import httpx
import pytest
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine

from services.queue.app import create_app
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
from shared.errors.problems import BadCredential, StaleEpoch, UnknownEvent
from shared.rpc import ServiceClient
from shared.security.tokens import PassReader, development_keys
from shared.web.app import READY_DEADLINE_S, READY_KEPT_S, internal, public
from tests.queue.conftest import (
    EVENT,
    ROOM_URL,
    Inventory,
    Queue,
    credentials,
    event_file,
    open_event,
    put_event,
)
from tests.support.engines.tcp_proxy import Mode, TcpProxy
from tests.support.wait import wait_until


def batch(*holders: str, batch_id: str = "batch-0001") -> JoinBatch:
    return JoinBatch(event_id=EVENT, batch_id=batch_id, joins=[JoinRequest(holder=holder) for holder in holders])


def place(epoch: int, seq: int, holder: str) -> PlacesQuestion:
    return PlacesQuestion(event_id=EVENT, epoch=epoch, places=[PlaceRef(lane=0, join_seq=seq, holder=holder)])


async def test_a_fan_gets_a_pass_for_an_event_whose_file_was_applied(admin, queue_client: QueueClient, redis: Redis):
    assert (await put_event(admin)).status_code == 201
    assert (await put_event(admin)).status_code == 200
    assert [j.word for j in (await queue_client.join(batch("too-early"))).joined] == ["closed"]
    opened = await admin.post(f"{ROOM_URL}/open")
    assert opened.json()["state"] == "open"
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(line_channel(EVENT))
        joined = (await queue_client.join(batch("ann", "ben"))).joined
        assert [j.join_seq for j in joined] == [1, 2]

        async def frame_with_head() -> bool:
            message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=0.1)
            return message is not None and LineFrame.model_validate_json(message["data"]).lanes[0].head_seq == 2

        await wait_until(frame_with_head)
    assert (await queue_client.status(place(1, 1, "ann"))).places[0].status == "ready"
    [claimed] = (await queue_client.claim(place(1, 1, "ann"))).claims
    admission = PassReader(development_keys("pass").public()).read(claimed.admission or "", now_s=0)
    assert (admission.event_id, admission.holder, admission.jti, admission.qty_max) == (EVENT, "ann", "1-0-1-1", 6)
    room = (await admin.get(ROOM_URL)).json()
    assert (room["called"], room["active"]) == (1, 1)
    general = room["lanes"]["0"]
    assert (general["name"], general["head_seq"], general["tail_seq"], general["calls"]) == ("General", 2, 2, 2)


async def test_a_frame_tells_by_which_settings_the_line_is_called_whatever_was_changed(admin, redis: Redis):
    await open_event(admin)
    async with redis.pubsub() as pubsub:
        await pubsub.subscribe(line_channel(EVENT))
        for changes in ({"burst": 3}, {"rate_per_s": 0.5}, {"session_s": 300}):
            changed = (await admin.patch(ROOM_URL, json=changes)).json()

            async def in_force(changed=changed) -> bool:
                message = await pubsub.get_message(ignore_subscribe_messages=True, timeout=0.1)
                frame = message and LineFrame.model_validate_json(message["data"])
                return bool(frame) and (frame.config_version, frame.rate_per_s) == (
                    changed["version"], changed["rate_per_s"],
                )  # fmt: skip

            await wait_until(in_force)


async def test_a_running_queue_renews_the_batch_that_it_is_inserting(app, admin, redis: Redis, postgres: AsyncEngine):
    """A background loop renews the batch each second while its insert is pending."""
    await open_event(admin)
    queue = Queue(app.state.deps, postgres, redis, Inventory())
    async with queue.blocked_join("ann") as joining:
        [first_ms] = (await queue.sorted_set("0:inflight")).values()

        async def is_renewed() -> bool:
            [renewed_ms] = (await queue.sorted_set("0:inflight")).values()
            return renewed_ms > first_ms

        await wait_until(is_renewed)
    assert [joined.join_seq for joined in await joining] == [1]


async def test_a_rate_changed_by_an_operator_applies_from_the_next_tick(admin, queue_client: QueueClient):
    async def is_ready() -> bool:
        return (await queue_client.status(place(1, 1, "ann"))).places[0].status == "ready"

    await open_event(admin, rate_per_s=0)
    await queue_client.join(batch("ann"))
    room = await admin.get(ROOM_URL)
    patched = await admin.patch(
        ROOM_URL, json={"rate_per_s": 500, "reason": "start"},
        headers={"If-Match": room.headers["ETag"]},
    )  # fmt: skip
    assert patched.json()["rate_per_s"] == 500
    assert patched.headers["ETag"] != room.headers["ETag"]
    await wait_until(is_ready)
    outdated = await admin.patch(ROOM_URL, json={"rate_per_s": 1}, headers={"If-Match": room.headers["ETag"]})
    assert (outdated.status_code, outdated.json()["type"]) == (412, "/problems/version-mismatch")


async def test_operators_pause_resume_message_reset_and_close_a_room(admin, queue_client: QueueClient):
    await put_event(admin)
    assert (await admin.post(f"{ROOM_URL}/pause")).json()["type"] == "/problems/room-state-conflict"
    await admin.post(f"{ROOM_URL}/open")
    assert (await admin.post(f"{ROOM_URL}/pause")).json()["shown_state"] == "paused"
    assert (await admin.post(f"{ROOM_URL}/resume", json={"reason": "go"})).json()["shown_state"] == "open"
    assert (await admin.post(f"{ROOM_URL}/message", json={"message": "Soon."})).json()["message"] == "Soon."
    assert (await queue_client.frame(EVENT)).message == "Soon."
    assert [j.join_seq for j in (await queue_client.join(batch("ann"))).joined] == [1]
    assert (await admin.post(f"{ROOM_URL}/reset", json={"reason": "again"})).json()["epoch"] == 2
    with pytest.raises(StaleEpoch):
        await queue_client.status(place(1, 1, "ann"))
    again = await queue_client.join(batch("ann", batch_id="batch-0002"))
    assert (again.epoch, again.joined[0].word, again.joined[0].join_seq) == (2, "joined", 1)
    assert (await admin.post(f"{ROOM_URL}/close")).json()["shown_state"] == "closed"
    assert (await queue_client.join(batch("ben", batch_id="batch-0003"))).joined[0].word == "closed"


async def test_invalid_requests_are_refused_and_change_nothing(app, admin, queue_client: QueueClient):
    await put_event(admin)
    before = (await admin.get(ROOM_URL)).json()
    for body, status in [
        ({"rate_per_s": -1}, 422), ({"rate_per_s": 5e-324}, 422), ({"rate": 5}, 422), ({"rate_per_s": None}, 422),
        ({"burst": 0}, 422), ({"reason": "nul\0"}, 422),
        ({"sale_starts_at": "2027-01-02T00:00:00Z", "sale_ends_at": "2027-01-01T00:00:00Z"}, 422),
    ]:  # fmt: skip
        answer = await admin.patch(ROOM_URL, json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), body
    assert (await admin.patch(ROOM_URL, content=b"{", headers={"content-type": "application/json"})).status_code == 400
    assert (await admin.patch(ROOM_URL, json={"burst": 5}, headers=credentials("viewer"))).status_code == 403
    assert (
        await admin.patch(ROOM_URL, json={"burst": 5}, headers={"Authorization": "Bearer nobody"})
    ).status_code == 401
    assert (await admin.put("/admin/queue/events/other", json=event_file().model_dump(mode="json"))).status_code == 422
    assert (await admin.get("/admin/events/nowhere/room")).json()["type"] == "/problems/unknown-event"
    assert (await admin.post(f"{ROOM_URL}/explode")).status_code == 404
    assert (await admin.get(ROOM_URL)).json() == before
    with pytest.raises(UnknownEvent):
        await queue_client.join(JoinBatch(event_id="nowhere", batch_id="batch-0009", joins=[JoinRequest(holder="ann")]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app))) as client:
        forged = QueueClient(ServiceClient(client, "http://queue", development_keys("other"), name="queue"))
        with pytest.raises(BadCredential):
            await forged.join(batch("ann"))


async def test_the_answer_to_a_heartbeat_report_names_the_time_of_the_next(
    admin, queue_client: QueueClient, redis: Redis
):
    await put_event(admin, liveness_window_s=20)
    heartbeats = EventHeartbeats(event_id=EVENT, epoch=1, lanes={0: [1, 2**40]})
    answer = await queue_client.report_heartbeats(HeartbeatReport(reporter="gateway-1", events=[heartbeats]))
    assert answer.report_again_s == 5
    assert await redis.zcard("queue:reporters") == 1
    await queue_client.report_heartbeats(HeartbeatReport(reporter="gateway-1", final=True, events=[]))
    assert await redis.zcard("queue:reporters") == 0


# -- readiness ---------------------------------------------------------------------------------------------------------


PROBE_S = 1.0  # between two probes of a load balancer


@pytest.mark.parametrize("mode", ["resets", pytest.param("swallows", marks=pytest.mark.proof)])
@pytest.mark.parametrize("which", ["postgres", "redis"])
async def test_readiness_turns_within_one_probe_and_back(
    redis_url: str, postgres_url: str, which: str, mode: Mode
) -> None:
    with TcpProxy(postgres_url) as postgres, TcpProxy(redis_url) as redis:
        settings = Settings(redis_url=redis.url, postgres_url=postgres.url, log_requests=False)
        app = create_app(settings)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://queue") as client,
        ):

            async def probe(path: str = "/readyz") -> int:
                async with asyncio.timeout(READY_DEADLINE_S + 1):
                    return (await client.get(path)).status_code

            async def is_ready() -> bool:
                return await probe() == 200

            await wait_until(is_ready)
            lost = {"postgres": postgres, "redis": redis}[which]
            lost.set_mode(mode)
            await asyncio.sleep(max(PROBE_S, READY_KEPT_S))
            assert await probe() == 503
            assert await probe("/livez") == 200, "the process is alive; restarting it would help nobody"
            lost.set_mode("passes")
            if mode == "swallows":
                lost.set_mode("resets")  # what hung does not come back by itself
                lost.set_mode("passes")
            await wait_until(is_ready, timeout_s=10, interval_s=PROBE_S)
